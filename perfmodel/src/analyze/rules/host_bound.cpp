#include <functional>

#include "analyze/rules.hpp"

namespace perfmodel::findings {
namespace host_bound {
namespace {

// DeepContext's "launch bound": the GPU idles for more than 20 %. That the host works meanwhile,
// and does not wait, is ours.
constexpr double kLeastIdle = 0.2, kLeastBusy = 0.7, kLeastOfIdle = 0.5;
constexpr std::size_t kNamed = 3;
constexpr double kHeavyOpUs = 100;  // longer ones without a launch are work: rule cpu-ops

void find_host_bound(const StepFacts& step, const Gpu*, std::vector<Suspicion>& found) {
  const double idle = step.span_us - step.active_us();
  double waiting = step.loading_us;
  for (const WaitFact& wait : step.waits) waiting += wait.wait_us;
  if (step.kernels.empty() || idle < kLeastIdle * step.span_us) return;
  if (step.span_us - waiting < kLeastBusy * step.span_us) return;

  std::vector<bool> launches(step.ops.size(), false);  // it, or an op inside
  for (const KernelFact& kernel : step.kernels) {
    for (std::int32_t op = kernel.op; op >= 0; op = step.ops[op].parent) {
      launches[op] = true;
    }
  }
  Suspicion made;
  std::map<std::string_view, double> by_name;
  for (std::size_t i = 0; i < step.ops.size(); ++i) {
    const OpFact& op = step.ops[i];
    if (op.is_label || (!launches[i] && op.host_us >= kHeavyOpUs)) continue;
    made.repair.host_scale[i] = 0;
    made.share_us += op.host_us;
    const std::int32_t top = step.top_op(static_cast<std::int32_t>(i));
    by_name[step.ops[top].name] += op.host_us;
  }
  std::vector<std::pair<double, std::string_view>> order;
  for (const auto& [name, us] : by_name) order.emplace_back(us, name);
  std::ranges::sort(order, std::greater<>());
  std::string names;
  for (std::size_t i = 0; i < std::min(kNamed, order.size()); ++i) {
    names += fmt::format("{}{} ({})", i > 0 ? ", " : "", short_name(order[i].second),
                         per_step(order[i].first, step));
  }
  if (made.share_us < kLeastOfIdle * idle) return;  // something else on the host is to blame
  made.title = fmt::format("The GPU idles for {} while the host calls ops, most of it for {}",
                           percent_of(idle, step), names);
  made.where = order.empty() ? "" : std::string(order.front().second);
  made.confidence = Confidence::kMedium;
  made.advice =
      "Launch less often: CUDA graphs, torch.compile, a larger batch, or fewer and larger ops; the "
      "gain counts with ops that cost the host nothing";
  found.push_back(std::move(made));
}

}  // namespace
}  // namespace host_bound

const Rule kHostBound = {
    {"host-bound", "the GPU idles for 20 % of the step or more while the host works for 70 %"},
    host_bound::find_host_bound};

}  // namespace perfmodel::findings
