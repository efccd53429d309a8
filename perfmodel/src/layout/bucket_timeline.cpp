#include "bucket_timeline.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>

#include "core/gradient_buckets.hpp"
#include "durations.hpp"
#include "perfmodel/detail/schedule.hpp"

namespace perfmodel::parallel {
namespace {

std::vector<std::int32_t> ready_order(std::span<const Gradient> gradients) {
  std::vector<std::int32_t> order(gradients.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    const double left = gradients[static_cast<std::size_t>(a)].ready_us;
    const double right = gradients[static_cast<std::size_t>(b)].ready_us;
    return left != right ? left < right : a > b;
  });
  return order;
}

Result<void> check(std::span<const Gradient> gradients, const DdpOptions& options) {
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (!is_duration(gradients[i].bytes)) {
      return not_a_duration("bytes of gradient " + std::to_string(i), gradients[i].bytes);
    }
    if (!is_duration(gradients[i].ready_us)) {
      return not_a_duration("ready time of gradient " + std::to_string(i), gradients[i].ready_us);
    }
  }
  if (!(options.first_bucket_bytes >= 0)) {
    return not_a_duration("first bucket limit", options.first_bucket_bytes);
  }
  if (!(options.bucket_cap_bytes >= 0)) {
    return not_a_duration("bucket cap", options.bucket_cap_bytes);
  }
  return {};
}

std::vector<DdpBucket> assign(std::span<const Gradient> gradients, const DdpOptions& options,
                              std::span<const std::int32_t> order) {
  std::vector<BucketedGradient> ready;
  ready.reserve(order.size());
  for (const std::int32_t param : order) {
    const Gradient& gradient = gradients[static_cast<std::size_t>(param)];
    ready.push_back({gradient.bytes, gradient.group, gradient.sparse});
  }
  constexpr double kNoLimit = std::numeric_limits<double>::infinity();
  const double first =
      options.first_iteration_single_bucket ? kNoLimit : options.first_bucket_bytes;
  std::vector<DdpBucket> buckets;
  for (const auto& members : gradient_buckets(ready, first, options.bucket_cap_bytes)) {
    DdpBucket& bucket = buckets.emplace_back();
    for (const std::size_t position : members) {
      bucket.params.push_back(order[position]);
      bucket.bytes += ready[position].bytes;
    }
    bucket.ready_us = gradients[static_cast<std::size_t>(bucket.params.back())].ready_us;
  }
  return buckets;
}

}  // namespace

Result<std::vector<DdpBucket>> assign_ddp_buckets(std::span<const Gradient> gradients,
                                                  const DdpOptions& options) {
  if (auto ok = check(gradients, options); !ok) return Unexpected(ok.error());
  return assign(gradients, options, ready_order(gradients));
}

Result<DdpTimeline> ddp_timeline(std::span<const Gradient> gradients, const DdpOptions& options,
                                 const AllReduceCost& all_reduce_us) {
  if (auto ok = check(gradients, options); !ok) return Unexpected(ok.error());
  const std::vector<std::int32_t> order = ready_order(gradients);
  DdpTimeline timeline;
  timeline.buckets = assign(gradients, options, order);

  enum Lane : std::int32_t { kCompute, kComm };
  TaskGraph graph;
  graph.reserve(gradients.size() + timeline.buckets.size());
  std::vector<TaskGraph::TaskId> made_by(gradients.size());
  double now = 0;
  for (std::int32_t param : order) {
    const double ready = gradients[static_cast<std::size_t>(param)].ready_us;
    made_by[static_cast<std::size_t>(param)] = graph.add_task(kCompute, ready - now);
    now = ready;
  }
  std::vector<TaskGraph::TaskId> reductions;
  for (const DdpBucket& bucket : timeline.buckets) {
    const double cost = all_reduce_us(bucket.bytes);
    if (!is_duration(cost)) {
      return not_a_duration("all-reduce time of " + std::to_string(bucket.bytes) + " bytes", cost);
    }
    reductions.push_back(graph.add_task(kComm, cost));
    graph.add_edge(made_by[static_cast<std::size_t>(bucket.params.back())], reductions.back());
  }
  const auto schedule = run_schedule(graph);
  if (!schedule) return Unexpected(schedule.error());
  for (std::size_t i = 0; i < reductions.size(); ++i) {
    const auto task = static_cast<std::size_t>(reductions[i]);
    timeline.buckets[i].start_us = schedule->start_us[task];
    timeline.buckets[i].end_us = schedule->end_us[task];
  }
  timeline.backward_end_us = now;
  timeline.comm_end_us = timeline.buckets.empty() ? now : timeline.buckets.back().end_us;
  timeline.exposed_comm_us = timeline.comm_end_us - timeline.backward_end_us;
  return timeline;
}

}  // namespace perfmodel::parallel
