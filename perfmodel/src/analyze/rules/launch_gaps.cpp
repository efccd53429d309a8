#include "analyze/rules.hpp"

namespace perfmodel::findings {
namespace launch_gaps {
namespace {

constexpr double kLeastShare = 0.05;
// A longer gap has another cause than one launch: a wait, the data loader, work of the host.
constexpr double kMostGapUs = 100;
constexpr double kHandOverUs = 2;  // from one kernel to the next that is queued already

// When waits of the host end, in order.
std::vector<double> ends_of_waits(const StepFacts& step) {
  std::vector<double> ends;
  for (const WaitFact& wait : step.waits) ends.push_back(wait.start_us + wait.wait_us);
  std::ranges::sort(ends);
  return ends;
}

// Rule host-bound has steps in which the GPU idles more, and names ops.
void find_launch_gaps(const StepFacts& step, const Gpu*, std::vector<Suspicion>& found) {
  if (step.kernels.empty() || is_host_bound(step)) return;
  std::vector<std::size_t> order(step.kernels.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return step.kernels[i].start_us; });
  const std::vector<double> waits = ends_of_waits(step);
  // No graph goes across a wait: rule blocking-waits has the gap after it.
  const auto ends_a_wait = [&](double from_us, double until_us) {
    constexpr double kLateUs = 10;  // the host learns of the end later
    const auto at = std::ranges::lower_bound(waits, from_us - kLateUs);
    return at != waits.end() && *at <= until_us;
  };
  Suspicion made;
  std::size_t gaps = 0;
  double busy_until = step.kernels[order.front()].start_us, longest = 0;
  for (const std::size_t i : order) {
    const KernelFact& kernel = step.kernels[i];
    const double from_us = busy_until, gap = kernel.start_us - from_us;
    busy_until = std::max(busy_until, kernel.start_us + kernel.time_us);
    if (gap <= kHandOverUs || gap > kMostGapUs || ends_a_wait(from_us, kernel.start_us)) continue;
    ++gaps;
    made.share_us += gap;
    if (gap <= longest) continue;
    longest = gap;
    made.where = step.path(kernel.op);
  }
  if (made.share_us < kLeastShare * step.span_us) return;
  free_launching_ops(step, made.repair);
  const auto steps = static_cast<double>(step.steps);
  made.title = fmt::format("The GPU waits for the next launch {:.0f} times per step, {} in all",
                           static_cast<double>(gaps) / steps, per_step(made.share_us, step));
  made.confidence = Confidence::kMedium;
  made.advice =
      "model = torch.compile(model, mode=\"reduce-overhead\"), or with torch.cuda.graph(g): "
      "train_step(), then g.replay(): one launch for all kernels between two waits. The gain "
      "counts "
      "with ops that cost the host nothing";
  found.push_back(std::move(made));
}

}  // namespace
}  // namespace launch_gaps

const Rule kLaunchGaps = {
    {"launch-gaps",
     "gaps of 2 to 100 us in front of launches take 5 % of the step, where it is not host-bound"},
    launch_gaps::find_launch_gaps};

}  // namespace perfmodel::findings
