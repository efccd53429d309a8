#include "analyze/rules.hpp"

namespace perfmodel::findings {
namespace low_parallelism {
namespace {

// DeepContext (ASPLOS 2025) has the rule; it fires at these shares.
constexpr double kLeastShare = 0.05;  // share of the step
constexpr double kMostReached = 0.05;
// Share that a good kernel of its kind reaches, also assumed for a repaired one.
constexpr double kReachable = 0.5;
constexpr double kLeastKernelUs = 2;

// Reached share of the roofline, from shapes; without shapes, of the SMs, from Kineto's blocks per
// SM.
std::optional<double> reached_by(const StepFacts& step, const KernelGroup& group) {
  double least = 0, filled = 0;
  bool by_shape = true, by_blocks = true;
  for (const std::size_t i : group.kernels) {
    const KernelFact& kernel = step.kernels[i];
    by_shape &= kernel.roofline_us.has_value();
    by_blocks &= kernel.blocks_per_sm >= 0;
    least += kernel.roofline_us.value_or(0);
    filled += std::min(1.0, kernel.blocks_per_sm) * kernel.time_us;
  }
  if (by_shape) return least / group.time_us;
  if (by_blocks) return filled / group.time_us;
  return std::nullopt;
}

void find_low_parallelism(const StepFacts& step, const Gpu*, std::vector<Suspicion>& found) {
  const auto kernels = [](const KernelFact& kernel) {
    // The steps of a recurrence follow each other: its roofline is out of reach.
    return kernel.kind == DeviceKind::kKernel && kernel.time_us > 0 &&
           kernel.family != KernelFamily::kRecurrent;
  };
  for (const KernelGroup& group : groups_of(step, kernels)) {
    if (group.time_us < kLeastShare * step.span_us) break;
    const double mean = group.time_us / static_cast<double>(group.kernels.size());
    const auto reached = reached_by(step, group);
    // Kernels of a few microseconds are small, which is another rule's matter.
    if (!reached || *reached >= kMostReached || mean < 10 * kLeastKernelUs) continue;
    const KernelFact& first = step.kernels[group.kernels.front()];
    const bool by_shape = first.roofline_us.has_value();
    Suspicion made{.title = fmt::format("{} takes {} of the step and {} {:.1f} % of {}",
                                        short_name(first.name), percent_of(group.time_us, step),
                                        by_shape ? "reaches" : "fills", 100 * *reached,
                                        by_shape ? "its roofline" : "the GPU's SMs"),
                   .where = step.path(first.op),
                   .share_us = group.time_us,
                   .confidence = by_shape ? Confidence::kHigh : Confidence::kMedium,
                   .advice =
                       "Give it more blocks: another algorithm or launch shape, a split along the "
                       "reduced axis, or a larger batch for this op alone"};
    for (const std::size_t i : group.kernels) {
      const KernelFact& kernel = step.kernels[i];
      const double best = kernel.roofline_us ? *kernel.roofline_us / kReachable
                                             : kernel.time_us * kernel.blocks_per_sm / kReachable;
      made.repair.kernel_us[i] = std::min(kernel.time_us, std::max(kLeastKernelUs, best));
    }
    found.push_back(std::move(made));
  }
}

}  // namespace
}  // namespace low_parallelism

const Rule kLowParallelism = {
    {"low-parallelism",
     "kernels of one name take 5 % of the step and reach less than 5 % of their "
     "roofline, or fill less than 5 % of the SMs"},
    low_parallelism::find_low_parallelism};

}  // namespace perfmodel::findings
