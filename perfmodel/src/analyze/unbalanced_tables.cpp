#include "analyze/unbalanced_tables.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "analyze/rules.hpp"

namespace perfmodel::findings {
namespace {

// TorchRec's planner aims at less; below it the spread of lookups within a batch is as large.
constexpr double kLeastExcess = 0.2, kLeastShareOfTables = 0.02;

bool is_of_tables(const KernelFact& kernel) {
  return kernel.family == KernelFamily::kEmbeddingForward ||
         kernel.family == KernelFamily::kEmbeddingBackward;
}

double us_of_tables(const StepFacts& step) {
  double sum = 0;
  for (const KernelFact& kernel : step.kernels) sum += is_of_tables(kernel) ? kernel.time_us : 0;
  return sum / static_cast<double>(step.steps);
}

}  // namespace

Result<std::optional<Finding>> find_unbalanced_tables(
    std::span<const std::unique_ptr<TraceStep>> ranks, std::span<const std::string> names) {
  std::vector<double> us;
  for (const auto& rank : ranks) us.push_back(us_of_tables(rank->facts()));
  if (us.size() < 2) return std::optional<Finding>();
  const double mean = std::accumulate(us.begin(), us.end(), 0.0) / static_cast<double>(us.size());
  const auto most = static_cast<std::size_t>(std::ranges::max_element(us) - us.begin());
  const StepFacts& facts = ranks[most]->facts();
  const double step_us = facts.span_us / static_cast<double>(facts.steps);
  if (us[most] < (1 + kLeastExcess) * mean || us[most] - mean < kLeastShareOfTables * step_us) {
    return std::optional<Finding>();
  }
  Repair repair;
  std::string where;
  for (std::size_t i = 0; i < facts.kernels.size(); ++i) {
    const KernelFact& kernel = facts.kernels[i];
    if (!is_of_tables(kernel)) continue;
    repair.kernel_us[i] = kernel.time_us * mean / us[most];
    if (where.empty()) where = names[most] + ": " + facts.path(kernel.op);
  }
  const auto now = ranks[most]->step_us({}), then = ranks[most]->step_us(repair);
  if (!now) return Unexpected{now.error()};
  if (!then) return Unexpected{then.error()};
  const double gain = *now - *then, share = *now > 0 ? gain / *now : 0;
  return std::optional<Finding>(
      {.rule = kUnbalancedTables.name,
       .title = fmt::format("Embedding tables take {:.0f} us per step on {}, {:.0f} us on average "
                            "of the given ranks",
                            us[most], names[most], mean),
       .where = where,
       .share = step_us > 0 ? us[most] / step_us : 0,
       .gain_us = gain,
       .gain_share = share,
       .confidence = Confidence::kMedium,
       .advice = "Place the tables anew: `shard` searches for a balanced plan. The gain is for "
                 "this rank's step, and the job's if this rank is the slowest",
       .folded = share < 0.02});
}

}  // namespace perfmodel::findings
