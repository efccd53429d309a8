#include "sharded_timeline.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "durations.hpp"
#include "perfmodel/detail/schedule.hpp"

namespace perfmodel::parallel {
namespace {

using TaskId = TaskGraph::TaskId;
using Kind = FsdpEvent::Kind;

Result<void> check(std::span<const FsdpUnit> units, const FsdpOptions& options) {
  if (units.empty())
    return fail(ErrorCode::kImpossible, "expected at least one FSDP unit, found 0");
  if (options.max_inflight_all_gathers < 0) {
    return fail(ErrorCode::kImpossible, "expected max_inflight_all_gathers >= 0, found " +
                                            std::to_string(options.max_inflight_all_gathers));
  }
  for (std::size_t i = 0; i < units.size(); ++i) {
    const auto unit = " of unit " + std::to_string(i + 1);
    const FsdpUnit& u = units[i];
    if (!is_duration(u.all_gather_us)) return not_a_duration("all-gather" + unit, u.all_gather_us);
    if (!is_duration(u.reduce_scatter_us)) {
      return not_a_duration("reduce-scatter" + unit, u.reduce_scatter_us);
    }
    if (!is_duration(u.forward_us)) return not_a_duration("forward" + unit, u.forward_us);
    if (!is_duration(u.backward_us)) return not_a_duration("backward" + unit, u.backward_us);
  }
  return {};
}

}  // namespace

Result<FsdpTimeline> fsdp_timeline(std::span<const FsdpUnit> units, const FsdpOptions& options) {
  if (auto ok = check(units, options); !ok) return Unexpected(ok.error());
  const std::size_t count = units.size();
  const auto inflight = static_cast<std::size_t>(options.max_inflight_all_gathers);
  enum Lane : std::int32_t { kCompute, kComm };
  TaskGraph graph;
  graph.reserve(5 * count);
  FsdpTimeline timeline;
  timeline.events.reserve(5 * count);
  // Tasks and events have the same index.
  const auto add = [&](Kind kind, std::size_t unit, bool in_backward, TaskId after, double us) {
    const bool is_compute = kind == Kind::kForward || kind == Kind::kBackward;
    const TaskId task = graph.add_task(is_compute ? kCompute : kComm, us);
    graph.add_edge(after, task);
    if (is_compute) timeline.compute_us += us;
    timeline.events.push_back(
        {.kind = kind, .unit = static_cast<std::int32_t>(unit), .in_backward = in_backward});
    return task;
  };

  std::vector<TaskId> forward(count), gather(count, -1);
  for (std::size_t i = 0; i < count; ++i) {
    const TaskId room = inflight > 0 && i >= inflight ? forward[i - inflight] : -1;
    const TaskId gathered = add(Kind::kAllGather, i, false, room, units[i].all_gather_us);
    forward[i] = add(Kind::kForward, i, false, gathered, units[i].forward_us);
  }

  const auto needs_gather = [&](std::size_t i) {
    return options.reshard_after_forward && !units[i].keeps_params &&
           !(options.keep_last_unit && i + 1 == count);
  };
  const auto issue_gather = [&](std::size_t i, TaskId after) {
    if (needs_gather(i)) gather[i] = add(Kind::kAllGather, i, true, after, units[i].all_gather_us);
  };
  TaskId backward = -1;
  issue_gather(count - 1, forward[count - 1]);
  for (std::size_t i = count; i-- > 0;) {
    if (options.backward_prefetch == BackwardPrefetch::kPre && i > 0) {
      issue_gather(i - 1, graph.last_on_lane(kCompute));
    }
    backward = add(Kind::kBackward, i, true, gather[i], units[i].backward_us);
    const TaskId scatter = add(Kind::kReduceScatter, i, true, backward, units[i].reduce_scatter_us);
    if (options.backward_prefetch != BackwardPrefetch::kPre && i > 0) issue_gather(i - 1, scatter);
  }

  const auto schedule = run_schedule(graph);
  if (!schedule) return Unexpected(schedule.error());
  for (std::size_t i = 0; i < timeline.events.size(); ++i) {
    timeline.events[i].start_us = schedule->start_us[i];
    timeline.events[i].end_us = schedule->end_us[i];
  }
  timeline.forward_end_us = schedule->end_us[static_cast<std::size_t>(forward[count - 1])];
  timeline.backward_compute_end_us = schedule->end_us[static_cast<std::size_t>(backward)];
  timeline.last_reduce_scatter_end_us = schedule->end_us.back();
  timeline.exposed_total_us = timeline.last_reduce_scatter_end_us - timeline.compute_us;
  return timeline;
}

ShardedPass sharded_pass(const FsdpUnit& first, const FsdpUnit& layer, const FsdpUnit& last,
                         std::size_t layers, const FsdpOptions& options) {
  const std::size_t count = layers + 2;
  const auto unit = [&](std::size_t i) -> const FsdpUnit& {
    return i == 0 ? first : i + 1 == count ? last : layer;
  };
  const auto inflight = static_cast<std::size_t>(options.max_inflight_all_gathers);
  thread_local std::vector<double> forward_end, gathered;
  forward_end.resize(count);
  gathered.assign(count, 0);
  double compute = 0, comm = 0;  // when each stream is free
  ShardedPass pass;
  for (std::size_t i = 0; i < count; ++i) {
    const double room = inflight > 0 && i >= inflight ? forward_end[i - inflight] : 0;
    comm = std::max(comm, room) + unit(i).all_gather_us;
    pass.comm_us += unit(i).all_gather_us + unit(i).reduce_scatter_us;
    compute = std::max(compute, comm) + unit(i).forward_us;
    forward_end[i] = compute;
    pass.compute_us += unit(i).forward_us + unit(i).backward_us;
  }
  const auto gather = [&](std::size_t i, double after) {
    const bool holds = !options.reshard_after_forward || unit(i).keeps_params ||
                       (options.keep_last_unit && i + 1 == count);
    if (holds) return;
    comm = std::max(comm, after) + unit(i).all_gather_us;
    pass.comm_us += unit(i).all_gather_us;
    gathered[i] = comm;
  };
  gather(count - 1, compute);
  for (std::size_t i = count; i-- > 0;) {
    const bool ahead = options.backward_prefetch == BackwardPrefetch::kPre;
    if (ahead && i > 0) gather(i - 1, compute);
    compute = std::max(compute, gathered[i]) + unit(i).backward_us;
    comm = std::max(comm, compute) + unit(i).reduce_scatter_us;
    if (!ahead && i > 0) gather(i - 1, comm);
  }
  pass.end_us = comm;
  return pass;
}

}  // namespace perfmodel::parallel
