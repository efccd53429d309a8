#include <cmath>

#include "analyze/rules.hpp"

namespace perfmodel::findings {
namespace small_buckets {
namespace {

// PyTorch's DDP fills buckets of 25 MiB; below 1 MiB (its first bucket) latency takes most of a
// ring all-reduce (NCCL's tuning tables).
constexpr double kBucketBytes = 25 * 1024.0 * 1024, kSmallBytes = 1024 * 1024;
constexpr std::size_t kLeastCount = 8;  // per step
constexpr double kLeastShare = 0.02;

bool reduces(std::string_view name) {
  for (const std::string_view part :
       {"AllReduce", "all_reduce", "allreduce", "ReduceScatter", "reduce_scatter"}) {
    if (name.find(part) != std::string_view::npos) return true;
  }
  return false;
}

void find_small_buckets(const StepFacts& step, const Gpu*, std::vector<Suspicion>& found) {
  std::vector<std::size_t> small;
  double bytes = 0, shortest = 0;
  Suspicion made;
  for (std::size_t i = 0; i < step.kernels.size(); ++i) {
    const KernelFact& kernel = step.kernels[i];
    if (kernel.kind != DeviceKind::kCollective || !reduces(kernel.name)) continue;
    if (kernel.copied_bytes <= 0 || kernel.copied_bytes >= kSmallBytes) continue;
    shortest = small.empty() ? kernel.time_us : std::min(shortest, kernel.time_us);
    small.push_back(i);
    bytes += kernel.copied_bytes;
    made.share_us += kernel.time_us + kernel.launch_us;
  }
  if (small.size() < kLeastCount * step.steps || made.share_us < kLeastShare * step.span_us) return;
  // One per bucket stays, with the time that the bytes of all take beyond the latency.
  const auto steps = static_cast<double>(step.steps);
  const double buckets = steps * std::ceil(bytes / steps / kBucketBytes);
  const auto kept = static_cast<std::size_t>(buckets);
  double moving = 0;
  for (const std::size_t i : small) moving += step.kernels[i].time_us - shortest;
  const std::size_t every = small.size() / kept;
  std::size_t left = kept;
  // The last one of each bucket: it cannot begin before all of its gradients are there.
  for (std::size_t place = 0; place < small.size(); ++place) {
    if ((place + 1) % every == 0 && left > 0) {
      made.repair.kernel_us[small[place]] = shortest + moving / buckets;
      --left;
    } else {
      made.repair.remove_kernel(small[place]);
    }
  }
  made.title = fmt::format(
      "{:.0f} reductions of {:.0f} KiB on average per step: latency takes most "
      "of them",
      static_cast<double>(small.size()) / steps, bytes / static_cast<double>(small.size()) / 1024);
  made.where = step.path(step.kernels[small.front()].op);
  made.confidence = Confidence::kMedium;
  made.advice =
      "Larger buckets: bucket_cap_mb of DistributedDataParallel, or one flat buffer of gradients";
  found.push_back(std::move(made));
}

}  // namespace
}  // namespace small_buckets

const Rule kSmallBuckets = {
    {"small-buckets", "8 reductions of gradients below 1 MiB per step take 2 % of it"},
    small_buckets::find_small_buckets};

}  // namespace perfmodel::findings
