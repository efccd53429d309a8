#include "measures.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>

namespace perfmodel {
namespace {

using Outlook = RunOutlook;
using Model = RunModel;

template <int kPerMille>
double fixed(const Outlook&, const Model&) {
  return kPerMille * 1e-3;
}

// A board draws its limit while it works at full clocks, less in proportion otherwise.
double power(const Outlook& of, const Model& model) {
  const double works = std::min(1.0, of.busy_us / of.step_us) * of.clock;
  return model.idle_w + (model.power_w - model.idle_w) * works;
}

const MeasureKind kMeasureKinds[] = {
    {RunMeasure::kStep, "step", "ms", "time a step of this size",
     [](const Outlook& of, const Model&) { return of.step_us; }, true, fixed<30>, true},
    {RunMeasure::kClock, "clock", "MHz",
     "read the SM clock while it trains (nvidia-smi --query-gpu=clocks.sm)",
     [](const Outlook& of, const Model& model) { return of.clock * model.clock_mhz; }, true,
     fixed<60>},
    {RunMeasure::kMemory, "memory", "GB", "read torch.cuda.max_memory_reserved()",
     [](const Outlook& of, const Model&) { return of.memory_bytes; }, true, fixed<100>},
    {RunMeasure::kLaterStep, "later-step", "ms", "time steps after the first hundred alone",
     [](const Outlook& of, const Model&) { return of.later_us; }, true, fixed<30>, true},
    {RunMeasure::kPower, "power", "W", "read the board's power (nvidia-smi --query-gpu=power.draw)",
     power, false, [](const Outlook&, const Model& model) { return 0.15 * model.power_w; }},
    {RunMeasure::kLink, "link", "GB/s",
     "time copies between two GPUs of a node (p2pBandwidthLatencyTest)",
     [](const Outlook& of, const Model& model) { return of.link * model.link_gb_per_s; }, true,
     fixed<150>},
    {RunMeasure::kNetwork, "network", "GB/s", "time one NIC between two nodes (ib_write_bw)",
     [](const Outlook& of, const Model& model) { return of.network * model.network_gb_per_s; },
     true, fixed<150>},
    {RunMeasure::kInputWait, "input-wait", "ms",
     "time a step on one batch that stays on the GPU: the difference is the wait for data",
     [](const Outlook& of, const Model&) { return of.input_wait_us; }, false,
     [](const Outlook& of, const Model&) { return 0.1 * of.input_wait_us + 0.02 * of.step_us; }},
    {RunMeasure::kBusy, "busy", "%", "profile a step: the share in which the GPU works",
     [](const Outlook& of, const Model&) { return std::min(1.0, of.busy_us / of.step_us); }, false,
     fixed<50>},
    {RunMeasure::kKernels, "kernels", "ms",
     "profile a step: the sum of its kernels except collectives",
     [](const Outlook& of, const Model&) { return of.kernels_us; }, true, fixed<30>, true},
    {RunMeasure::kProducts, "products", "ms", "profile a step: its matrix products and attention",
     [](const Outlook& of, const Model&) { return of.products_us; }, true, fixed<30>, true},
    {RunMeasure::kCollectives, "collectives", "ms",
     "profile a step: collectives while no other kernel runs",
     [](const Outlook& of, const Model&) { return of.collectives_us; }, false,
     [](const Outlook& of, const Model&) { return 0.2 * of.collectives_us + 0.02 * of.step_us; }},
    {RunMeasure::kSlowestRank, "slowest-rank", "x",
     "profile every rank: kernel time of the slowest over the median rank's",
     [](const Outlook& of, const Model&) { return of.slowest_rank; }, true, fixed<50>}};

}  // namespace

std::string_view to_string(RunMeasure what) { return kind_of(what).name; }

std::span<const MeasureKind> measure_kinds() { return kMeasureKinds; }

const MeasureKind& kind_of(RunMeasure what) {
  return *std::ranges::find(kMeasureKinds, what, &MeasureKind::what);
}

std::string measured_words(RunMeasure what, double value) {
  const std::string_view unit = kind_of(what).unit;
  if (unit == "ms") {
    return value < 999.5e3 ? fmt::format("{:.3g} ms", value * 1e-3)
                           : fmt::format("{:.3g} s", value * 1e-6);
  }
  if (unit == "GB") return fmt::format("{:.3g} GB", value * 1e-9);
  if (unit == "%") return fmt::format("{:.0f} %", value * 100);
  return fmt::format("{:.4g} {}", value, unit);
}

std::string measure_words(RunMeasure what, const RunSetting& at) {
  std::string words(to_string(what));
  if (at.batch > 0) words += fmt::format(" at batch {}", at.batch);
  if (at.world > 0) words += fmt::format(" on {} GPU{}", at.world, at.world > 1 ? "s" : "");
  if (at.tp > 0) words += fmt::format(" tp {}", at.tp);
  if (at.pp > 0) words += fmt::format(" pp {}", at.pp);
  if (at.micro_batch > 0) words += fmt::format(" micro-batch {}", at.micro_batch);
  return words;
}

}  // namespace perfmodel
