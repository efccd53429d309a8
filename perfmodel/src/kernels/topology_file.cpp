#include "kernels/topology_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "base/each_name.hpp"
#include "files/json_file.hpp"
#include "gpu/builtin_topologies.hpp"
#include "kernels/topology_faults.hpp"

namespace perfmodel {
namespace {

constexpr CollectiveKind kAllReduce = CollectiveKind::kAllReduce;

/// A curve of the format from a time that never falls, at octaves from `first` to `last`. Between
/// octaves log c is linear, so c is raised where the time would fall there.
OrderedJson curve_json(CollectiveKind kind, int ranks, double alpha, double us_per_byte,
                       double first, double last, const std::function<double(double)>& us) {
  std::vector<double> factors;
  for (double bytes = first, before = 0; bytes < 2 * last; before = bytes, bytes *= 2) {
    double factor = us(bytes) / (alpha + us_per_byte * bytes);
    if (!factors.empty()) {
      const double wire = us_per_byte * before;
      factor = std::max(factor, factors.back() * std::exp2(-wire / (alpha + wire)));
    }
    factors.push_back(factor);
  }
  return {{"ranks", ranks},
          {"alpha_us", alpha},
          {"bus_gb_per_s", bus_factor(kind, ranks) / us_per_byte * 1e-3},
          {"octave_factors", factors}};
}

/// The line through the measured sizes as a curve.
OrderedJson fitted_curve_json(const GroupFit& at, double first, double last) {
  const double wire = at.line.slope > 0 ? at.line.slope : at.line.us(last) / last;
  return curve_json(at.group.kind, at.group.ranks,
                    at.line.base > 0 ? at.line.base : at.line.us(first), wire, first, last,
                    [&](double bytes) { return bent_us(at.line, at.group.sizes, bytes); });
}

/// One octave below the first size.
double first_bytes(const GroupFit& at) {
  return std::exp2(std::floor(std::log2(at.group.sizes.front().bytes)) - 1);
}

/// Whether the section `all_reduce` holds the group; `collectives` holds the others.
bool has_curve(const Topology& topology, const MeasuredGroup& group) {
  return group.kind == CollectiveKind::kAllReduce &&
         (group.nodes == 1 || group.ranks == group.nodes * topology.gpus_per_node);
}

/// Curves of all measured all-reduces from one octave below the first size on, and of the groups of
/// `like` that were not measured.
OrderedJson curves_json(const TopologyFit& fit, const Topology& like) {
  double first = 1 << 30, last = 0;
  for (const GroupFit& at : fit.groups) {
    if (!has_curve(like, at.group)) continue;
    first = std::min(first, first_bytes(at));
    last = std::max(last, at.group.sizes.back().bytes);
  }
  std::map<int, OrderedJson> curves;
  for (const Topology::Curve& curve : like.curves) {
    const MeasuredGroup group{.ranks = curve.ranks,
                              .nodes = (curve.ranks - 1) / like.gpus_per_node + 1};
    curves[curve.ranks] =
        curve_json(kAllReduce, curve.ranks, curve.alpha.count(),
                   bus_factor(kAllReduce, curve.ranks) / curve.bus.value * 1e6, first, last,
                   [&](double bytes) { return group_us(like, group, bytes).value(); });
  }
  for (const GroupFit& at : fit.groups) {
    if (!has_curve(like, at.group)) continue;
    curves[at.group.ranks] = fitted_curve_json(at, first, last);
  }
  OrderedJson list = OrderedJson::array();
  for (auto& [ranks, curve] : curves) list.push_back(std::move(curve));
  return {{"source", "logs of nccl-tests or rccl-tests"},
          {"software", "as in the logs"},
          {"fitted", "all sizes"},
          {"command", "perfpredict topology fit"},
          {"first_bytes", first},
          {"curves", list}};
}

/// Curves of all groups that have no curve of all-reduces, and `like`'s curves of other groups.
OrderedJson group_curves_json(const TopologyFit& fit, const Topology& like, OrderedJson list) {
  for (const GroupFit& at : fit.groups) {
    if (has_curve(like, at.group)) continue;
    const double first = first_bytes(at), last = at.group.sizes.back().bytes;
    OrderedJson curve = {{"op", to_string(at.group.kind)}, {"nodes", at.group.nodes}};
    curve["first_bytes"] = first;
    curve.update(fitted_curve_json(at, first, last));
    std::erase_if(list.get_ref<OrderedJson::array_t&>(), [&](const OrderedJson& old) {
      return old["op"] == curve["op"] && old["nodes"] == curve["nodes"] &&
             old["ranks"] == curve["ranks"];
    });
    list.push_back(std::move(curve));
  }
  return list;
}

/// Replaces the file's rates by the topology's.
void write_rates(const Topology& topology, OrderedJson& file) {
  if (!topology.nccl) return;
  for (OrderedJson& entry : file["nccl"]["rates"]) {
    const auto own = std::ranges::find(topology.nccl->rates, entry["ranks"].get<int>(),
                                       &Topology::NcclTimes::Rates::ranks);
    entry["all_reduce_gb_per_s"] = own->all_reduce.value * 1e-9;
    entry["all_gather_gb_per_s"] = own->all_gather.value * 1e-9;
    entry["reduce_scatter_gb_per_s"] = own->reduce_scatter.value * 1e-9;
    entry["all_to_all_gb_per_s"] = own->all_to_all.value * 1e-9;
  }
}

Result<OrderedJson> file_of(const Topology& like, const std::string& asked) {
  for (const auto& [name, text] : builtin_topology_files()) {
    const OrderedJson json = OrderedJson::parse(text, nullptr, false);
    if (json.value("name", "") == like.name) return json;
  }
  PERFMODEL_TRY(text, read_json_text(asked, "topology file"));
  return OrderedJson::parse(*text, nullptr, false);  // it has been read before
}

}  // namespace

Result<OrderedJson> topology_json(const TopologyFitStudy& study, const TopologyFit& fit,
                                  const Topology& fitted) {
  PERFMODEL_TRY(json, file_of(fit.healthy, study.like));
  OrderedJson& file = *json;
  file["name"] = study.name.empty() ? fit.healthy.name + "-fitted" : study.name;
  file["title"] = "Fitted to logs; like " + fit.healthy.name;
  file["default_for"] = OrderedJson::array();
  if (fitted.nic) {
    file["nic"] = {{"count", fitted.nic->count},
                   {"gb_per_s", fitted.nic->bandwidth.value * 1e-9},
                   {"latency_us", fitted.nic->latency.count()},
                   PERFMODEL_VALUES((*fitted.nic), efficiency, ll128, pair_trees),
                   {"in_flight_bytes", fitted.nic->in_flight.value}};
  }
  write_rates(fitted, file);
  const auto is_kept = [&](const GroupFit& at) { return has_curve(fitted, at.group); };
  if (std::ranges::any_of(fit.groups, is_kept)) file["all_reduce"] = curves_json(fit, fit.healthy);
  const OrderedJson before = file.value("collectives", OrderedJson::array());
  file["collectives"] = group_curves_json(fit, fit.healthy, before);
  file["notes"] = fmt::format("Fitted to logs; the rest is copied from {}.", fit.healthy.name);
  file["sources"] = {"logs of nccl-tests or rccl-tests on this machine"};
  return json;
}

}  // namespace perfmodel
