#include "read_many.hpp"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <new>
#include <optional>
#include <thread>
#include <utility>

#include "base/stop_point.hpp"
#include "perfmodel/graph/read_execution_graph.hpp"

namespace perfmodel {
namespace {

ReadOptions share_of(const ReadManyOptions& options, std::size_t files) {
  ReadOptions share = options.reading;
  share.limits.kept_bytes /= std::max<std::size_t>(1, files);
  return share;
}

template <class Content, class Read>
class ManyReader {
 public:
  ManyReader(std::span<const std::string> files, const ReadManyOptions& options, Read read)
      : files_(files), options_(options), read_(read), results_(files.size()) {}

  Result<std::vector<Content>> run() {
    std::size_t threads = options_.threads ? options_.threads : std::thread::hardware_concurrency();
    threads = std::min(std::max<std::size_t>(1, threads), files_.size());
    work_in_threads(threads, [this] { work(); });
    std::vector<Content> contents;
    contents.reserve(files_.size());
    for (std::optional<Result<Content>>& result : results_) {
      if (!*result) return Unexpected{std::move(result->error())};
      contents.push_back(std::move(**result));
    }
    return contents;
  }

 private:
  // Files are taken in their order, so all before one that fails are read to their end and the
  // first error is always the same.
  void work() {
    try {
      for (;;) {
        const std::size_t i = next_.fetch_add(1);
        if (i >= files_.size() || failed_.load()) return;
        results_[i].emplace(read_(files_[i], options_of(i)));
        if (!*results_[i]) failed_.store(true);
      }
    } catch (...) {  // no memory: the others end, too
      failed_.store(true);
      throw;
    }
  }

  ReadOptions options_of(std::size_t i) {
    ReadOptions reading = share_of(options_, files_.size());
    if (options_.progress) {
      reading.progress = [this, i](std::uint64_t done, std::uint64_t size) {
        const std::lock_guard lock(mutex_);
        options_.progress(i, done, size);
      };
    } else {
      reading.progress = {};
    }
    return reading;
  }

  std::span<const std::string> files_;
  const ReadManyOptions& options_;
  Read read_;
  std::vector<std::optional<Result<Content>>> results_;
  std::atomic<std::size_t> next_{0};
  std::atomic<bool> failed_{false};
  std::mutex mutex_;
};

}  // namespace

Result<std::vector<Trace>> read_traces(std::span<const std::string> files,
                                       const ReadManyOptions& options) {
  const auto read = [](const std::string& file, const ReadOptions& reading) {
    return read_trace(file, reading);
  };
  return ManyReader<Trace, decltype(read)>(files, options, read).run();
}

Result<std::vector<ExecutionGraph>> read_execution_graphs(std::span<const std::string> files,
                                                          const ReadManyOptions& options) {
  const auto read = [](const std::string& file, const ReadOptions& reading) {
    return read_execution_graph(file, reading);
  };
  return ManyReader<ExecutionGraph, decltype(read)>(files, options, read).run();
}

}  // namespace perfmodel
