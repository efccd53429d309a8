#include <algorithm>
#include <cmath>

#include "perfmodel/graph/rewrites/resize.hpp"
#include "perfmodel/memory.hpp"
#include "step_memory.hpp"

namespace perfmodel {
namespace {

constexpr std::int64_t kMostSamples = std::int64_t{1} << 30;

/// What a number of samples needs.
struct Try {
  std::int64_t batch = 0;
  PredictedMemory memory;
};

class Search {
 public:
  Search(const ExecutionGraph& graph, const Gpu& gpu) : graph_(graph), gpu_(gpu) {}

  Result<LargestBatch> run() {
    const auto given = batch_size(graph_);
    if (!given) return Unexpected{given.error()};
    if (auto done = try_batch(*given); !done) return Unexpected{done.error()};
    while (!lacks_.batch) {
      if (fits_.batch >= kMostSamples) {
        return fail(ErrorCode::kImpossible,
                    "expected a batch that does not fit, found that 2^30 samples still do");
      }
      if (auto done = try_batch(larger()); !done) return Unexpected{done.error()};
    }
    while (lacks_.batch - fits_.batch > 1) {
      if (auto done = try_batch(between()); !done) return Unexpected{done.error()};
    }
    return LargestBatch{
        .batch = fits_.batch, .memory = fits_.memory, .next = lacks_.memory, .rewrites = rewrites_};
  }

 private:
  Result<void> try_batch(std::int64_t batch) {
    auto resized = set_batch_size(graph_, {.batch = batch});
    if (!resized) return Unexpected{resized.error()};
    ++rewrites_;
    Try made{.batch = batch,
             .memory = step_memory(memory_plan(*resized), *resized, std::nullopt, &gpu_)};
    if (low_.batch == 0 || batch < low_.batch) low_ = made;
    if (batch > high_.batch) high_ = made;
    (made.memory.fits() ? fits_ : lacks_) = std::move(made);
    return {};
  }

  double slope() const {
    return (high_.memory.needed_bytes() - low_.memory.needed_bytes()) /
           static_cast<double>(high_.batch - low_.batch);
  }
  /// By the line through the tries, at least one sample beyond the last that fits.
  std::int64_t on_line() const {
    const double room = gpu_bytes() - fits_.memory.needed_bytes();
    const double more = slope() > 0 ? room / slope() : 0;
    return fits_.batch + static_cast<std::int64_t>(
                             std::clamp(std::floor(more), 1.0, static_cast<double>(kMostSamples)));
  }
  double gpu_bytes() const { return low_.memory.device_bytes; }

  std::int64_t larger() const {
    const std::int64_t twice = 2 * fits_.batch;
    if (low_.batch == high_.batch) return twice;
    return std::min(std::max(on_line(), fits_.batch + 1), kMostSamples);
  }
  std::int64_t between() const {
    if (fits_.batch == 0) return std::max<std::int64_t>(1, lacks_.batch / 2);
    return std::clamp(on_line(), fits_.batch + 1, lacks_.batch - 1);
  }

  const ExecutionGraph& graph_;
  const Gpu& gpu_;
  Try fits_, lacks_;  ///< batch 0: none yet
  Try low_, high_;    ///< the smallest and the largest that were tried
  int rewrites_ = 0;
};

}  // namespace

Result<double> bytes_per_sample(const ExecutionGraph& graph) {
  const auto batch = batch_size(graph);
  if (!batch) return Unexpected{batch.error()};
  const auto twice = set_batch_size(graph, {.batch = 2 * *batch});
  if (!twice) return Unexpected{twice.error()};
  const auto allocated = [](const ExecutionGraph& of) {
    return step_memory(memory_plan(of), of, std::nullopt, nullptr).peak_allocated_bytes;
  };
  return (allocated(*twice) - allocated(graph)) / static_cast<double>(*batch);
}

Result<LargestBatch> largest_batch(const ExecutionGraph& graph, const Gpu& gpu) {
  return Search(graph, gpu).run();
}

}  // namespace perfmodel
