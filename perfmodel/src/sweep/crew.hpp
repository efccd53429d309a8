#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "base/stop_point.hpp"
#include "part_file.hpp"
#include "perfmodel/predictor.hpp"
#include "perfmodel/sweep/detail/sweep_options.hpp"
#include "row_maker.hpp"
#include "sweep_points.hpp"
#include "work_list.hpp"

namespace perfmodel::sweep {

/// Counts of one process, or of all ranks of a team.
struct WorkDone {
  std::uint64_t predicted = 0, refused = 0, too_large = 0;
  std::size_t failed_ranks = 0;     ///< other ranks, which have said why
  std::optional<Error> error = {};  ///< error of this process
  bool stopped = false;
};

/// The threads of one process: they take chunks, answer their rows and append them to the part.
/// Rank 0 (and a single process) takes them from the list and hands them out to the other ranks,
/// which ask for them.
class Crew {
 public:
  /// `list`: on rank 0. `writer`: none if the part could not be opened (`problem`); the rank then
  /// takes no work.
  Crew(const SweepPoints& points, const GraphToolbox& toolbox, const Predictor& predictor,
       const SweepOptions& options, WorkList* list, Result<PartWriter> writer);

  /// Returns once nothing is left, or all ranks have stopped.
  WorkDone work();

 private:
  void run_thread();
  void work_through_chunks();
  std::vector<std::uint64_t> next_chunk(std::uint64_t rows_done);
  Result<void> answer_chunk(const std::vector<std::uint64_t>& chunk, RowMaker& maker);
  void note(const Error& error);
  bool stopped() const { return stop_asked() || (options_.stop && options_.stop()); }
  void lead(std::size_t threads);
  void serve(const Team::Message& message);
  void report_progress() const;

  const SweepPoints& points_;
  const Predictor& predictor_;
  const SweepOptions& options_;
  WorkList* list_;
  Result<PartWriter> writer_;
  GraphStore graphs_;
  std::mutex writing_, noting_;
  std::atomic<bool> quit_ = false;
  std::atomic<std::size_t> at_work_ = 0;
  std::atomic<std::uint64_t> predicted_ = 0, refused_ = 0, too_large_ = 0;
  // Rank 0 only: counts of the others.
  std::uint64_t rows_of_others_ = 0;
  std::size_t ranks_done_ = 0;
  WorkDone done_;
};

}  // namespace perfmodel::sweep
