#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <functional>
#include <mutex>
#include <thread>

#include "base/stop_point.hpp"

namespace perfmodel {

/// Threads of a study: as many as asked, 0 for all that the machine has; at most one per row.
inline std::size_t study_threads(std::size_t asked, std::size_t rows) {
  const std::size_t threads = asked > 0 ? asked : std::thread::hardware_concurrency();
  return std::clamp<std::size_t>(threads, 1, std::max<std::size_t>(rows, 1));
}

/// Answers the rows of a study, each by whichever thread is free. `make_worker` gives a thread its
/// own function of a row's number; a thread ends when that returns false. `progress` gets the
/// number of rows that are answered, from one thread at a time; may be empty. Throws what workers
/// throw.
template <class MakeWorker>
void answer_rows(std::size_t rows, std::size_t threads,
                 const std::function<void(std::size_t)>& progress, MakeWorker&& make_worker) {
  std::atomic<std::size_t> next = 0;
  std::mutex counting;
  std::size_t answered = 0;
  work_in_threads(study_threads(threads, rows), [&] {
    auto answer = make_worker();
    for (std::size_t row = next++; row < rows && answer(row); row = next++) {
      const std::lock_guard lock(counting);
      ++answered;
      if (progress) progress(answered);
    }
  });
}

}  // namespace perfmodel
