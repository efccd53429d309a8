#include "analyze/rules.hpp"

namespace perfmodel::findings {
namespace recomputation {
namespace {

constexpr double kLeastShare = 0.05;
constexpr double kRoomy = 0.6;  // share of the memory: then some activations can be kept

// Forward work that a checkpoint's backward pass does again.
bool is_recomputed(const StepFacts& step, std::int32_t op) {
  for (; op >= 0; op = step.ops[op].parent) {
    const std::string_view name = step.ops[op].name;
    if (name.starts_with("autograd::engine::evaluate_function") &&
        name.find("CheckpointFunctionBackward") == std::string_view::npos) {
      return false;
    }
    if (name == "CheckpointFunctionBackward" || name.find("recompute") != std::string_view::npos) {
      return true;
    }
  }
  return false;
}

void find_recomputation(const StepFacts& step, const Gpu*, std::vector<Suspicion>& found) {
  Suspicion made;
  for (std::size_t i = 0; i < step.kernels.size(); ++i) {
    const KernelFact& kernel = step.kernels[i];
    if (!is_recomputed(step, kernel.op)) continue;
    made.repair.remove_kernel(i);
    made.share_us += kernel.time_us;
    const std::int32_t op = kernel.op;
    if (op >= 0 && !step.ops[op].is_label) {
      made.repair.host_scale[op] = 0;
    }
    if (made.where.empty()) made.where = step.path(op);
  }
  if (made.share_us < kLeastShare * step.span_us) return;
  std::string room = "the input does not tell how much memory is free";
  made.confidence = Confidence::kLow;
  if (step.peak_memory_bytes && step.device_memory_bytes) {
    const double used = *step.peak_memory_bytes / *step.device_memory_bytes;
    if (used > kRoomy) return;  // it is needed
    room = fmt::format("{:.0f} % of the memory is free", 100 * (1 - used));
    made.confidence = Confidence::kHigh;
  }
  made.title = fmt::format("Checkpoints recompute {} of the step; {}",
                           percent_of(made.share_us, step), room);
  made.advice =
      "Checkpoint fewer layers, or only what is cheap to recompute (`memory` tells what "
      "fits)";
  found.push_back(std::move(made));
}

}  // namespace
}  // namespace recomputation

const Rule kRecomputation = {
    {"recomputation",
     "checkpoints recompute 5 % of the step while 40 % of the memory is free, or "
     "nothing tells"},
    recomputation::find_recomputation};

}  // namespace perfmodel::findings
