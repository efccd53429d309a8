#include "gain_error.hpp"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "perfmodel/detail/predict_options.hpp"
#include "perfmodel/predictors/detail/summed_range.hpp"
#include "program/program_tasks.hpp"

namespace perfmodel::advice {
namespace {

auto price_key(const KernelCount& kernel) {
  return std::tuple(kernel.family, kernel.price.time, kernel.price.low, kernel.price.high,
                    kernel.limited_us);
}

bool priced_before(const KernelCount& a, const KernelCount& b) {
  return price_key(a) < price_key(b);
}

void add_to(SummedRange& sum, const KernelCount& kernel, double count) {
  if (count > 0) sum.add(kernel.family, kernel.price, Microseconds(kernel.limited_us), count);
}

double half_width(const SummedRange& sum) {
  const SummedRange::Range range = sum.range();
  return (range.high - range.low).count() / 2;
}

struct OwnKernels {
  SummedRange before, after;  // kernels of one step alone
};

OwnKernels own_kernels(const StepParts& before, const StepParts& after) {
  OwnKernels own;
  auto b = before.kernels.begin();
  auto a = after.kernels.begin();
  while (b != before.kernels.end() || a != after.kernels.end()) {
    if (a == after.kernels.end() || (b != before.kernels.end() && priced_before(*b, *a))) {
      add_to(own.before, *b, b->count);
      ++b;
    } else if (b == before.kernels.end() || priced_before(*a, *b)) {
      add_to(own.after, *a, a->count);
      ++a;
    } else {
      add_to(own.before, *b, b->count - a->count);
      add_to(own.after, *a, a->count - b->count);
      ++a, ++b;
    }
  }
  return own;
}

}  // namespace

StepParts step_parts(const Prediction& prediction, double host_path_us) {
  StepParts parts{.kernels = {},
                  .e2e_us = prediction.e2e_us,
                  .other_hosts_us = {},
                  .own_pace = prediction.coverage.own_pace};
  for (const Prediction::OnHost& host : prediction.host_sensitivity) {
    parts.other_hosts_us.push_back(host.e2e_us);
  }
  if (prediction.e2e_us > 0) parts.host_path_share = host_path_us / prediction.e2e_us;
  std::vector<KernelCount> all;
  const double steps = std::max<double>(1, static_cast<double>(prediction.iterations.size()));
  for (const PredictedOp& op : prediction.ops) {
    for (const PredictedKernel& kernel : op.kernels) {
      all.push_back({.family = kernel.family,
                     .price = kernel.price,
                     .limited_us = kernel.limited_us,
                     .count = 1 / steps});
    }
  }
  std::sort(all.begin(), all.end(), priced_before);
  for (const KernelCount& kernel : all) {
    if (parts.kernels.empty() || price_key(parts.kernels.back()) != price_key(kernel)) {
      parts.kernels.push_back(kernel);
    } else {
      parts.kernels.back().count += kernel.count;
    }
  }
  return parts;
}

namespace {

// On another host the gain is smaller.
double host_error_us(const StepParts& before, const StepParts& after, double scale) {
  const double gain = before.e2e_us - scale * after.e2e_us;
  double most = 0;
  const std::size_t hosts = std::min(before.other_hosts_us.size(), after.other_hosts_us.size());
  for (std::size_t i = 0; i < hosts; ++i) {
    most = std::max(most, gain - (before.other_hosts_us[i] - scale * after.other_hosts_us[i]));
  }
  const auto width = [](const auto& scales) { return scales.back() - scales.front(); };
  const bool same = before.own_pace && after.own_pace;
  return same ? most * width(kSameHosts) / width(kOtherHosts) : most;
}

}  // namespace

double gain_error_us(const StepParts& before, const StepParts& after, double scale) {
  const OwnKernels own = own_kernels(before, after);
  const double device = 1 - std::min(before.host_path_share, after.host_path_share);
  const double kernels_before = device * half_width(own.before);
  const double kernels_after = device * scale * half_width(own.after);
  const double of_host = host_error_us(before, after, scale);
  return std::sqrt(kernels_before * kernels_before + kernels_after * kernels_after +
                   of_host * of_host + std::pow(kSteadyTolerance * before.e2e_us, 2));
}

}  // namespace perfmodel::advice
