#include "what_if_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "base/contains.hpp"

namespace perfmodel {
namespace {

constexpr std::size_t kMostVariants = 1'000'000;

// The i-th combination: one position per axis.
std::vector<std::size_t> combination(const std::vector<sweep::RewriteAxis>& axes, std::size_t i) {
  std::vector<std::size_t> positions(axes.size());
  for (std::size_t axis = axes.size(); axis-- > 0;) {
    positions[axis] = i % axes[axis].values.size();
    i /= axes[axis].values.size();
  }
  return positions;
}

// "batch 1024, optimizer fused"; the graph as it is has no rewrites.
void add_variant(const std::vector<std::size_t>& positions, WhatIfReport& report) {
  Variant variant;
  std::vector<std::string> values(report.axes.size());
  for (std::size_t i = 0; i < positions.size(); ++i) {
    const sweep::RewriteAxis::Value& value = report.axes[i].values[positions[i]];
    if (!value.rewrite) continue;
    values[i] = value.text;
    if (!variant.name.empty()) variant.name += ", ";
    variant.name += value.rewrite->name.substr(2);
    variant.rewrites.push_back(*value.rewrite);
  }
  if (variant.name.empty()) variant.name = "as it is";
  if (!report.variants.empty()) {
    const auto parting = std::ranges::mismatch(report.variants.back().rewrites, variant.rewrites,
                                               {}, &NamedRewrite::name, &NamedRewrite::name);
    variant.shared = parting.in2 - variant.rewrites.begin();
  }
  report.variants.push_back(std::move(variant));
  report.values.push_back(std::move(values));
}

}  // namespace

Result<void> cross_axes(WhatIfReport& report) {
  std::size_t count = 1;
  for (const sweep::RewriteAxis& axis : report.axes) {
    count *= axis.values.size();
    if (count > kMostVariants) {
      return decline(fmt::format("expected at most {} variants, found more", kMostVariants));
    }
  }
  add_variant({}, report);
  for (std::size_t i = 0; i < count; ++i) {
    const auto positions = combination(report.axes, i);
    bool changes = false;
    for (std::size_t axis = 0; axis < positions.size(); ++axis) {
      changes |= report.axes[axis].values[positions[axis]].rewrite.has_value();
    }
    if (changes) add_variant(positions, report);
  }
  return {};
}

Result<void> answer_variants(const ExecutionGraph& graph, const WhatIfOptions& options,
                             WhatIfReport& report) {
  report.answers = what_if(graph, report.variants, report.targets, options);
  // Without a baseline there is nothing to compare with.
  if (report.baseline().error) return Unexpected{*report.baseline().error};
  const bool nothing = std::ranges::all_of(report.answers, [&](const WhatIfAnswer& answer) {
    return answer.variant == 0 || answer.error;
  });
  if (report.variants.size() > 1 && nothing) {
    return Unexpected{*report.answers[report.targets.size()].error};
  }
  for (const WhatIfAnswer& answer : report.answers) {
    add_each_once(report.warnings, answer.rewrite_warnings);
  }
  return {};
}

std::optional<double> usd_per_million(const WhatIfReport& report, const WhatIfAnswer& answer) {
  if (report.usd_per_gpu_hour.empty() || answer.error) return std::nullopt;
  const double hours = answer.e2e_us * 1e-6 / 3600;
  return 1e6 * hours * report.usd_per_gpu_hour[answer.target] /
         static_cast<double>(answer.batch.value_or(1));
}

std::optional<double> kwh_per_million(const WhatIfAnswer& answer) {
  if (!answer.energy_j || answer.error) return std::nullopt;
  return 1e6 * *answer.energy_j / 3.6e6 / static_cast<double>(answer.batch.value_or(1));
}

std::vector<std::size_t> cheapest_first(const WhatIfReport& report) {
  std::vector<std::size_t> order(report.answers.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (report.usd_per_gpu_hour.empty()) return order;
  std::ranges::stable_sort(order, {}, [&](std::size_t i) {
    return usd_per_million(report, report.answers[i])
        .value_or(std::numeric_limits<double>::infinity());
  });
  return order;
}

double speed_up(const WhatIfReport& report, const WhatIfAnswer& answer) {
  const WhatIfAnswer& baseline = report.baseline();
  if (answer.error || baseline.error) return 0;
  const double by_time = baseline.e2e_us / answer.e2e_us;
  if (!answer.batch || !baseline.batch || *baseline.batch == 0) return by_time;
  const auto samples = [](const WhatIfAnswer& one) {
    return static_cast<double>(*one.batch) * static_cast<double>(one.ranks);
  };
  return by_time * samples(answer) / samples(baseline);
}

std::vector<std::string> answer_warnings(const WhatIfReport& report, const WhatIfAnswer& answer) {
  std::vector<std::string> warnings = answer.lacking_units;
  const std::string memory = memory_warning(answer.memory, report.gpu(answer));
  if (!memory.empty()) warnings.push_back(memory);
  return warnings;
}

std::vector<std::string> unmodelled_ops(const WhatIfReport& report) {
  std::vector<std::string> names;
  for (const WhatIfAnswer& answer : report.answers) add_each_once(names, answer.unmodelled_ops);
  return names;
}

}  // namespace perfmodel
