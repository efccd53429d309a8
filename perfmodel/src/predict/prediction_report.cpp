#include "predict/prediction_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>

#include "perfmodel/predictors/detail/summed_range.hpp"

namespace perfmodel {

std::size_t PredictionReport::slowest() const {
  // If ranks hold each other up, the one that waits least counts.
  std::size_t slowest = 0;
  for (std::size_t i = 1; i < ranks.size(); ++i) {
    const Prediction& best = ranks[slowest].prediction;
    const Prediction& p = ranks[i].prediction;
    const double tie = 1e-6 * best.e2e_us;
    const bool waits_less = p.communication.waiting_us < best.communication.waiting_us;
    if (p.e2e_us > best.e2e_us + tie || (p.e2e_us > best.e2e_us - tie && waits_less)) slowest = i;
  }
  return slowest;
}

double PredictionReport::mean_e2e_us() const {
  double sum = 0;
  for (const RankPrediction& rank : ranks) sum += rank.prediction.e2e_us;
  return sum / static_cast<double>(ranks.size());
}

std::optional<double> PredictionReport::tokens_per_s() const {
  const auto samples = ranks[slowest()].prediction.samples_per_s();
  if (!samples || !work.tokens) return std::nullopt;
  return *samples * static_cast<double>(*work.tokens);
}

std::optional<double> PredictionReport::tflop_per_s() const {
  const double us = ranks[slowest()].prediction.e2e_us;
  if (!(us > 0) || !(work.products.value > 0)) return std::nullopt;
  return work.products.value / us / 1e6;
}

std::optional<double> PredictionReport::mfu() const {
  const auto rate = tflop_per_s();
  if (!rate || !(work.peak.value > 0)) return std::nullopt;
  return *rate * 1e12 / work.peak.value;
}

std::string PredictionReport::mfu_warning() const {
  const double share = mfu().value_or(0);
  if (share <= 1) return "";
  // Without convolutions the products would need no more than the peak.
  const bool by_algorithms = share * (1 - work.convolutions.value / work.products.value) <= 1;
  return fmt::format(
      "the FLOP counted are {:.0f} % of the dense peak ({}): {}", 100 * share, work.peak_name,
      by_algorithms
          ? "convolutions count as direct sums, and algorithms such as Winograd's do "
            "fewer operations"
          : "prices of products are too short, or their types are not the types of that peak");
}

std::vector<FamilyTotal> totals_by_family(const Prediction& prediction) {
  struct Entry {
    FamilyTotal total;
    std::map<Bound, double> by_bound;
    std::map<std::string_view, double> by_model;
    SummedRange range;
  };
  std::map<KernelFamily, Entry> families;
  for (const PredictedOp& op : prediction.ops) {
    for (const PredictedKernel& kernel : op.kernels) {
      const double us = kernel.price.time.count();
      Entry& entry = families[kernel.family];
      entry.by_bound[kernel.price.bound] += us;
      entry.by_model[kernel.price.model] += us;
      FamilyTotal& total = entry.total;
      total.family = kernel.family;
      ++total.count;
      total.time_us += us;
      entry.range.add(kernel.family, kernel.price, Microseconds{kernel.limited_us});
      total.out_of_range += !kernel.price.in_range;
      total.inferred += kernel.inferred;
    }
  }
  const double steps = static_cast<double>(std::max<std::size_t>(prediction.iterations.size(), 1));
  const auto most = [](const auto& times) {
    return std::ranges::max_element(times, {}, [](const auto& entry) { return entry.second; })
        ->first;
  };
  std::vector<FamilyTotal> totals;
  for (auto& [family, entry] : families) {
    FamilyTotal& total = entry.total;
    const auto [time, low, high] = entry.range.range();
    total.low_us = low.count();
    total.high_us = high.count();
    for (double* sum : {&total.count, &total.time_us, &total.low_us, &total.high_us}) *sum /= steps;
    total.bound = most(entry.by_bound);
    total.model = most(entry.by_model);
    totals.push_back(total);
  }
  std::ranges::stable_sort(totals, std::ranges::greater{}, &FamilyTotal::time_us);
  return totals;
}

std::pair<double, double> range_of_kernels(const Prediction& prediction) {
  SummedRange sum;
  for (const PredictedOp& op : prediction.ops) {
    for (const PredictedKernel& kernel : op.kernels) {
      sum.add(kernel.family, kernel.price, Microseconds{kernel.limited_us});
    }
  }
  const double steps = static_cast<double>(std::max<std::size_t>(prediction.iterations.size(), 1));
  const auto [time, low, high] = sum.range();
  return {low.count() / steps, high.count() / steps};
}

std::vector<OpTotal> totals_by_op(const Prediction& prediction) {
  const double steps = static_cast<double>(std::max<std::size_t>(prediction.iterations.size(), 1));
  std::unordered_map<std::string_view, std::size_t> known;
  std::vector<OpTotal> totals;
  for (const PredictedOp& op : prediction.ops) {
    const auto [at, added] = known.try_emplace(op.name, totals.size());
    if (added) totals.push_back({.name = op.name});
    OpTotal& total = totals[at->second];
    total.count += 1 / steps;
    total.host_us += op.host_us / steps;
    total.wait_us += op.wait_us / steps;
    for (const PredictedKernel& kernel : op.kernels) {
      total.device_us += kernel.price.time.count() / steps;
    }
  }
  std::ranges::stable_sort(totals, std::ranges::greater{},
                           [](const OpTotal& op) { return op.host_us + op.wait_us; });
  return totals;
}

OpTotal sum_of(std::span<const OpTotal> totals) {
  OpTotal sum;
  for (const OpTotal& op : totals) {
    sum.count += op.count;
    sum.host_us += op.host_us;
    sum.wait_us += op.wait_us;
    sum.device_us += op.device_us;
  }
  return sum;
}

}  // namespace perfmodel
