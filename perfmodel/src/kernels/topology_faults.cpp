#include "kernels/topology_faults.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "base/byte_amount.hpp"
#include "base/statistics.hpp"
#include "perfmodel/predictors/detail/collectives.hpp"

namespace perfmodel {
namespace {

// A machine that is off by less is taken for healthy: machines of one kind differ.
constexpr double kOffAtLeast = 0.08;

/// A fault and the times that the group's sizes would take with it.
struct Fault {
  std::string text;
  std::vector<double> us;
};

std::vector<double> times_on(const Topology& topology, const MeasuredGroup& group) {
  std::vector<double> times;
  for (const MeasuredSize& size : group.sizes) {
    times.push_back(group_us(topology, group, size.bytes).value());
  }
  return times;
}

Topology with_half_links(Topology topology) {
  Topology::Intra& intra = topology.intra;
  for (BytesPerSecond* rate : {&intra.gpu_bandwidth, &intra.channel_bandwidth, &intra.p2p_bandwidth,
                               &intra.all_to_all_bandwidth}) {
    rate->value /= 2;
  }
  for (Topology::Curve& curve : topology.curves) curve.bus.value /= 2;
  if (!topology.nccl) return topology;
  for (auto& rates : topology.nccl->rates) {
    for (BytesPerSecond* rate :
         {&rates.all_reduce, &rates.all_gather, &rates.reduce_scatter, &rates.all_to_all}) {
      rate->value /= 2;
    }
  }
  return topology;
}

void add_nic_faults(const Topology& healthy, const MeasuredGroup& group,
                    std::vector<Fault>& faults) {
  const int count = healthy.nic->count;
  Topology broken = healthy;
  for (int missing = 1; 2 * missing < count; ++missing) {
    broken.nic->count = count - missing;
    faults.push_back({missing == 1 ? fmt::format("one NIC of {} is missing", count)
                                   : fmt::format("{} NICs of {} are missing", missing, count),
                      times_on(broken, group)});
  }
  broken = healthy;
  broken.nic->bandwidth.value /= 2;
  faults.push_back(
      {fmt::format("a NIC or its link is at half rate and the others wait for it, or half of {} "
                   "are missing",
                   count),
       times_on(broken, group)});
}

double fastest_us(const NcclTuning& tuning, NcclAlgorithm algorithm, Bytes bytes) {
  double least = std::numeric_limits<double>::infinity();
  for (const NcclOption& option : tuning.options()) {
    if (option.algorithm == algorithm) least = std::min(least, tuning.time(option, bytes).count());
  }
  return least;
}

/// Adds every algorithm except the one that NCCL's model takes for the largest size. Inside a node
/// it is slower than the healthy machine by the factor of that model; between nodes the model's
/// time counts, if it is longer.
void add_algorithm_faults(const Topology& healthy, const MeasuredGroup& group,
                          std::vector<Fault>& faults) {
  const auto tuning = NcclTuning::make(nccl_tuning_input(
      healthy, {.kind = group.kind, .bytes = {}, .ranks = group.ranks, .nodes = group.nodes}));
  if (!tuning) return;  // an all-to-all, say, has no choice
  const NcclAlgorithm expected = tuning->best({group.sizes.back().bytes}).algorithm;
  const std::vector<double> usual = times_on(healthy, group);
  for (const auto algorithm : {NcclAlgorithm::kRing, NcclAlgorithm::kTree, NcclAlgorithm::kNvls,
                               NcclAlgorithm::kNvlsTree}) {
    Fault fault{.text = fmt::format("NCCL takes {} where {} is expected", to_string(algorithm),
                                    to_string(expected)),
                .us = usual};
    for (std::size_t i = 0; i < usual.size(); ++i) {
      const Bytes bytes{group.sizes[i].bytes};
      const double us = fastest_us(*tuning, algorithm, bytes);
      fault.us[i] = group.nodes > 1
                        ? std::max(us, usual[i])
                        : us * usual[i] / tuning->time(tuning->best(bytes), bytes).count();
    }
    if (algorithm != expected && std::isfinite(fault.us.back())) faults.push_back(std::move(fault));
  }
}

/// Mean |log(measured / predicted)|, of sizes where `moved` and `usual` differ if they are given.
double distance(const MeasuredGroup& group, const std::vector<double>& us,
                const std::vector<double>& moved = {}, const std::vector<double>& usual = {}) {
  constexpr double kMoved = 1.03;
  double sum = 0, sizes = 0;
  for (std::size_t i = 0; i < us.size(); ++i) {
    if (!moved.empty() && moved[i] < kMoved * usual[i] && usual[i] < kMoved * moved[i]) continue;
    sum += std::abs(std::log(group.sizes[i].us / us[i]));
    ++sizes;
  }
  return sizes > 0 ? sum / sizes : 0;
}

/// The fault that comes closest, if the sizes that it moves are 8 % or more off (healthy
/// machines of one kind differ by less), and with it half as much and at most 15 %.
std::optional<std::string> best_fault(const Topology& healthy, const MeasuredGroup& group,
                                      const std::vector<double>& usual) {
  constexpr double kExplains = 0.5, kMost = 0.15;
  std::vector<Fault> faults;
  if (group.nodes > 1) add_nic_faults(healthy, group, faults);
  faults.push_back({"a link between GPUs of a node is at half rate, and the others wait for it",
                    times_on(with_half_links(healthy), group)});
  add_algorithm_faults(healthy, group, faults);
  const auto best = std::ranges::min_element(
      faults, {}, [&](const Fault& fault) { return distance(group, fault.us); });
  const double before = distance(group, usual, best->us, usual);
  const double after = distance(group, best->us, best->us, usual);
  if (before < kOffAtLeast || after > std::min(kMost, kExplains * before)) return std::nullopt;
  const double x = usual.back() / group.sizes.back().us;
  return fmt::format("{}: as if {} (x {:.2f} at {}; {:.0f} % off then, {:.0f} % without)",
                     group.text(), best->text, x, byte_amount_text(group.sizes.back().bytes),
                     100 * after, 100 * before);
}

}  // namespace

bool shows_a_nic(const Topology& healthy, const MeasuredGroup& group) {
  if (healthy.nic->count < 2) return false;
  const std::vector<double> usual = times_on(healthy, group);
  Topology broken = healthy;
  --broken.nic->count;
  const std::vector<double> less = times_on(broken, group);
  for (std::size_t i = 0; i < usual.size(); ++i) {
    if (less[i] > (1 + kOffAtLeast) * usual[i]) return true;
  }
  return false;
}

Result<double> group_us(const Topology& topology, const MeasuredGroup& group, double bytes) {
  PERFMODEL_TRY(time, collective_time(topology, {.kind = group.kind,
                                                 .bytes = {bytes},
                                                 .ranks = group.ranks,
                                                 .nodes = group.nodes}));
  return time->time.count();
}

std::vector<std::string> deviations(const Topology& healthy, const MeasuredGroup& group) {
  constexpr double kOff = 0.15, kMib = 1 << 20, kNoEnd = std::numeric_limits<double>::infinity();
  struct Band {
    double first, end;
    const char* text;
  };
  const std::vector<double> usual = times_on(healthy, group);
  std::vector<std::string> sentences;
  for (const Band& band : {Band{0, kMib / 16, "below 64 KiB"},
                           {kMib / 16, kMib, "from 64 KiB to 1 MiB"},
                           {kMib, 256 * kMib, "from 1 to 256 MiB"},
                           {256 * kMib, kNoEnd, "from 256 MiB"}}) {
    std::vector<double> ratios;
    for (std::size_t i = 0; i < usual.size(); ++i) {
      const MeasuredSize& size = group.sizes[i];
      if (size.bytes >= band.first && size.bytes < band.end) ratios.push_back(usual[i] / size.us);
    }
    const double ratio = ratios.empty() ? 1 : median_of(ratios);
    if (std::abs(ratio - 1) < kOff) continue;
    sentences.push_back(fmt::format("{} {}: {:.0f} % {} {}", group.text(), band.text,
                                    100 * std::abs(ratio - 1), ratio < 1 ? "below" : "above",
                                    healthy.name));
  }
  if (auto fault = best_fault(healthy, group, usual)) sentences.push_back(std::move(*fault));
  return sentences;
}

}  // namespace perfmodel
