#include "analyze/rules.hpp"

namespace perfmodel::findings {
namespace layout_changes {
namespace {

constexpr double kLeastShare = 0.03;  // DeepContext: transposes and copies, 3 % of the iteration

bool changes_layout(const StepFacts& step, const KernelFact& kernel) {
  if (kernel.kind != DeviceKind::kKernel) return false;
  for (const std::string_view part : {"nchwToNhwc", "nhwcToNchw", "transpose", "Transpose",
                                      "batched_transpose", "SubTensorOpWithCastTensor"}) {
    if (kernel.name.find(part) != std::string_view::npos) return true;
  }
  if (kernel.family == KernelFamily::kTranspose) return true;
  for (std::int32_t op = kernel.op; op >= 0; op = step.ops[op].parent) {
    const std::string_view name = step.ops[op].name;
    if (name == "aten::contiguous" || name == "aten::clone") return true;
  }
  return false;
}

void find_layout_changes(const StepFacts& step, const Gpu*, std::vector<Suspicion>& found) {
  Suspicion made;
  std::map<std::string, double> places;
  const std::set<std::int32_t> convolutions = channels_first_convolutions(step);
  for (std::size_t i = 0; i < step.kernels.size(); ++i) {
    const KernelFact& kernel = step.kernels[i];
    // Rule channels-first reports the transposes of half-precision convolutions.
    if (!changes_layout(step, kernel) || convolutions.contains(kernel.op)) continue;
    made.repair.remove_kernel(i);
    made.share_us += kernel.time_us;
    places[step.path(kernel.op)] += kernel.time_us;
  }
  const auto steps = static_cast<double>(step.steps);
  const auto count = static_cast<double>(made.repair.launches.size());
  if (made.share_us < kLeastShare * step.span_us || count < 2 * steps) return;  // repeated ones
  const auto most = std::ranges::max_element(
      places, [](const auto& a, const auto& b) { return a.second < b.second; });
  made.title = fmt::format("{:.0f} kernels per step only change the layout of tensors ({})",
                           count / steps, percent_of(made.share_us, step));
  made.where = most->first;
  made.confidence = Confidence::kMedium;
  made.advice =
      "Keep one layout: model.to(memory_format=torch.channels_last) for convolutions, no "
      ".contiguous() between ops that take strides, weights stored as products read them";
  found.push_back(std::move(made));
}

}  // namespace
}  // namespace layout_changes

const Rule kLayoutChanges = {
    {"layout-changes",
     "two or more kernels per step that only transpose or copy tensors take 3 % of it"},
    layout_changes::find_layout_changes};

}  // namespace perfmodel::findings
