#include "sharded_step.hpp"

#include <fmt/format.h>

#include "step_passes.hpp"

namespace perfmodel {
namespace {

using TaskId = TaskGraph::TaskId;

TaskId add_unit_traffic(LayoutStep& step, bool gathers, const ShardedWork& sharded,
                        const ShardedWork::Unit& unit, const Tasks& after) {
  const double us = gathers ? unit.times.all_gather_us : unit.times.reduce_scatter_us;
  return step.tasks.add_collective(
      0, step.tasks.name(gathers ? "gather parameters" : "scatter gradients"),
      {.kind = gathers ? ChakraCollective::kAllGather : ChakraCollective::kReduceScatter,
       .group = RankGroup::kShards,
       .ranks = sharded.shards,
       .bytes = gathers ? unit.gather_bytes : unit.scatter_bytes},
      us, after);
}

struct UnitStretches {
  const ShardedWork::Unit* unit = nullptr;
  std::vector<Stretch> forward, backward;
};

// The order of `sharded_pass`; without overlap everything is one chain.
void sharded_microbatch(LayoutStep& step, const ShardedWork& sharded, const UnitStretches* units,
                        std::int64_t microbatch) {
  const auto count = static_cast<std::size_t>(sharded.layers) + 2;
  const auto unit = [&](std::size_t i) -> const UnitStretches& {
    return units[i == 0 ? 0 : i + 1 == count ? 2 : 1];
  };
  const bool overlaps = step.question.framework->overlaps_gathers && sharded.shards > 1;
  const Tasks begin = step.fronts[0];
  Tasks compute = begin, traffic = begin;
  std::vector<Tasks> forward_ends(count);
  std::vector<Tasks> gathered(count);
  const auto move_unit = [&](bool gathers, std::size_t i, const Tasks& after) {
    if (sharded.shards == 1) return after;
    Tasks all = overlaps ? after : compute;
    all.insert(all.end(), traffic.begin(), traffic.end());
    traffic = {add_unit_traffic(step, gathers, sharded, *unit(i).unit, all)};
    if (!overlaps) compute = traffic;
    return traffic;
  };
  const auto run_unit = [&](std::size_t i, bool backward, const Tasks& ready) {
    Tasks front = compute;
    front.insert(front.end(), ready.begin(), ready.end());
    const PartWork& parts = unit(i).unit->parts;
    compute =
        add_pass(step, 0, backward ? unit(i).backward : unit(i).forward,
                 (backward ? parts.backward : parts.forward).host_us,
                 fmt::format("{} {}, unit {}", backward ? "backward" : "forward", microbatch, i),
                 front, front, {})
            .ends();
  };
  const auto inflight = static_cast<std::size_t>(sharded.options.max_inflight_all_gathers);
  for (std::size_t i = 0; i < count; ++i) {
    const Tasks ready = move_unit(true, i, i >= inflight ? forward_ends[i - inflight] : begin);
    run_unit(i, false, ready);
    forward_ends[i] = compute;
  }
  const auto gather_again = [&](std::size_t i) {
    const bool holds =
        unit(i).unit->times.keeps_params || (sharded.options.keep_last_unit && i + 1 == count);
    if (!holds) gathered[i] = move_unit(true, i, compute);
  };
  for (std::size_t i = count; i-- > 0;) {
    if (i > 0) gather_again(i - 1);
    run_unit(i, true, gathered[i]);
    move_unit(false, i, compute);
  }
  Tasks ends = compute;
  ends.insert(ends.end(), traffic.begin(), traffic.end());
  if (sharded.slowed_us > 0) {
    ends = {step.tasks.add_kernels(0, step.tasks.name("kernels slower beside collectives"),
                                   sharded.slowed_us, ends)};
  }
  if (sharded.late_host_us > 0) {
    ends = {step.tasks.add_host(0, step.tasks.name("host of the microbatch"), sharded.late_host_us,
                                ends)};
  }
  step.fronts[0] = ends;
}

}  // namespace

void add_sharded_step(LayoutStep& step, const ShardedWork& sharded) {
  UnitStretches units[3] = {
      {&sharded.first, {}, {}}, {&sharded.layer, {}, {}}, {&sharded.last, {}, {}}};
  append_part(step, units[0].forward, step.work.embedding.forward, "embedding", "forward");
  append_part(step, units[0].backward, step.work.embedding.backward, "embedding", "backward");
  append_part(step, units[1].forward, step.work.layer.forward, "layer", "forward");
  append_part(step, units[1].backward, step.work.layer.backward, "layer", "backward");
  append_part(step, units[2].forward, step.work.head.forward, "output layer", "forward");
  append_part(step, units[2].forward, step.work.loss.forward, "loss", "forward");
  append_part(step, units[2].backward, step.work.loss.backward, "loss", "backward");
  append_part(step, units[2].backward, step.work.head.backward, "output layer", "backward");
  for (std::int64_t m = 0; m < step.microbatches(); ++m) {
    sharded_microbatch(step, sharded, units, m);
  }
  if (sharded.replicas_us <= 0) return;
  step.fronts[0] = {step.tasks.add_collective(0, step.tasks.name("gradients of the copies"),
                                              {.kind = ChakraCollective::kAllReduce,
                                               .group = RankGroup::kReplicas,
                                               .ranks = step.layout.dp / sharded.shards,
                                               .bytes = sharded.replicas_bytes},
                                              sharded.replicas_us, step.fronts[0])};
}

}  // namespace perfmodel
