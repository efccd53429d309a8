#include "fsdp_program.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace perfmodel {
namespace {

using Place = AddedOps::Place;

// PyTorch divides gradients by about the root of the world before the sum, by the rest after it.
std::int64_t pre_divide_factor(std::int64_t world) {
  std::int64_t factor = 1;
  while (world % factor == 0 && world / factor > factor) factor *= 2;
  return factor;
}

// Reads and writes the same number of bytes.
KernelWork copying(KernelFamily family, double bytes, DType dtype) {
  return {
      .family = family, .dtype = dtype, .bytes_read = Bytes{bytes}, .bytes_written = Bytes{bytes}};
}

KernelWork collective(const char* kind, double in, double out, DType dtype, std::int64_t world) {
  return {.family = KernelFamily::kCollective,
          .dtype = dtype,
          .bytes_read = Bytes{in},
          .bytes_written = Bytes{out},
          .shape = CollectiveShape{.kind = kind, .world_size = world}};
}

void add_gather(FsdpUnit& unit, std::int32_t like, const CollectiveLaunch& waiting,
                const ScaleOut& how, AddedOps& to) {
  Place& place = to.before(like);
  const double shard = unit.bytes / static_cast<double>(how.world);
  unit.gather = to.add_collective(
      like, "fsdp: all_gather", collective("all_gather", shard, unit.bytes, unit.dtype, how.world),
      waiting, place);
  to.add_host_ops(like, "fsdp: flat parameter", "aten::slice", 1, place);
  to.add_host_ops(like, "fsdp: flat parameter", "aten::view", 1, place);
}

// A gather only waits for the computation of the unit whose memory it takes. The first gather of a
// step, and so all later ones, reads the output of the last step's optimizer
// (FullyShardedDataParallel._root_pre_forward waits for the stream of computation).
void add_forward(std::vector<FsdpUnit>& units, const ScaleOut& how, AddedOps& to) {
  const std::int32_t in_flight = std::max(1, how.fsdp_gathers_in_flight);
  for (std::int32_t u = 0; u < static_cast<std::int32_t>(units.size()); ++u) {
    FsdpUnit& unit = units[u];
    const std::int32_t first = unit.forward_begin;
    add_gather(unit, first,
               {.waits_for_caller = u == 0, .after_mark = u >= in_flight ? u - in_flight : -1}, how,
               to);
    Place& begin = to.before(first);
    to.add_wait(first, unit.gather, begin);
    to.add_host_ops(first, "fsdp: split", "aten::split_with_sizes", 1, begin);
    to.add_host_ops(first, "fsdp: views", "aten::view", unit.parameters, begin);
    to.add_mark(unit.forward_end, u, to.after(unit.forward_end));
  }
}

// The backward op of its split makes the gradient of the flat parameter. Returns the number of the
// reduce-scatter.
std::int64_t add_reduction(const FsdpUnit& unit, const ScaleOut& how, AddedOps& to) {
  const std::int32_t last = unit.backward_end;
  Place& end = to.after(last);
  to.add_kernel(last, "fsdp: gradients to flat", "aten::cat",
                copying(KernelFamily::kConcat, unit.bytes, unit.dtype), end);
  if (pre_divide_factor(how.world) > 1) {
    to.add_kernel(last, "fsdp: pre-divide", "aten::div_",
                  copying(KernelFamily::kElementwise, unit.bytes, unit.dtype), end);
  }
  to.add_host_ops(last, "fsdp: chunk", "aten::chunk", 1, end);
  const double shard = unit.bytes / static_cast<double>(how.world);
  return to.add_collective(last, "fsdp: reduce_scatter",
                           collective("reduce_scatter", unit.bytes, shard, unit.dtype, how.world),
                           {}, end);
}

// The last unit still holds its parameters; each unit first lets the next one's gather go. Returns
// the numbers of the reduce-scatters.
std::vector<std::int64_t> add_backward(std::vector<FsdpUnit>& units, const ScaleOut& how,
                                       AddedOps& to) {
  std::vector<std::int64_t> reduced;
  const auto count = static_cast<std::int32_t>(units.size());
  const std::int32_t in_flight = std::max(1, how.fsdp_gathers_in_flight);
  for (std::int32_t u = count; u-- > 0;) {
    const FsdpUnit& unit = units[u];
    if (u > 0) {
      const std::int32_t freed = u - 1 + in_flight;
      add_gather(units[u - 1], unit.backward_begin,
                 {.waits_for_caller = false, .after_mark = freed < count ? count + freed : -1}, how,
                 to);
    }
    if (u + 1 < count)
      to.add_wait(unit.backward_begin, unit.gather, to.before(unit.backward_begin));
    to.add_mark(unit.backward_end, count + u, to.after(unit.backward_end));
    reduced.push_back(add_reduction(unit, how, to));
  }
  return reduced;
}

}  // namespace

Result<std::vector<FsdpUnit>> fsdp_units(std::vector<StepGradient> gradients, double unit_bytes,
                                         std::string_view source) {
  if (std::ranges::any_of(gradients, [](const auto& gradient) { return gradient.forward < 0; })) {
    return decline(
        "expected the forward op of every gradient for strategy fsdp, found none for one (sequence "
        "numbers are missing) in " +
        std::string(source));
  }
  std::ranges::stable_sort(gradients, {}, &StepGradient::forward);
  std::vector<FsdpUnit> units;
  for (const StepGradient& gradient : gradients) {
    if (units.empty() || units.back().bytes >= unit_bytes) units.emplace_back();
    FsdpUnit& unit = units.back();
    unit.bytes += gradient.bytes;
    ++unit.parameters;
    unit.dtype = gradient.dtype;
    unit.forward_begin = std::min(unit.forward_begin, gradient.forward);
    unit.forward_end = std::max(unit.forward_end, gradient.forward);
    unit.backward_begin = std::min(unit.backward_begin, gradient.producer);
    unit.backward_end = std::max(unit.backward_end, gradient.item);
  }
  return units;
}

void add_fsdp_step(std::span<const StepGradient> gradients, std::vector<FsdpUnit> units,
                   const ScaleOut& how, AddedOps& to) {
  add_forward(units, how, to);
  const std::int32_t last = gradients.back().item;
  const auto reduced = add_backward(units, how, to);
  for (std::int64_t sequence : reduced) to.add_wait(last, sequence, to.after(last));
  if (how.world / pre_divide_factor(how.world) <= 1) return;
  for (const FsdpUnit& unit : units) {
    to.add_kernel(last, "fsdp: post-divide", "aten::div_",
                  copying(KernelFamily::kElementwise, unit.bytes / static_cast<double>(how.world),
                          unit.dtype),
                  to.after(last));
  }
}

void shard_optimizer(std::int32_t last_gradient, std::int64_t world, LoweredProgram& lowered) {
  const HostProgram& program = lowered.program;
  const std::int32_t step = program.item(last_gradient).iteration;
  for (const Instruction& at : program.instructions) {
    const Launch* launch = launch_of(at);
    if (!launch || launch->is_collective() || at.item <= last_gradient) continue;
    const ProgramItem& item = program.item(at.item);
    const std::string& phase = program.phases[item.phase].label;
    if (item.iteration != step || phase.find("ptimizer") == std::string::npos) continue;
    lowered.questions[launch->kernel].share = 1 / static_cast<double>(world);
  }
}

}  // namespace perfmodel
