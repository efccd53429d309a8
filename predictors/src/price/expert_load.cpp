#include "expert_load.hpp"

#include <algorithm>
#include <cmath>

namespace perfmodel {
namespace {

constexpr std::int64_t kMostClasses = 32;

void add_class(ExpertLoad& load, double experts, double rows) {
  if (!(experts > 0) || !(rows > 0)) return;
  const double touched = experts * std::min(1.0, rows);
  load.classes.push_back({touched, std::max(1.0, rows)});
  load.touched += touched;
}

ExpertLoad balanced_load(double experts, double rows) {
  ExpertLoad load;
  const double whole = std::floor(rows / experts), more = rows - whole * experts;
  add_class(load, experts - more, whole);
  add_class(load, more, whole + 1);
  return load;
}

ExpertLoad random_load(double experts, double tokens, double topk) {
  constexpr double kQuartiles[] = {-1.15, -0.32, 0.32, 1.15};  // middles of a normal law's quarters
  ExpertLoad load;
  const double touched = experts * (1 - std::pow(1 - std::min(1.0, topk / experts), tokens));
  const double mean = tokens * topk / touched, spread = std::sqrt(mean);
  for (const double at : kQuartiles)
    add_class(load, touched / 4, std::max(1.0, mean + at * spread));
  return load;
}

/// The `u`-quantile of the power law.
double power_law_quantile(double u, double exponent, double least, double most) {
  const double power = 1 - exponent;
  if (std::abs(power) < 1e-6) return least * std::pow(most / least, u);
  const double low = std::pow(least, power), high = std::pow(most, power);
  return std::pow((high - low) * u + low, 1 / power);
}

ExpertLoad power_law_load(const ExpertsShape& shape) {
  const double rows = static_cast<double>(shape.tokens) * static_cast<double>(shape.topk);
  const double all = static_cast<double>(shape.experts);
  const bool sparse = rows <= all;
  const double least = sparse ? 0.01 : 1;
  const double most = sparse ? 2 : std::max(1.0, 0.8 * static_cast<double>(shape.tokens));
  const std::int64_t count = std::min(shape.experts, kMostClasses);
  std::vector<double> loads;
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const double u = (static_cast<double>(i) + 0.5) / static_cast<double>(count);
    loads.push_back(power_law_quantile(u, shape.power_law, least, most));
    sum += loads.back();
  }
  ExpertLoad load;
  const double each = all / static_cast<double>(count);
  for (const double value : loads) add_class(load, each, value * rows / (sum * each));
  return load;
}

}  // namespace

ExpertLoad expert_load(const ExpertsShape& shape) {
  const double tokens = static_cast<double>(shape.tokens), topk = static_cast<double>(shape.topk),
               experts = static_cast<double>(shape.experts);
  switch (shape.routing) {
    case ExpertsShape::Routing::kBalanced: return balanced_load(experts, tokens * topk);
    case ExpertsShape::Routing::kPowerLaw: return power_law_load(shape);
    case ExpertsShape::Routing::kRandom: break;
  }
  return random_load(experts, tokens, topk);
}

ExpertLoad grouped_load(const GroupedGemmShape& shape) {
  const double groups = static_cast<double>(shape.groups), rows = static_cast<double>(shape.rows);
  if (shape.imbalance <= 1 || shape.groups < 2) return balanced_load(groups, rows);
  ExpertLoad load;
  const double largest = std::min(rows, shape.imbalance * rows / groups);
  add_class(load, groups - 1, (rows - largest) / (groups - 1));
  add_class(load, 1, largest);
  return load;
}

}  // namespace perfmodel
