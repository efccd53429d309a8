#include "power_limit.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "perfmodel/predictors/detail/board_power.hpp"

namespace perfmodel {
namespace {

constexpr double kToleratedExcess = 2e-3;  // share of the pass; about as in the steady state

// Standard deviation between boards of one kind of the power that equal work takes. From public
// steps on one H100 SXM of 39 machines (Lambda, 2024, 117 logs): BERT-large took 341 to 355 ms in
// half precision and 418 to 448 ms in TF32, which is 5.06 deviations of so many logs: 0.8 and 1.4
// %. ResNet-50 in TF32, which power does not limit, took 335.6 to 336.9 ms.
constexpr double kBoardDeviation = 0.011;

double energy_j(const HostProgram& program) {
  double sum = 0;
  for (const PredictedKernel& kernel : program.kernels) sum += kernel.energy.sum_j();
  return sum;
}

bool can_slow(const PredictedKernel& kernel) {
  const bool knows = kernel.energy.measured && kernel.energy.flop_j > 0;
  return knows && kernel.price.bound != Bound::kMeasured;
}

void slow(PredictedKernel& kernel, double us) {
  Price& price = kernel.price;
  if (price.time.count() > 0) price.high *= 1 + us / price.time.count();
  price.time += Microseconds{us};
  kernel.limited_us += us;
}

std::int64_t ranks_of_job(const HostProgram& program) {
  std::int64_t ranks = program.scaled_out ? program.scaled_out->world : 1;
  for (const KernelWork& work : program.comm_works) {
    const auto* shape = std::get_if<CollectiveShape>(&work.shape);
    if (shape) ranks = std::max(ranks, shape->world_size);
  }
  return ranks;
}

constexpr double kMostDeviations = 8;  // `expected_largest` of any number is below

/// Expected largest of so many draws from a normal distribution, in standard deviations.
double expected_largest(std::int64_t draws) {
  constexpr double kStep = 0.01;
  if (draws == 1) return 0;
  double sum = 0;
  for (double x = kStep / 2; x < kMostDeviations; x += kStep) {
    const double above = 0.5 * std::erfc(x / std::numbers::sqrt2);
    const auto n = static_cast<double>(draws);
    sum += kStep * (1 - std::pow(1 - above, n) - std::pow(above, n));
  }
  return sum;
}

bool hold(HostProgram& program, double pass, double watt) {
  const double least_us = energy_j(program) / watt * 1e6;
  if (least_us * (1 + kBoardDeviation * kMostDeviations) <= pass) return false;
  const double slowest = 1 + kBoardDeviation * expected_largest(ranks_of_job(program));
  const double excess_us = least_us * slowest - pass;
  if (excess_us <= kToleratedExcess * pass) return false;
  double slowed_j = 0, other_j = 0;  // energy of arithmetic
  for (const PredictedKernel& kernel : program.kernels) {
    (can_slow(kernel) ? slowed_j : other_j) += kernel.energy.flop_j;
  }
  if (slowed_j <= other_j) return false;
  for (PredictedKernel& kernel : program.kernels) {
    if (can_slow(kernel)) slow(kernel, excess_us * kernel.energy.flop_j / slowed_j);
  }
  program.slowest_board_us =
      std::max(program.slowest_board_us, std::min(excess_us, least_us * (slowest - 1)));
  return true;
}

}  // namespace

bool hold_to_power_limit(const JobTasks& tasks, std::span<RankProgram> programs) {
  bool changed = false;
  for (std::size_t r = 0; r < programs.size(); ++r) {
    const double watt = work_power_w(*programs[r].gpu);
    if (watt <= 0 || !programs[r].rank.options.sustained) continue;
    changed |= hold(programs[r].program, pass_us(tasks, r), watt);
  }
  return changed;
}

std::optional<double> step_energy_j(const Gpu& gpu, const HostProgram& program, double e2e_us) {
  if (gpu.tdp_w <= 0) return std::nullopt;
  const auto steps = static_cast<double>(program.steps.size());
  return idle_power_w(gpu) * e2e_us * 1e-6 + energy_j(program) / steps;
}

}  // namespace perfmodel
