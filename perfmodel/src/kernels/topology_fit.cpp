#include "kernels/topology_fit.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>

#include "base/byte_amount.hpp"
#include "base/impossible.hpp"
#include "base/statistics.hpp"
#include "files/json_file.hpp"
#include "kernels/collective_answer.hpp"
#include "kernels/topology_faults.hpp"
#include "kernels/topology_file.hpp"
#include "perfmodel/data_files.hpp"

namespace perfmodel {
namespace {

constexpr double kKib = 1024, kMib = 1 << 20;

/// Error: the sizes cannot tell the figures of a line apart.
Result<void> check_sizes(const MeasuredGroup& group) {
  constexpr std::size_t kFewest = 5;
  const double first = group.sizes.front().bytes, last = group.sizes.back().bytes;
  if (group.sizes.size() >= kFewest && last >= 64 * kMib && last >= 64 * first) return {};
  std::vector<std::string> missing;
  for (const double bytes : {kKib, 16 * kKib, 256 * kKib, 4 * kMib, 64 * kMib, 1024 * kMib}) {
    const auto is_near = [&](const MeasuredSize& size) {
      return size.bytes < 4 * bytes && bytes < 4 * size.bytes;
    };
    if (std::ranges::none_of(group.sizes, is_near)) missing.push_back(byte_amount_text(bytes));
  }
  return impossible(
      fmt::format(
          "at least {} sizes of {} up to 64 MiB or more, 64 times the smallest (without {})",
          kFewest, group.text(), fmt::join(missing, ", ")),
      fmt::format("{} from {} to {}", group.sizes.size(), byte_amount_text(first),
                  byte_amount_text(last)));
}

using NamedFigure = std::pair<const char*, std::function<double(const TimeLine&)>>;

/// Figures with their least and greatest value if any one size is left out.
std::vector<FittedFigure> figures_of(const MeasuredGroup& group, const TimeLine& line) {
  const double factor = bus_factor(group.kind, group.ranks);
  const NamedFigure named[] = {{"latency_us", [](const TimeLine& l) { return l.base; }},
                               {"simple_us", [](const TimeLine& l) { return l.simple; }},
                               {"fill_us", [](const TimeLine& l) { return l.fill; }},
                               {"bus_gb_per_s", [&](const TimeLine& l) {
                                  return l.slope > 0 ? factor / l.slope * 1e-3 : 0;
                                }}};
  std::vector<FittedFigure> figures;
  for (const auto& [name, value] : named)
    figures.push_back({name, value(line), value(line), value(line)});
  for (std::size_t left_out = 0; left_out < group.sizes.size(); ++left_out) {
    std::vector<MeasuredSize> sizes = group.sizes;
    sizes.erase(sizes.begin() + static_cast<std::ptrdiff_t>(left_out));
    const TimeLine other = fit_time_line(sizes);
    for (std::size_t i = 0; i < figures.size(); ++i) {
      const double value = named[i].second(other);
      figures[i].low = std::min(figures[i].low, value);
      figures[i].high = std::max(figures[i].high, value);
    }
  }
  return figures;
}

GroupFit fit_group(const Topology& healthy, const MeasuredGroup& group) {
  constexpr double kClose = 6;
  GroupFit fit{.group = group, .line = fit_time_line(group.sizes)};
  fit.figures = figures_of(group, fit.line);
  fit.error_percent = mean_error_percent(fit.line, group.sizes);
  fit.half_percent = held_out_percent(group.sizes, 2);
  fit.enough = group.sizes.size();
  for (std::size_t stride = 2; stride <= 4; ++stride) {
    const auto off = held_out_percent(group.sizes, stride);
    if (!off || *off > kClose) break;
    fit.enough = group.sizes.size() / stride;
  }
  fit.deviations = deviations(healthy, group);
  return fit;
}

/// A figure of the NICs, which the time rises or falls with.
struct NicSetting {
  double low = 0, high = 0;
  bool rises = false;
  void (*set)(Topology&, double) = nullptr;
};

/// The value at which the topology takes the measured time, by bisection; nothing if it takes it
/// nowhere between `low` and `high`, because links inside the nodes decide, say.
std::optional<double> setting_for(Topology topology, const MeasuredGroup& group,
                                  const MeasuredSize& size, const NicSetting& setting) {
  double low = setting.low, high = setting.high;
  for (int step = 0; step < 40; ++step) {
    const double middle = std::sqrt(low * high);
    setting.set(topology, middle);
    const bool is_longer = group_us(topology, group, size.bytes).value() > size.us;
    (is_longer == setting.rises ? high : low) = middle;
  }
  if (low == setting.low || high == setting.high) return std::nullopt;
  return low;
}

/// Sets the figure to the median over the sizes from `first` to `last`. It stays if it cannot
/// explain most of them: then links inside the nodes decide the others.
void fit_setting(const char* name, double first, double last, const NicSetting& setting,
                 Topology& topology, TopologyFit& fit) {
  std::vector<double> found;
  std::size_t asked = 0;
  for (const GroupFit& at : fit.groups) {
    for (const MeasuredSize& size : at.group.sizes) {
      if (at.group.nodes < 2 || size.bytes < first || size.bytes > last) continue;
      ++asked;
      if (auto value = setting_for(topology, at.group, size, setting)) found.push_back(*value);
    }
  }
  if (found.empty() || 2 * found.size() < asked) return;
  const auto [low, high] = std::ranges::minmax(found);
  fit.figures.push_back({name, median_of(found), low, high});
  setting.set(topology, fit.figures.back().value);
}

void fit_nics(Topology& topology, TopologyFit& fit) {
  fit_setting("nic_efficiency", 256 * kMib, std::numeric_limits<double>::infinity(),
              {0.01, 1, false, [](Topology& on, double share) { on.nic->efficiency = share; }},
              topology, fit);
  fit_setting(
      "nic_latency_us", 0, 64 * kKib,
      {0.01, 1000, true, [](Topology& on, double us) { on.nic->latency = Microseconds{us}; }},
      topology, fit);
}

/// Links inside a node, as groups of one node show them: NCCL's rates of the sizes of groups that
/// the topology knows, which groups over several nodes rely on, too.
void fit_rates(Topology& topology, const TopologyFit& fit) {
  using Rates = Topology::NcclTimes::Rates;
  static const std::map<CollectiveKind, BytesPerSecond Rates::*> kFields = {
      {CollectiveKind::kAllReduce, &Rates::all_reduce},
      {CollectiveKind::kAllGather, &Rates::all_gather},
      {CollectiveKind::kReduceScatter, &Rates::reduce_scatter},
      {CollectiveKind::kAllToAll, &Rates::all_to_all}};
  if (!topology.nccl) return;
  for (const GroupFit& at : fit.groups) {
    const auto field = kFields.find(at.group.kind);
    if (at.group.nodes > 1 || field == kFields.end() || at.line.slope <= 0) continue;
    auto& rates = topology.nccl->rates;
    const auto own = std::ranges::find(rates, at.group.ranks, &Rates::ranks);
    if (own == rates.end()) continue;
    (*own).*(field->second) = {bus_factor(at.group.kind, at.group.ranks) / at.line.slope * 1e6};
  }
}

/// Warns if no group between so many nodes would show one missing NIC.
void warn_of_hidden_nics(TopologyFit& fit) {
  std::map<int, bool> shown;
  for (const GroupFit& at : fit.groups) {
    if (at.group.nodes > 1) shown[at.group.nodes] |= shows_a_nic(fit.healthy, at.group);
  }
  for (const auto& [nodes, is_shown] : shown) {
    if (is_shown) continue;
    fit.warnings.push_back(fmt::format(
        "a missing NIC would not show between {} nodes: links inside them decide; a log of "
        "all_to_all (alltoall_perf) shows it",
        nodes));
  }
}

}  // namespace

Result<TopologyFit> fit_topology(const TopologyFitStudy& study) {
  if (!study.name.empty() && !is_plain_name(study.name)) {
    return impossible("a name of letters, digits, \"-\", \"_\" and \".\"", study.name);
  }
  PERFMODEL_TRY(groups, read_nccl_logs({study.logs.begin(), study.logs.end()}, study.reading));
  PERFMODEL_TRY(data, find_data_folder());
  PERFMODEL_TRY(gpu, find_gpu(study.gpu, *data / "gpus"));
  TopologyFit fit;
  PERFMODEL_TRY(healthy, topology_named(study.like, *gpu, study.network, fit.warnings));
  fit.healthy = *healthy;
  for (MeasuredGroup& group : *groups) {
    group.nodes = nodes_of_machines(*healthy, group.ranks, group.nodes);
    PERFMODEL_TRY_TO(check_sizes(group));
    PERFMODEL_TRY(us, group_us(*healthy, group, group.sizes.back().bytes));
    fit.groups.push_back(fit_group(*healthy, group));
  }
  warn_of_hidden_nics(fit);
  Topology fitted = *healthy;
  fit_rates(fitted, fit);
  if (fitted.nic) fit_nics(fitted, fit);
  PERFMODEL_TRY(json, topology_json(study, fit, fitted));
  fit.topology = std::move(*json);
  return fit;
}

}  // namespace perfmodel
