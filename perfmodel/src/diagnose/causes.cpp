#include "causes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace perfmodel {
namespace {

std::string times(double value, const RunModel&) { return fmt::format("{:.2g}", value); }

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
    {.name = "host",
     .sentence = "the host's work takes {} times as long",
     .low = 1.1,
     .high = 6,
     .least = 1.02,
     .most = 20,
     .prior = 0.12,
     .change = [](double value, RunChange& change) { change.host = value; },
     .show = times},
    {.name = "clock",
     .sentence = "the GPU runs at {} (heat, a power cap, fixed clocks)",
     .low = 0.4,
     .high = 0.95,
     .least = 0.1,
     .most = 0.98,
     .prior = 0.1,
     .change = [](double value, RunChange& change) { change.clock = value; },
     .then = [](double value, const Cause::Seen&, RunOutlook& outlook) { outlook.clock = value; },
     .show =
         [](double value, const RunModel& model) {
           return fmt::format("{:.0f} MHz, {:.0f} % of its boost clock", value * model.clock_mhz,
                              100 * value);
         }},
    {.name = "kernels",
     .sentence = "kernels of another library or version take {} times as long",
     .low = 1.1,
     .high = 3,
     .least = 1.02,
     .most = 15,
     .prior = 0.1,
     .change = [](double value, RunChange& change) { change.kernels = value; },
     .show = times},
    {.name = "link",
     .sentence = "the link between the GPUs of a node moves {}",
     .low = 0.003,
     .high = 0.85,
     .least = 0.0005,
     .most = 0.97,
     .prior = 0.1,
     .change = [](double value, RunChange& change) { change.link = value; },
     .then = [](double value, const Cause::Seen&, RunOutlook& outlook) { outlook.link = value; },
     .show =
         [](double value, const RunModel& model) {
           return fmt::format("{:.3g} of {:.3g} GB/s", value * model.link_gb_per_s,
                              model.link_gb_per_s);
         },
     .excluded = needs_ranks},
    {.name = "network",
     .sentence = "the network between the nodes moves {}",
     .low = 0.02,
     .high = 0.85,
     .least = 0.002,
     .most = 0.97,
     .prior = 0.1,
     .change = [](double value, RunChange& change) { change.network = value; },
     .then = [](double value, const Cause::Seen&, RunOutlook& outlook) { outlook.network = value; },
     .show =
         [](double value, const RunModel& model) {
           return fmt::format("{:.3g} of {:.3g} GB/s per NIC", value * model.network_gb_per_s,
                              model.network_gb_per_s);
         },
     .excluded = needs_nodes},
    {.name = "slow-rank",
     .sentence = "one rank, which all others wait for, takes {} times as long",
     .low = 1.1,
     .high = 4,
     .least = 1.02,
     .most = 15,
     .prior = 0.08,
     .change = [](double value, RunChange& change) { change.host = change.kernels = value; },
     .then = wait_for_slow_rank,
     .show = times,
     .excluded = needs_ranks},
    {.name = "input",
     .sentence = "the step waits for its data, which come at {}",
     .low = 1.05,
     .high = 8,
     .least = 1.02,
     .most = 30,
     .prior = 0.12,
     .change = [](double, RunChange&) {},
     .then = wait_for_input,
     .show =
         [](double value, const RunModel&) {
           return fmt::format("{:.2g} of the rate that is needed", 1 / value);
         }},
    {.name = "recomputation",
     .sentence = "activations are computed again",
     .prior = 0.06,
     .change = [](double, RunChange& change) { change.recompute = true; }},
    {.name = "no-overlap",
     .sentence = "collectives are not overlapped with compute",
     .prior = 0.06,
     .change = [](double, RunChange& change) { change.no_overlap = true; },
     .excluded = needs_ranks},
    {.name = "batch",
     .sentence = "a step has {} times the samples that were given",
     .low = 0.125,
     .high = 8,
     .least = 0.0625,
     .most = 16,
     .prior = 0.08,
     .change = [](double value, RunChange& change) { change.batch = value; },
     .show = times},
    {.name = "cold-start",
     .sentence = "first steps are in the figures, which add {}",
     .low = 0.05,
     .high = 10,
     .least = 0.02,
     .most = 100,
     .prior = 0.08,
     .change = [](double, RunChange&) {},
     .then = warm_up,
     .show = [](double value,
                const RunModel&) { return fmt::format("{:.2g} times a step", value); }},
    {.name = "attention",
     .sentence = "attention is not fused",
     .prior = 0.06,
     .change = [](double, RunChange& change) { change.eager_attention = true; }},
    {.name = "this-run",
     .sentence = "this run alone takes {} times as long (its nodes, its time of day, its layout), "
                 "not the machine: run it again on other nodes",
     .low = 1.2,
     .high = 30,
     .least = 1.1,
     .most = 100,
     .prior = 0.06,
     .change = [](double, RunChange&) {},
     .then = slow_this_run,
     .show = times,
     .is_of_one_run = true},
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
  const auto healthy = model.ask({}, at);
  if (!healthy) return healthy;
  const auto base = model.ask({}, model.setting);
  if (!base) return base;
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
