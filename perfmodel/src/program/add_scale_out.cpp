#include "add_scale_out.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/size_limits.hpp"
#include "fsdp_program.hpp"
#include "given_times.hpp"
#include "perfmodel/graph/rewrites/memory.hpp"
#include "perfmodel/predictors/detail/collective_model.hpp"
#include "step/autograd_names.hpp"
#include "step_gradients.hpp"

namespace perfmodel {
namespace {

Result<void> check(const ScaleOut& how) {
  if (how.world < 1) {
    return decline(fmt::format("expected at least 1 rank, found {}", how.world));
  }
  if (how.world > kMostJobRanks) {
    return decline(fmt::format("expected at most {} ranks, found {}", kMostJobRanks, how.world));
  }
  if (!(how.interference >= 1 && how.interference < std::numeric_limits<double>::infinity())) {
    return decline(
        fmt::format("expected an interference of at least 1, found {}", how.interference));
  }
  return {};
}

// Recorded collectives stay in place; the group has another size. Traced times and times of nodes
// stay.
void widen_collectives(const ExecutionGraph& graph, std::int64_t world, LoweredProgram& lowered,
                       ScaledOut& made) {
  HostProgram& program = lowered.program;
  for (const Instruction& at : program.instructions) {
    const Launch* launch = collective_of(at);
    if (!launch) continue;
    ++made.collectives;
    KernelQuestion& question = lowered.questions[launch->kernel];
    const std::int32_t own_work = program.collective(*launch).work;
    if (question.traced || own_work < 0) continue;
    if (lowered.nodes_say_times && giver_of_time(graph, question.node) >= 0) continue;
    KernelWork& work = program.comm_works[own_work];
    if (auto* shape = std::get_if<CollectiveShape>(&work.shape)) {
      shape->world_size = world;
      shape->ranks.clear();
    }
    question.work = work;
    question.of_job = true;
  }
  made.collectives /= program.steps.size();
  made.own_collectives = true;
}

Result<void> add_fsdp(const ExecutionGraph& graph, const Gpu& gpu, const OverheadTable& table,
                      const ScaleOut& how, LoweredProgram& lowered, ScaledOut& made) {
  if (const std::int64_t passes = accumulated_passes(graph); passes > 1) {
    return decline(
        fmt::format("fsdp: expected one backward pass per step, found gradients of {}", passes));
  }
  const std::size_t steps = lowered.program.steps.size();
  AddedOps ops(gpu, table, lowered);
  for (const auto& gradients : step_gradients(graph, lowered.program)) {
    if (gradients.empty()) {
      return decline(fmt::format("expected gradients to reduce (ops \"{}\"), found none in {}",
                                 kAccumulate, graph.source));
    }
    for (const StepGradient& gradient : gradients) made.parameter_bytes += gradient.bytes;
    PERFMODEL_TRY(units, fsdp_units(gradients, how.fsdp_unit_bytes, graph.source));
    const double largest = std::ranges::max(*units, {}, &FsdpUnit::bytes).bytes;
    made.gathered_bytes = std::max(made.gathered_bytes, gathered_at_once(largest, how));
    add_fsdp_step(gradients, std::move(*units), how, ops);
    shard_optimizer(gradients.back().item, how.world, lowered);
  }
  ops.splice();
  made.parameter_bytes /= static_cast<double>(steps);
  made.collectives = ops.collectives() / steps;
  return {};
}

}  // namespace

std::string_view to_string(ParallelStrategy strategy) {
  return strategy == ParallelStrategy::kDdp ? "ddp" : "fsdp";
}

Result<void> add_scale_out(const ExecutionGraph& graph, const Gpu& gpu, const OverheadTable& table,
                           const ScaleOut& how, bool reduces_gradients, LoweredProgram& lowered) {
  PERFMODEL_TRY_TO(check(how));
  Topology topology = how.topology ? *how.topology : topology_for(gpu);
  PERFMODEL_TRY_TO(check_fits(topology, how.world));
  ScaledOut made{.strategy = how.strategy, .world = how.world, .network = topology.title};
  made.nodes = static_cast<int>((how.world + topology.gpus_per_node - 1) / topology.gpus_per_node);
  lowered.job_collectives =
      make_collective_model(std::move(topology), {.interference = how.interference});
  const bool fsdp = how.strategy == ParallelStrategy::kFsdp;
  if (reduces_gradients && fsdp) {
    return decline("expected a graph without collectives for strategy fsdp, found some in " +
                   graph.source);
  }
  if (reduces_gradients) {
    widen_collectives(graph, how.world, lowered, made);
  } else if (fsdp && how.world > 1) {
    auto added = add_fsdp(graph, gpu, table, how, lowered, made);
    if (!added) return added;
  }
  lowered.program.scaled_out = made;
  return {};
}

}  // namespace perfmodel
