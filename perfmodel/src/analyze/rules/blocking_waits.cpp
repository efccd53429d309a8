#include "analyze/rules.hpp"

namespace perfmodel::findings {
namespace blocking_waits {
namespace {

// DeepContext: any synchronisation inside the iteration. Ours: 1 % of the step, less is noise.
constexpr double kLeastShare = 0.01;

bool reads_one_value(std::string_view op) {
  return op == "aten::item" || op == "aten::_local_scalar_dense" || op == "aten::is_nonzero" ||
         op == "aten::nonzero";
}

// The outermost of nested ops for the same thing: aten::item around _local_scalar_dense.
std::int32_t op_to_name(const StepFacts& step, std::int32_t op) {
  while (op >= 0) {
    const std::int32_t parent = step.ops[op].parent;
    if (parent < 0 || !reads_one_value(step.ops[parent].name)) break;
    op = parent;
  }
  return op;
}

// A value that stays on the GPU is not copied, and no op asks for it. nonzero() does more than
// that.
void leave_on_gpu(const StepFacts& step, const std::set<std::int32_t>& ops, Repair& repair) {
  repair.whole_ops = true;
  for (const std::int32_t op : ops) {
    for (std::int32_t at = op; at >= 0 && reads_one_value(step.ops[at].name);
         at = step.ops[at].parent) {
      if (step.ops[at].name != "aten::nonzero") repair.host_scale[at] = 0;
    }
  }
  for (std::size_t i = 0; i < step.kernels.size(); ++i) {
    if (repair.host_scale.contains(step.kernels[i].op)) repair.remove_kernel(i);
  }
}

void find_blocking_waits(const StepFacts& step, const Gpu*, std::vector<Suspicion>& found) {
  struct Place {
    std::vector<std::size_t> waits;
    std::set<std::int32_t> ops;
    double us = 0;
    bool reads = false;
  };
  std::map<std::pair<std::string, std::string_view>, Place> places;
  for (std::size_t i = 0; i < step.waits.size(); ++i) {
    const WaitFact& wait = step.waits[i];
    if (is_sparse_update(step, wait.op)) continue;  // rule sparse-optimizer-waits has them
    const std::int32_t op = op_to_name(step, wait.op);
    Place& place = places[{step.path(op), wait.call}];
    place.waits.push_back(i);
    place.ops.insert(wait.op);
    place.us += wait.wait_us;
    place.reads |= op >= 0 && reads_one_value(step.ops[op].name);
  }
  for (auto& [key, place] : places) {
    if (place.us < kLeastShare * step.span_us) continue;
    const double count = static_cast<double>(place.waits.size()) / static_cast<double>(step.steps);
    Suspicion made{
        .title = fmt::format("The host waits for the GPU in {} ({:.1f} times per step, {})",
                             key.second, count, per_step(place.us, step)),
        .where = key.first,
        .share_us = place.us,
        .confidence = Confidence::kHigh,
        .advice = place.reads
                      ? "Keep the value on the GPU (.item(), bool(tensor) and nonzero() wait for "
                        "all work before): log it every N steps, or copy it with non_blocking=True "
                        "and read it later"
                      : "Move the synchronisation out of the step, or copy with non_blocking=True "
                        "into pinned memory"};
    made.repair.waits.insert(place.waits.begin(), place.waits.end());
    if (place.reads) leave_on_gpu(step, place.ops, made.repair);
    found.push_back(std::move(made));
  }
}

}  // namespace
}  // namespace blocking_waits

const Rule kBlockingWaits = {
    {"blocking-waits", "synchronising calls, blocking copies and .item() wait for 1 % of the step"},
    blocking_waits::find_blocking_waits};

}  // namespace perfmodel::findings
