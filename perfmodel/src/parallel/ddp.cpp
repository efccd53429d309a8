#include "perfmodel/parallel/ddp.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <string>

#include "checks.hpp"
#include "perfmodel/schedule/schedule.hpp"

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
  constexpr double kNoLimit = std::numeric_limits<double>::infinity();
  struct Open {
    DdpBucket bucket;
    double limit = 0;
    std::size_t first = 0;  // position of the bucket's first gradient
  };
  std::map<std::int32_t, Open> open_of_group;
  std::vector<DdpBucket> closed;
  for (std::size_t position = 0; position < order.size(); ++position) {
    const std::int32_t param = order[position];
    const Gradient& gradient = gradients[static_cast<std::size_t>(param)];
    if (gradient.sparse) {
      closed.push_back({.params = {param}, .bytes = gradient.bytes, .ready_us = gradient.ready_us});
      continue;
    }
    const auto [entry, is_new] = open_of_group.try_emplace(gradient.group);
    Open& open = entry->second;
    if (is_new) {
      open.limit = options.first_iteration_single_bucket ? kNoLimit : options.first_bucket_bytes;
    }
    if (open.bucket.params.empty()) open.first = position;
    open.bucket.params.push_back(param);
    open.bucket.bytes += gradient.bytes;
    open.bucket.ready_us = gradient.ready_us;
    if (open.bucket.bytes < open.limit) continue;
    closed.push_back(std::move(open.bucket));
    open.bucket = {};
    open.limit = options.bucket_cap_bytes;
  }
  std::vector<Open*> tails;
  for (auto& [group, open] : open_of_group) {
    if (!open.bucket.params.empty()) tails.push_back(&open);
  }
  std::sort(tails.begin(), tails.end(),
            [](const Open* a, const Open* b) { return a->first < b->first; });
  for (Open* tail : tails) closed.push_back(std::move(tail->bucket));
  return closed;
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
