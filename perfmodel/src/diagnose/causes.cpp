#include "causes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace perfmodel {
namespace {

template <double RunChange::*kFigure>
void set_change(double value, RunChange& change) {
  change.*kFigure = value;
}
template <bool RunChange::*kSwitch>
void set_change(double, RunChange& change) {
  change.*kSwitch = true;
}
void no_change(double, RunChange&) {}
void slow_host_and_kernels(double value, RunChange& change) {
  change.host = change.kernels = value;
}

template <double RunOutlook::*kFigure>
void show_as(double value, const Cause::Seen&, RunOutlook& outlook) {
  outlook.*kFigure = value;
}

std::string times_words(double value, const RunModel&) { return fmt::format("{:.2g}", value); }
std::string times_a_step(double value, const RunModel&) {
  return fmt::format("{:.2g} times a step", value);
}
std::string of_the_rate(double value, const RunModel&) {
  return fmt::format("{:.2g} of the rate that is needed", 1 / value);
}
std::string clock_words(double value, const RunModel& model) {
  return fmt::format("{:.0f} MHz, {:.0f} % of its boost clock", value * model.clock_mhz,
                     100 * value);
}
template <double RunModel::*kGbPerS>
std::string rate_words(double value, const RunModel& model) {
  return fmt::format("{:.3g} of {:.3g} GB/s", value * model.*kGbPerS, model.*kGbPerS);
}

std::string_view needs_ranks(const RunModel& model) {
  return model.setting.world > 1 ? "" : "one GPU waits for no other";
}

std::string_view needs_nodes(const RunModel& model) {
  return model.nodes > 1 ? "" : "all GPUs are in one node";
}

// All ranks wait for the slow one within collectives; figures are of a rank like most others.
void wait_for_slow_rank(double value, const Cause::Seen& seen, RunOutlook& outlook) {
  RunOutlook other = seen.healthy;
  const double waits = std::max(0.0, outlook.step_us - other.step_us);
  other.step_us += waits;
  other.later_us = other.step_us;
  other.busy_us += waits;
  other.collectives_us += waits;
  other.slowest_rank = value;
  outlook = other;
}

// Inputs come at a pace that one GPU's samples of a step set, next to the step before.
void wait_for_input(double value, const Cause::Seen& seen, RunOutlook& outlook) {
  const double pace_us = value * seen.base_us * seen.samples;
  outlook.input_wait_us = std::max(0.0, pace_us - outlook.step_us);
  outlook.step_us += outlook.input_wait_us;
  outlook.later_us = outlook.step_us;
}

// The first steps compile, tune and allocate, however large they are.
void warm_up(double value, const Cause::Seen& seen, RunOutlook& outlook) {
  outlook.step_us += value * seen.base_us;
}

// Other runs of the machine do not have it.
void slow_this_run(double value, const Cause::Seen& seen, RunOutlook& outlook) {
  if (!seen.is_own) return;
  outlook.step_us *= value;
  outlook.later_us *= value;
}

constexpr double kThere = 1;  // the value of a cause without one

const Cause kCauses[] = {
    {"host", "the host's work takes {} times as long", 0.12, 1.1, 6, 1.02, 20,
     set_change<&RunChange::host>, nullptr, times_words},
    {"clock", "the GPU runs at {} (heat, a power cap, fixed clocks)", 0.1, 0.4, 0.95, 0.1, 0.98,
     set_change<&RunChange::clock>, show_as<&RunOutlook::clock>, clock_words},
    {"kernels", "kernels of another library or version take {} times as long", 0.1, 1.1, 3, 1.02,
     15, set_change<&RunChange::kernels>, nullptr, times_words},
    {"link", "the link between the GPUs of a node moves {}", 0.1, 0.003, 0.85, 0.0005, 0.97,
     set_change<&RunChange::link>, show_as<&RunOutlook::link>, rate_words<&RunModel::link_gb_per_s>,
     needs_ranks},
    {"network", "the network between the nodes moves {} per NIC", 0.1, 0.02, 0.85, 0.002, 0.97,
     set_change<&RunChange::network>, show_as<&RunOutlook::network>,
     rate_words<&RunModel::network_gb_per_s>, needs_nodes},
    {"slow-rank", "one rank, which all others wait for, takes {} times as long", 0.08, 1.1, 4, 1.02,
     15, slow_host_and_kernels, wait_for_slow_rank, times_words, needs_ranks},
    {"input", "the step waits for its data, which come at {}", 0.12, 1.05, 8, 1.02, 30, no_change,
     wait_for_input, of_the_rate},
    {"recomputation", "activations are computed again", 0.06, 1, 1, 1, 1,
     set_change<&RunChange::recompute>},
    {"no-overlap", "collectives are not overlapped with compute", 0.06, 1, 1, 1, 1,
     set_change<&RunChange::no_overlap>, nullptr, nullptr, needs_ranks},
    {"batch", "a step has {} times the samples that were given", 0.08, 0.125, 8, 0.0625, 16,
     set_change<&RunChange::batch>, nullptr, times_words},
    {"cold-start", "first steps are in the figures, which add {}", 0.08, 0.05, 10, 0.02, 100,
     no_change, warm_up, times_a_step},
    {"attention", "attention is not fused", 0.06, 1, 1, 1, 1,
     set_change<&RunChange::eager_attention>},
    {"this-run",
     "this run alone takes {} times as long (its nodes, its time of day, its layout), not the "
     "machine: run it again on other nodes",
     0.06, 1.2, 30, 1.1, 100, no_change, slow_this_run, times_words, nullptr, true},
};

// Batches are powers of two of what was given.
std::vector<double> powers_of_two(double least, double most) {
  std::vector<double> values;
  for (double value = least; value <= most; value *= 2) {
    if (value != 1) values.push_back(value);
  }
  return values;
}

}  // namespace

std::span<const Cause> causes() { return kCauses; }

std::vector<double> tried_values(const Cause& cause) {
  if (!cause.has_value()) return {kThere};
  if (cause.name == "batch") return powers_of_two(cause.least, cause.most);
  constexpr int kPoints = 9;
  std::vector<double> values;
  for (int i = 0; i < kPoints; ++i) {
    values.push_back(cause.least * std::pow(cause.most / cause.least, i / (kPoints - 1.0)));
  }
  return values;
}

Result<RunOutlook> outlook_with(const Cause& cause, double value, const RunModel& model,
                                const RunSetting& at) {
  RunChange change;
  cause.change(value, change);
  auto outlook = model.ask(change, at);
  if (!outlook || !cause.then) return outlook;
  PERFMODEL_TRY(healthy, model.ask({}, at));
  PERFMODEL_TRY(base, model.ask({}, model.setting));
  const auto per_gpu = [&](const RunSetting& of) {
    const auto or_asked = [](std::int64_t given, std::int64_t asked) {
      return static_cast<double>(std::max<std::int64_t>(1, given > 0 ? given : asked));
    };
    const double batch = or_asked(of.batch, model.setting.batch);
    return model.batch_of_job ? batch / or_asked(of.world, model.setting.world) : batch;
  };
  cause.then(value,
             {.healthy = *healthy,
              .base_us = base->step_us,
              .samples = per_gpu(at) / per_gpu(model.setting),
              .is_own = at == RunSetting{}},
             *outlook);
  return outlook;
}

}  // namespace perfmodel
