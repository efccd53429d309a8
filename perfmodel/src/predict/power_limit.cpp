#include "power_limit.hpp"

#include "perfmodel/predictors/detail/board_power.hpp"

namespace perfmodel {
namespace {

constexpr double kToleratedExcess = 2e-3;  // share of the pass; about as in the steady state

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

bool hold(HostProgram& program, double pass, double watt) {
  const double excess_us = energy_j(program) / watt * 1e6 - pass;
  if (excess_us <= kToleratedExcess * pass) return false;
  double slowed_j = 0, other_j = 0;  // energy of arithmetic
  for (const PredictedKernel& kernel : program.kernels) {
    (can_slow(kernel) ? slowed_j : other_j) += kernel.energy.flop_j;
  }
  if (slowed_j <= other_j) return false;
  for (PredictedKernel& kernel : program.kernels) {
    if (can_slow(kernel)) slow(kernel, excess_us * kernel.energy.flop_j / slowed_j);
  }
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
