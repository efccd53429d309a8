#include "analyze/rules.hpp"

namespace perfmodel::findings {
namespace cpu_ops {
namespace {

constexpr double kLeastShare = 0.02;
constexpr double kLeastUs = 100;  // per op: any op costs the host this much

void find_cpu_ops(const StepFacts& step, const Gpu*, std::vector<Suspicion>& found) {
  std::vector<bool> launches(step.ops.size(), false), waits(step.ops.size(), false);
  const auto mark = [&](std::int32_t op, std::vector<bool>& marks) {
    for (; op >= 0; op = step.ops[op].parent) {
      marks[op] = true;
    }
  };
  for (const KernelFact& kernel : step.kernels) mark(kernel.op, launches);
  for (const AllocatorCall& call : step.allocator_calls) mark(call.op, waits);
  struct Place {
    std::vector<std::size_t> ops;
    double us = 0;
  };
  std::map<std::string, Place> places;
  for (std::size_t i = 0; i < step.ops.size(); ++i) {
    const OpFact& op = step.ops[i];
    if (op.is_label || launches[i] || waits[i] || op.host_us < kLeastUs) continue;
    Place& place = places[step.path(static_cast<std::int32_t>(i))];
    place.ops.push_back(i);
    place.us += op.host_us;
  }
  for (const auto& [path, place] : places) {
    if (place.us < kLeastShare * step.span_us) continue;
    const OpFact& op = step.ops[place.ops.front()];
    Suspicion made{
        .title =
            fmt::format("{} computes on the CPU for {} ({:.1f} times per step)",
                        short_name(op.name), per_step(place.us, step),
                        static_cast<double>(place.ops.size()) / static_cast<double>(step.steps)),
        .where = path,
        .share_us = place.us,
        .confidence = Confidence::kHigh,
        .advice =
            "Move its tensors to the GPU, or the op into the data loader; the gain counts "
            "with an op that costs the host nothing"};
    for (const std::size_t i : place.ops) made.repair.host_scale[i] = 0;
    found.push_back(std::move(made));
  }
}

}  // namespace
}  // namespace cpu_ops

const Rule kCpuOps = {
    {"cpu-ops", "ops that give the GPU no work and take 100 us or more each, 2 % of the step"},
    cpu_ops::find_cpu_ops};

}  // namespace perfmodel::findings
