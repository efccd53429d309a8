#include <algorithm>
#include <cmath>
#include <vector>

#include "base/stop_point.hpp"
#include "bytes_per_sample.hpp"
#include "perfmodel/graph/rewrites/resize.hpp"
#include "perfmodel/memory.hpp"
#include "step_memory.hpp"

namespace perfmodel {
namespace {

constexpr std::int64_t kMostSamples = std::int64_t{1} << 30;

constexpr int kGuesses = 10;
constexpr double kMostBytes = 1e15;  // limit of a storage: more than any device has

/// A number of samples for which the graph was rewritten.
struct Try {
  std::int64_t batch = 0;           // 0: none yet
  std::vector<std::int64_t> bytes;  // sizes of the storages
  PredictedMemory memory;
};

/// Bytes of each storage on the line through two tries.
std::vector<std::int64_t> bytes_on_lines(const Try& a, const Try& b, std::int64_t batch) {
  const double steps =
      static_cast<double>(batch - a.batch) / static_cast<double>(b.batch - a.batch);
  std::vector<std::int64_t> bytes(a.bytes.size());
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const auto of_a = static_cast<double>(a.bytes[i]), of_b = static_cast<double>(b.bytes[i]);
    bytes[i] = std::llround(std::clamp(of_a + (of_b - of_a) * steps, 0.0, kMostBytes));
  }
  return bytes;
}

/// The size of a storage is a number of bytes per sample plus a constant, except for padding. So
/// two rewrites give the sizes for all batches, and the allocator's rules are applied to their
/// steps without a rewrite. Rewrites check both sides of the edge found this way; if they find it
/// elsewhere, the last one is a point of new lines.
class Search {
 public:
  Search(const ExecutionGraph& graph, const Gpu& gpu, bool expandable_segments,
         const ZeroSharding& zero)
      : graph_(graph), gpu_(gpu), expandable_segments_(expandable_segments), zero_(zero) {}

  Result<LargestBatch> run() {
    PERFMODEL_TRY(given, batch_size(graph_));
    PERFMODEL_TRY_TO(try_batch(*given));
    first_ = last_;
    PERFMODEL_TRY_TO(try_batch(2 * *given));
    while (lacks_.batch == 0 || lacks_.batch - fits_.batch > 1) {
      stop_point();
      if (fits_.batch >= kMostSamples) {
        return decline("expected a batch that does not fit, found that 2^30 samples still do");
      }
      PERFMODEL_TRY_TO(try_batch(next()));
    }
    return LargestBatch{
        .batch = fits_.batch, .memory = fits_.memory, .next = lacks_.memory, .rewrites = rewrites_};
  }

 private:
  Result<void> try_batch(std::int64_t batch) {
    PERFMODEL_TRY(resized, set_batch_size(graph_, {.batch = batch}));
    ++rewrites_;
    plan_ = memory_plan(*resized);
    share_ = rank_share(zero_, plan_, *resized);
    last_ = {.batch = batch,
             .bytes = rank_bytes(plan_, *resized, share_),
             .memory = step_memory(plan_, *resized, share_, &gpu_, expandable_segments_)};
    const bool fits = last_.memory.fits();
    if (fits && batch > fits_.batch) fits_ = last_;
    if (!fits && (lacks_.batch == 0 || batch < lacks_.batch)) lacks_ = last_;
    return {};
  }

  /// Between the most samples that fit and the fewest that do not.
  std::int64_t next() const {
    const std::int64_t end = lacks_.batch ? lacks_.batch : kMostSamples + 1;
    const bool has_lines = first_.bytes.size() == last_.bytes.size() && rewrites_ < kGuesses;
    if (has_lines) return std::max(edge_on_lines(fits_.batch, end), fits_.batch + 1);
    return lacks_.batch ? fits_.batch + (end - fits_.batch) / 2 : 2 * fits_.batch;
  }
  /// The last of some that fit, of `fits`, which do, to `lacks`, which do not.
  std::int64_t edge_on_lines(std::int64_t fits, std::int64_t lacks) const {
    while (lacks - fits > 1) {
      const std::int64_t batch = fits + (lacks - fits) / 2;
      const bool here = step_fits(plan_, bytes_on_lines(first_, last_, batch), share_, gpu_,
                                  expandable_segments_);
      (here ? fits : lacks) = batch;
    }
    return fits;
  }

  const ExecutionGraph& graph_;
  const Gpu& gpu_;
  const bool expandable_segments_;
  const ZeroSharding& zero_;
  MemoryPlan plan_;   // plan of the last try
  RankShare share_;   // the same
  Try first_, last_;  // in the order of the tries
  Try fits_, lacks_;  // the largest batch that fits, the smallest that does not
  int rewrites_ = 0;
};

}  // namespace

double bytes_per_sample(const ExecutionGraph& graph, const ExecutionGraph& twice,
                        std::int64_t batch) {
  const auto in_use = [](const ExecutionGraph& of) {
    const MemoryPlan plan = memory_plan(of);
    return graph_memory(plan, storage_bytes(plan, of)).peak_allocated_bytes;
  };
  return (in_use(twice) - in_use(graph)) / static_cast<double>(batch);
}

Result<double> bytes_per_sample(const ExecutionGraph& graph, std::int64_t batch) {
  PERFMODEL_TRY(twice, set_batch_size(graph, {.batch = 2 * batch}));
  return bytes_per_sample(graph, *twice, batch);
}

Result<LargestBatch> largest_batch(const ExecutionGraph& graph, const Gpu& gpu,
                                   bool expandable_segments, const ZeroSharding& zero) {
  return Search(graph, gpu, expandable_segments, zero).run();
}

}  // namespace perfmodel
