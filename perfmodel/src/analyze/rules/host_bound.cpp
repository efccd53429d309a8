#include <functional>

#include "analyze/rules.hpp"

namespace perfmodel::findings {
namespace host_bound {
namespace {

constexpr double kLeastOfIdle = 0.5;
constexpr std::size_t kNamed = 3;

void find_host_bound(const StepFacts& step, const Gpu*, std::vector<Suspicion>& found) {
  if (!is_host_bound(step)) return;
  const double idle = step.span_us - step.active_us();
  Suspicion made;
  std::vector<std::pair<double, std::string_view>> order;
  for (const auto& [name, us] : free_launching_ops(step, made.repair)) {
    order.emplace_back(us, name);
    made.share_us += us;
  }
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
