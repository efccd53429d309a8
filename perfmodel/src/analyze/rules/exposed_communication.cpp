#include "analyze/rules.hpp"
#include "perfmodel/detail/schedule.hpp"

namespace perfmodel::findings {
namespace exposed_communication {
namespace {

constexpr double kLeastShare = 0.05;  // share of the step; as TraceLens and HTA report it

void find_exposed_communication(const StepFacts& step, const Gpu*, std::vector<Suspicion>& found) {
  std::vector<std::pair<double, double>> all, other;
  Suspicion made;
  double longest = 0;
  std::string_view name;
  for (std::size_t i = 0; i < step.kernels.size(); ++i) {
    const KernelFact& kernel = step.kernels[i];
    const std::pair span(kernel.start_us, kernel.start_us + kernel.time_us);
    all.push_back(span);
    if (kernel.kind != DeviceKind::kCollective) {
      other.push_back(span);
      continue;
    }
    made.repair.kernel_us[i] = 0;
    if (kernel.time_us > longest) {
      longest = kernel.time_us;
      name = kernel.name;
      made.where = step.path(kernel.op);
    }
  }
  made.share_us = union_us(std::move(all)) - union_us(std::move(other));
  if (made.repair.kernel_us.empty() || made.share_us < kLeastShare * step.span_us) return;
  made.title = fmt::format(
      "Collectives run for {} per step while nothing else runs, the longest "
      "is {}",
      per_step(made.share_us, step), short_name(name));
  made.confidence = Confidence::kMedium;
  made.advice =
      "Overlap them with compute (DDP buckets, prefetch of FSDP, a pipelined all_to_all), send "
      "less, or use a faster link; the gain counts with collectives that take no time";
  found.push_back(std::move(made));
}

}  // namespace
}  // namespace exposed_communication

const Rule kExposedCommunication = {
    {"exposed-communication", "collectives run alone for 5 % of the step"},
    exposed_communication::find_exposed_communication};

}  // namespace perfmodel::findings
