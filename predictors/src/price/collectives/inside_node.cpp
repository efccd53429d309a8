#include "price/collectives/inside_node.hpp"

#include <algorithm>
#include <cmath>
#include <span>

namespace perfmodel::collectives {
namespace {

using NcclRates = Topology::NcclTimes::Rates;

/// The curve at S >= S_0; beyond the last octave its last factor holds.
Terms curve_terms(const Topology::Curve& curve, Bytes first, CollectiveKind kind, Bytes bytes) {
  const double last = static_cast<double>(curve.octave_factors.size() - 1);
  const double place = std::clamp(std::log2(bytes.value / first.value), 0.0, last);
  const auto low = static_cast<std::size_t>(std::min(place, last - 1));
  const double fraction = place - static_cast<double>(low);
  const double factor =
      curve.octave_factors[low] *
      std::pow(curve.octave_factors[low + 1] / curve.octave_factors[low], fraction);
  const double wire = us(bus_factor(kind, curve.ranks) * bytes, curve.bus);
  return {.latency = curve.alpha.count() * factor, .wire = wire * factor};
}

/// All-reduce of n ranks from the curve of another group: equal bytes per ring take equal time.
Terms scaled_curve(const Topology& topology, const Topology::Curve& curve, int ranks, Bytes bytes,
                   double empty_us) {
  const double rings = topology.ring_channels(ranks), own = topology.ring_channels(curve.ranks);
  const double scale = ring_share(ranks) / rings / (ring_share(curve.ranks) / own);
  return measured_terms(curve, topology.first_bytes, CollectiveKind::kAllReduce, scale * bytes,
                        empty_us);
}

/// The curves of groups inside a node; groups of more ranks fill whole nodes.
std::span<const Topology::Curve> curves_inside(const Topology& topology) {
  const auto end = std::ranges::upper_bound(topology.curves, topology.gpus_per_node, {},
                                            &Topology::Curve::ranks);
  return {topology.curves.begin(), end};
}

Terms calibrated_all_reduce(const Topology& topology, int ranks, Bytes bytes, double empty_us) {
  const auto curves = curves_inside(topology);
  const auto above = std::ranges::lower_bound(curves, ranks, {}, &Topology::Curve::ranks);
  if (above == curves.end()) return scaled_curve(topology, curves.back(), ranks, bytes, empty_us);
  const Terms high = scaled_curve(topology, *above, ranks, bytes, empty_us);
  if (above->ranks == ranks || above == curves.begin()) return high;
  const Topology::Curve& below = *(above - 1);
  const Terms low = scaled_curve(topology, below, ranks, bytes, empty_us);
  const double x = static_cast<double>(ranks - below.ranks) / (above->ranks - below.ranks);
  return {.latency = (1 - x) * low.latency + x * high.latency,
          .wire = (1 - x) * low.wire + x * high.wire};
}

/// Linear in n between the group sizes with a rate of their own, constant beyond them.
BytesPerSecond rate_of(const Topology::NcclTimes& nccl, BytesPerSecond NcclRates::*op, int ranks) {
  const auto above = std::ranges::lower_bound(nccl.rates, ranks, {}, &NcclRates::ranks);
  if (above == nccl.rates.end()) return nccl.rates.back().*op;
  if (above == nccl.rates.begin()) return nccl.rates.front().*op;
  const NcclRates& below = *(above - 1);
  const double x = static_cast<double>(ranks - below.ranks) / (above->ranks - below.ranks);
  return {std::lerp((below.*op).value, ((*above).*op).value, x)};
}

bool sends_all(CollectiveKind kind) {
  return kind == CollectiveKind::kBroadcast || kind == CollectiveKind::kReduce;
}

BytesPerSecond NcclRates::*rate_field(CollectiveKind kind) {
  if (kind == CollectiveKind::kAllReduce) return &NcclRates::all_reduce;
  return kind == CollectiveKind::kReduceScatter ? &NcclRates::reduce_scatter
                                                : &NcclRates::all_gather;
}

/// All-reduce, all-gather, reduce-scatter; broadcast and reduce as the all-gather that puts as many
/// bytes on the wire.
Terms ring_times(const Topology::NcclTimes& nccl, const CollectiveQuery& query) {
  const double n = query.ranks, share = ring_share(n);
  const double passes = query.kind == CollectiveKind::kAllReduce ? 2 : 1;
  const double steps = passes * (n - 1);
  const Bytes bytes = sends_all(query.kind) ? (1 / share) * query.bytes : query.bytes;
  const double risen = 1 + nccl.rise * bytes.value / (bytes + nccl.rise_bytes).value;
  return cheaper(
      {.latency = (nccl.base + steps * nccl.hop).count() * risen,
       .wire = us(passes * bytes, nccl.low_rate)},
      {.latency = (nccl.simple_base + steps * nccl.simple_hop).count(),
       .wire = us(passes * share * bytes, rate_of(nccl, rate_field(query.kind), query.ranks))});
}

bool in_fitted_range(const Topology::NcclTimes& nccl, const CollectiveQuery& query) {
  using enum CollectiveKind;
  if (query.kind != kAllReduce && query.kind != kAllGather && query.kind != kReduceScatter &&
      query.kind != kAllToAll) {
    return false;
  }
  const auto rates = std::ranges::find(nccl.rates, query.ranks, &NcclRates::ranks);
  return rates != nccl.rates.end() && rates->measured && query.bytes >= nccl.first_bytes &&
         query.bytes <= nccl.last_bytes;
}

bool on_curve(const Topology::Curve& curve, Bytes first, Bytes bytes) {
  const auto octaves = static_cast<int>(curve.octave_factors.size()) - 1;
  return bytes >= first && bytes.value <= std::ldexp(first.value, octaves);
}

double empty_all_reduce_us(const Topology& topology, int ranks) {
  const auto tuning = NcclTuning::make(nccl_tuning_input(topology, {.ranks = ranks}));
  return tuning->time(tuning->best({0}), {0}).count();
}

/// Groups of more ranks than were measured: a ring grows with them, NVLink SHARP sums in the switch
/// and keeps its latency. No group is faster than the largest measured one.
Terms times_of(const Topology& topology, const CollectiveQuery& query) {
  const Terms ring = ring_times(*topology.nccl, query);
  const NcclRates& largest = topology.nccl->rates.back();
  if (query.ranks <= largest.ranks) return ring;
  Terms best = ring;
  const auto tuning = NcclTuning::make(nccl_tuning_input(topology, query));
  for (const NcclOption& option : tuning->options()) {
    if (option.algorithm != NcclAlgorithm::kNvls) continue;
    const Bytes wire = bus_factor(query.kind, query.ranks) * query.bytes;
    best = cheaper(
        best, {.latency = option.latency_us,
               .wire = us(wire, rate_of(*topology.nccl, rate_field(query.kind), query.ranks))});
  }
  CollectiveQuery fewer = query;
  fewer.ranks = largest.ranks;
  return longer(best, ring_times(*topology.nccl, fewer));
}

/// A topology with NCCL's times. Curves of all-reduce go before them from their first size on;
/// below it, no time is longer than the curve's first one, so that none falls with bytes.
Terms fitted_terms(const Topology& topology, const CollectiveQuery& query) {
  const Terms protocols = times_of(topology, query);
  if (query.kind != CollectiveKind::kAllReduce || curves_inside(topology).empty()) return protocols;
  const Terms curve =
      calibrated_all_reduce(topology, query.ranks, std::max(query.bytes, topology.first_bytes),
                            empty_all_reduce_us(topology, query.ranks));
  return query.bytes >= topology.first_bytes ? curve : cheaper(protocols, curve);
}

/// Curves of all-reduces alone: of others each is half of one, with one launch.
Terms terms_by_curves(const Topology& topology, const CollectiveQuery& query) {
  const Bytes like =
      sends_all(query.kind) ? (1 / ring_share(query.ranks)) * query.bytes : query.bytes;
  const Terms terms = calibrated_all_reduce(topology, query.ranks, like,
                                            empty_all_reduce_us(topology, query.ranks));
  if (query.kind == CollectiveKind::kAllReduce) return terms;
  return {.latency = (terms.latency + kLaunchUs) / 2, .wire = terms.wire / 2};
}

/// The curve of exactly this group and collective, alone on its nodes, or nullptr.
const Topology::GroupCurve* group_curve(const Topology& topology, const CollectiveQuery& query) {
  if (query.node_stride != 1 || query.groups_per_node != 1) return nullptr;
  const auto is_it = [&](const Topology::GroupCurve& measured) {
    return measured.kind == query.kind && measured.curve.ranks == query.ranks &&
           measured.nodes == query.nodes;
  };
  const auto found = std::ranges::find_if(topology.group_curves, is_it);
  return found == topology.group_curves.end() ? nullptr : &*found;
}

Terms inside_by_model(const Topology& topology, const CollectiveQuery& query) {
  if (topology.nccl) return fitted_terms(topology, query);
  if (!curves_inside(topology).empty()) return terms_by_curves(topology, query);
  const auto tuning = NcclTuning::make(nccl_tuning_input(topology, query));
  PERFMODEL_CHECK(tuning.has_value());  // read_topology gives valid figures
  return tuned_terms(*tuning, query.bytes);
}

}  // namespace

Terms measured_terms(const Topology::Curve& curve, Bytes first, CollectiveKind kind, Bytes bytes,
                     double empty_us) {
  if (bytes >= first) return curve_terms(curve, first, kind, bytes);
  const Terms at_first = curve_terms(curve, first, kind, first);
  const double floor = std::min(empty_us, at_first.time());
  const double share = bytes.value / first.value;
  const double first_latency = std::max(at_first.latency, floor);
  return {.latency = floor + (first_latency - floor) * share,
          .wire = (at_first.time() - first_latency) * share};
}

const Topology::Curve* curve_between(const Topology& topology, const CollectiveQuery& query) {
  if (query.kind != CollectiveKind::kAllReduce || query.nodes < 2 || query.node_stride != 1 ||
      query.ranks != query.nodes * topology.gpus_per_node) {
    return nullptr;
  }
  const auto curve = std::ranges::find(topology.curves, query.ranks, &Topology::Curve::ranks);
  return curve == topology.curves.end() ? nullptr : &*curve;
}

bool is_measured(const Topology& topology, const CollectiveQuery& query) {
  if (!topology.unknown_generation.empty() || !topology.intra.unknown_kind.empty()) return false;
  if (const auto* own = group_curve(topology, query)) {
    return on_curve(own->curve, own->first_bytes, query.bytes);
  }
  if (query.nodes != 1 && !curve_between(topology, query)) return false;
  if (query.nodes == 1 && topology.nccl && in_fitted_range(*topology.nccl, query)) return true;
  if (query.kind != CollectiveKind::kAllReduce) return false;
  const auto curve = std::ranges::find(topology.curves, query.ranks, &Topology::Curve::ranks);
  return curve != topology.curves.end() && on_curve(*curve, topology.first_bytes, query.bytes);
}

BytesPerSecond all_to_all_rate(const Topology::NcclTimes& nccl, int ranks) {
  return rate_of(nccl, &NcclRates::all_to_all, ranks);
}

Terms tuned_terms(const NcclTuning& tuning, Bytes bytes, bool simple) {
  const double time = tuning.monotone_time(bytes, simple).count();
  const NcclOption& best = tuning.best(bytes, simple);
  const double latency = std::min(time, best.latency_us);
  return {.latency = latency,
          .wire = time - latency,
          .algorithm = to_string(best.algorithm),
          .protocol = to_string(best.protocol)};
}

Terms measured_or(const Topology& topology, const CollectiveQuery& query, Pricing price) {
  const Topology::GroupCurve* own = group_curve(topology, query);
  if (!own) return price(topology, query);
  CollectiveQuery empty = query;
  empty.bytes = {};
  return measured_terms(own->curve, own->first_bytes, query.kind, query.bytes,
                        price(topology, empty).time());
}

Terms inside_node(const Topology& topology, const CollectiveQuery& query) {
  return measured_or(topology, query, inside_by_model);
}

}  // namespace perfmodel::collectives
