#include <nlohmann/json.hpp>

#include "analyze/rules.hpp"

namespace perfmodel::findings {
namespace far_below_roofline {
namespace {

// Our thresholds: nine of ten measured kernels of each family reach more than this if they are
// large enough (docs/accuracy.md), and low-parallelism reports kernels below 5 %.
constexpr double kLeastShare = 0.02, kMostReached = 0.3, kLeastReached = 0.05;
constexpr double kReachable = 0.5;
constexpr double kLeastRooflineUs = 5;  // less is latency, not the kernel's doing

// Place of the first input that is no dense block in row-major order; as PyTorch counts strides.
std::optional<std::size_t> strided_input(std::string_view dims_text,
                                         std::string_view strides_text) {
  const auto dims = nlohmann::json::parse(dims_text, nullptr, /*allow_exceptions=*/false);
  const auto strides = nlohmann::json::parse(strides_text, nullptr, false);
  if (!dims.is_array() || !strides.is_array() || dims.size() != strides.size()) return {};
  for (std::size_t i = 0; i < dims.size(); ++i) {
    const auto &shape = dims[i], &stride = strides[i];
    if (!shape.is_array() || !stride.is_array() || shape.size() != stride.size()) continue;
    std::int64_t dense = 1;
    bool is_dense = true;
    for (std::size_t axis = shape.size(); axis-- > 0;) {
      if (!shape[axis].is_number_integer() || !stride[axis].is_number_integer()) break;
      const auto extent = shape[axis].get<std::int64_t>();
      is_dense &= extent == 1 || stride[axis].get<std::int64_t>() == dense;
      dense *= extent;
    }
    if (!is_dense) return i;
  }
  return {};
}

// Says whether the layout of its inputs is a cause.
std::string layout_of(const StepFacts& step, const KernelFact& kernel) {
  if (kernel.op >= 0) {
    const OpFact& op = step.ops[kernel.op];
    if (const auto input = strided_input(op.shapes, op.strides)) {
      return fmt::format("; input {} is strided", *input + 1);
    }
  }
  if (!kernel.work) return "";
  if (const auto* rows = std::get_if<RowShape>(&kernel.work->shape); rows && rows->is_strided) {
    return "; it reduces an outer axis";
  }
  const Layout layout = kernel.work->layout;
  if (layout == Layout::kContiguous || layout == Layout::kGenerated) return "";
  return fmt::format("; its tensors' layout: {}", to_string(layout));
}

void find_far_below_roofline(const StepFacts& step, const Gpu*, std::vector<Suspicion>& found) {
  const auto with_roofline = [](const KernelFact& kernel) {
    return kernel.kind == DeviceKind::kKernel && kernel.roofline_us &&
           *kernel.roofline_us >= kLeastRooflineUs && kernel.family != KernelFamily::kRecurrent;
  };
  for (const KernelGroup& group : groups_of(step, with_roofline)) {
    if (group.time_us < kLeastShare * step.span_us) break;
    double least = 0;
    for (const std::size_t i : group.kernels) least += *step.kernels[i].roofline_us;
    const double reached = least / group.time_us;
    if (reached >= kMostReached) continue;
    // The same kernels are found by low-parallelism.
    if (reached < kLeastReached && group.time_us >= 0.05 * step.span_us) continue;
    const KernelFact& first = step.kernels[group.kernels.front()];
    Suspicion made{
        .title = fmt::format("{} reaches {:.0f} % of its roofline{}", short_name(first.name),
                             100 * reached, layout_of(step, first)),
        .where = step.path(first.op),
        .share_us = group.time_us,
        .confidence = Confidence::kMedium,
        .advice =
            "Lay its inputs out as the kernel reads them (contiguous, "
            "channels_last), or pick another kernel: a counter profile of this op "
            "tells what stalls it"};
    for (const std::size_t i : group.kernels) {
      const KernelFact& kernel = step.kernels[i];
      made.repair.kernel_us[i] = std::min(kernel.time_us, *kernel.roofline_us / kReachable);
    }
    found.push_back(std::move(made));
  }
}

}  // namespace
}  // namespace far_below_roofline

const Rule kFarBelowRoofline = {
    {"far-below-roofline",
     "kernels of one name take 2 % of the step and reach less than 30 % of their roofline"},
    far_below_roofline::find_far_below_roofline};

}  // namespace perfmodel::findings
