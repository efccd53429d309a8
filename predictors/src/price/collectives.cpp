#include "perfmodel/predictors/detail/collectives.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "base/impossible.hpp"

namespace perfmodel {
namespace {

/// Latency and what goes over the wire [us].
struct Terms {
  double latency = 0, wire = 0;
  double time() const { return latency + wire; }
};

// Base and hop latencies of NCCL's Simple ring, and its network hop (nccl_tuning.cpp).
constexpr double kBaseUs = 8.4, kNvlinkHopUs = 3.4, kPcieHopUs = 5.7, kNetworkHopUs = 14;
// [I] Every further peer on another node costs one more message.
constexpr double kNetworkPeerUs = 1;
// Base latency of NCCL's LL ring, paid once per launch.
constexpr double kLaunchUs = 6.6;

double us(Bytes bytes, BytesPerSecond rate) { return (bytes / rate).count(); }

// Each GPU of a node keeps so many bytes under way between the machines once NCCL's pipeline of
// chunks is full, with the protocol Simple. Fitted to printed nccl-tests and rccl-tests logs of two
// and four machines with H100, A100 and MI300X on InfiniBand, RoCE and EFA.
constexpr Bytes kInFlightPerGpu{5.7e6};

double ring_share(double n) { return (n - 1) / n; }

/// The curve at S >= S_0; beyond the last octave its last factor holds.
Terms curve_terms(const Topology::Curve& curve, Bytes first, Bytes bytes) {
  const double last = static_cast<double>(curve.octave_factors.size() - 1);
  const double place = std::clamp(std::log2(bytes.value / first.value), 0.0, last);
  const auto low = static_cast<std::size_t>(std::min(place, last - 1));
  const double fraction = place - static_cast<double>(low);
  const double factor =
      curve.octave_factors[low] *
      std::pow(curve.octave_factors[low + 1] / curve.octave_factors[low], fraction);
  const double wire = us(2 * ring_share(curve.ranks) * bytes, curve.bus);
  return {.latency = curve.alpha.count() * factor, .wire = wire * factor};
}

/// Group of n ranks from the curve of another group: equal bytes per ring take equal time.
Terms scaled_curve(const Topology& topology, const Topology::Curve& curve, int ranks, Bytes bytes,
                   double empty_us) {
  const double rings = topology.ring_channels(ranks), own = topology.ring_channels(curve.ranks);
  const double scale = ring_share(ranks) / rings / (ring_share(curve.ranks) / own);
  const Bytes like = scale * bytes;
  if (like >= topology.first_bytes) return curve_terms(curve, topology.first_bytes, like);
  // Below the measured sizes: from the latency of an empty buffer straight to the first point.
  const Terms first = curve_terms(curve, topology.first_bytes, topology.first_bytes);
  const double floor = std::min(empty_us, first.time());
  const double share = like.value / topology.first_bytes.value;
  const double first_latency = std::max(first.latency, floor);
  return {.latency = floor + (first_latency - floor) * share,
          .wire = (first.time() - first_latency) * share};
}

/// The curves of groups inside a node; groups of more ranks fill whole nodes.
std::span<const Topology::Curve> curves_inside(const Topology& topology) {
  const auto end = std::ranges::upper_bound(topology.curves, topology.gpus_per_node, {},
                                            &Topology::Curve::ranks);
  return {topology.curves.begin(), end};
}

/// The curve of exactly this group of whole nodes next to each other, or nullptr.
const Topology::Curve* curve_between(const Topology& topology, const CollectiveQuery& query) {
  if (query.kind != CollectiveKind::kAllReduce || query.nodes < 2 || query.node_stride != 1 ||
      query.ranks != query.nodes * topology.gpus_per_node) {
    return nullptr;
  }
  const auto curve = std::ranges::find(topology.curves, query.ranks, &Topology::Curve::ranks);
  return curve == topology.curves.end() ? nullptr : &*curve;
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

/// What NCCL would take if it chose well.
Terms cheaper(const Terms& one, const Terms& other) {
  return other.time() < one.time() ? other : one;
}

using NcclRates = Topology::NcclTimes::Rates;

/// Linear in n between the group sizes with a rate of their own, constant beyond them.
BytesPerSecond rate_of(const Topology::NcclTimes& nccl, BytesPerSecond NcclRates::*op, int ranks) {
  const auto above = std::ranges::lower_bound(nccl.rates, ranks, {}, &NcclRates::ranks);
  if (above == nccl.rates.end()) return nccl.rates.back().*op;
  if (above == nccl.rates.begin()) return nccl.rates.front().*op;
  const NcclRates& below = *(above - 1);
  const double x = static_cast<double>(ranks - below.ranks) / (above->ranks - below.ranks);
  return {std::lerp((below.*op).value, ((*above).*op).value, x)};
}

/// All-reduce, all-gather, reduce-scatter; broadcast and reduce as the all-gather that puts as many
/// bytes on the wire.
Terms ring_times(const Topology::NcclTimes& nccl, const CollectiveQuery& query) {
  const double n = query.ranks, share = ring_share(n);
  const double passes = query.kind == CollectiveKind::kAllReduce ? 2 : 1;
  const double steps = passes * (n - 1);
  const bool whole =
      query.kind == CollectiveKind::kBroadcast || query.kind == CollectiveKind::kReduce;
  const Bytes bytes = whole ? (1 / share) * query.bytes : query.bytes;
  const auto op = query.kind == CollectiveKind::kAllReduce       ? &NcclRates::all_reduce
                  : query.kind == CollectiveKind::kReduceScatter ? &NcclRates::reduce_scatter
                                                                 : &NcclRates::all_gather;
  const double risen = 1 + nccl.rise * bytes.value / (bytes + nccl.rise_bytes).value;
  return cheaper({.latency = (nccl.base + steps * nccl.hop).count() * risen,
                  .wire = us(passes * bytes, nccl.low_rate)},
                 {.latency = (nccl.simple_base + steps * nccl.simple_hop).count(),
                  .wire = us(passes * share * bytes, rate_of(nccl, op, query.ranks))});
}

/// Messages to every other rank, `to_others` bytes in all. NCCL's own count is n / (n-1) times
/// that.
Terms all_to_all_times(const Topology::NcclTimes& nccl, int ranks, Bytes to_others) {
  const auto& own = nccl.all_to_all;
  return cheaper(
      {.latency = own.base.count(), .wire = us((1 / ring_share(ranks)) * to_others, own.low_rate)},
      {.latency = own.simple_base.count(),
       .wire = us(to_others, rate_of(nccl, &NcclRates::all_to_all, ranks))});
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

/// Bytes and group sizes inside the measured ones.
bool measured(const Topology& topology, const CollectiveQuery& query) {
  if (!topology.unknown_generation.empty() || !topology.intra.unknown_kind.empty()) return false;
  if (query.nodes != 1 && !curve_between(topology, query)) return false;
  if (query.nodes == 1 && topology.nccl && in_fitted_range(*topology.nccl, query)) return true;
  if (query.kind != CollectiveKind::kAllReduce) return false;
  const auto curve = std::ranges::find(topology.curves, query.ranks, &Topology::Curve::ranks);
  if (curve == topology.curves.end()) return false;
  const auto octaves = static_cast<int>(curve->octave_factors.size()) - 1;
  return query.bytes >= topology.first_bytes &&
         query.bytes.value <= std::ldexp(topology.first_bytes.value, octaves);
}

/// Bandwidth of the NICs that a node's part of the group can use: those beside its ranks, at least
/// one, and no more than an equal part of all where several groups of the node are active.
BytesPerSecond node_bandwidth(const Topology& topology, double ranks_per_node,
                              int groups_per_node) {
  const Topology::Nic& nic = *topology.nic;
  const double beside = std::max(nic.count * ranks_per_node / topology.gpus_per_node, 1.0);
  const double part = static_cast<double>(nic.count) / groups_per_node;
  return std::min(beside, part) * nic.efficiency * nic.bandwidth;
}

/// Nodes of a group that lie below one switch of a level.
double nodes_below(const Topology::Network::Level& level, int nodes, int stride) {
  return std::clamp(level.nodes / stride, 1, nodes);
}

/// Share of a node's NICs that what goes from one node to the next can use.
double ring_share_of_network(const Topology& topology, int nodes, int stride) {
  if (!topology.network) return 1;
  double share = 1, over = 1;
  for (const Topology::Network::Level& level : topology.network->levels) {
    const double below = nodes_below(level, nodes, stride);
    if (below >= nodes) break;
    over *= level.oversubscription;
    share = std::min(share, below / over);
  }
  return share;
}

/// Of messages between all nodes: share of a leaf's traffic that goes to other rails.
double share_across_rails(const Topology& topology, double ranks_per_node) {
  if (!topology.network || topology.network->rails == 0) return 0;
  const double rails = std::min<double>(topology.network->rails, ranks_per_node);
  return rails > 1 ? (rails - 1) / rails : 0;
}

/// What messages between all nodes take longer than the NICs do.
double pairwise_slowdown(const Topology& topology, int nodes, int stride, double ranks_per_node) {
  if (!topology.network) return 1;
  double slowdown = 1, over = 1;
  bool is_leaf = true;
  for (const Topology::Network::Level& level : topology.network->levels) {
    const double below = nodes_below(level, nodes, stride);
    double leaving = (nodes - below) / (nodes - 1);
    if (is_leaf && !topology.network->pxn) {
      leaving += (1 - leaving) * share_across_rails(topology, ranks_per_node);
    }
    is_leaf = false;
    if (leaving <= 0) break;
    over *= level.oversubscription;
    slowdown = std::max(slowdown, over * leaving);
  }
  return slowdown;
}

/// Latency of messages to every peer: NCCL groups the sends and receives into one kernel.
double pairwise_latency(const Topology& topology, double ranks, double nodes) {
  const double local = ranks / nodes;
  const double hop = topology.intra.kind == IntraLink::kPcie ? kPcieHopUs : kNvlinkHopUs;
  double latency = kBaseUs + (local - 1) * hop;
  if (nodes > 1) {
    latency += kNetworkHopUs + 2 * topology.nic->latency.count() + (ranks - local) * kNetworkPeerUs;
  }
  return latency;
}

/// What each sender of a node hands to another GPU of it because the receiver is on another rail.
Bytes moved_to_rails(const Topology& topology, Bytes leaving, double senders,
                     double ranks_per_node) {
  if (!topology.network || !topology.network->pxn) return {};
  return (share_across_rails(topology, ranks_per_node) / senders) * leaving;
}

/// `rank_bytes`: most that a rank exchanges inside its node in one direction; `node_bytes`: most
/// that a node exchanges, at `node_rate` (unused in one node).
Terms pairwise_terms(const Topology& topology, int ranks, int nodes, Bytes rank_bytes,
                     Bytes node_bytes, BytesPerSecond node_rate) {
  if (nodes == 1 && topology.nccl) return all_to_all_times(*topology.nccl, ranks, rank_bytes);
  Terms terms{.latency = pairwise_latency(topology, ranks, nodes),
              .wire = us(rank_bytes, topology.intra.all_to_all_bandwidth)};
  if (nodes > 1) {
    terms.wire = std::max(terms.wire, us(node_bytes, node_rate));
  }
  return terms;
}

std::optional<Unexpected> check(const Topology& topology, int ranks, int nodes,
                                const CollectiveOptions& options) {
  if (ranks < 1) return impossible("1 rank or more", std::to_string(ranks));
  if (nodes < 1 || nodes > ranks) {
    return impossible("1 to " + std::to_string(ranks) + " nodes (ranks)", std::to_string(nodes));
  }
  if ((ranks + nodes - 1) / nodes > topology.gpus_per_node) {
    return impossible(
        "at most " + std::to_string(topology.gpus_per_node) + " ranks per node of " + topology.name,
        std::to_string(ranks) + " on " + std::to_string(nodes));
  }
  if (nodes > 1 && !topology.nic) {
    return impossible("one node, as " + topology.name + " has no NIC", std::to_string(nodes));
  }
  if (!(options.interference >= 1) || !std::isfinite(options.interference)) {
    return impossible("an interference factor of at least 1", std::to_string(options.interference));
  }
  return std::nullopt;
}

/// Every group of a node has a rank of its own there.
std::optional<Unexpected> check_groups(const Topology& topology, int groups_per_node) {
  if (groups_per_node >= 1 && groups_per_node <= topology.gpus_per_node) return std::nullopt;
  return impossible(
      "1 to " + std::to_string(topology.gpus_per_node) + " groups per node of " + topology.name,
      std::to_string(groups_per_node));
}

std::optional<Unexpected> check_network(const Topology& topology, const CollectiveQuery& query) {
  if (query.node_stride < 1) {
    return impossible("a stride of nodes of at least 1", std::to_string(query.node_stride));
  }
  if (!topology.network || query.nodes == 1) return std::nullopt;
  const std::int64_t most = topology.network->levels.back().nodes;
  const std::int64_t spanned = std::int64_t{query.nodes - 1} * query.node_stride + 1;
  if (spanned <= most) return std::nullopt;
  return impossible("at most the " + std::to_string(most) + " nodes of topology " + topology.name,
                    std::to_string(spanned));
}

bool valid(Bytes bytes) { return bytes.value >= 0 && std::isfinite(bytes.value); }

CollectiveTime finish(Terms terms, Bytes wire_bytes, const CollectiveOptions& options) {
  terms.wire *= options.interference;
  CollectiveTime result;
  result.latency = Microseconds{terms.latency};
  result.wire = Microseconds{terms.wire};
  result.time = Microseconds{terms.time()};
  result.bound = terms.wire > terms.latency ? Bound::kLink : Bound::kLatency;
  result.wire_bytes = wire_bytes;
  if (terms.time() > 0) result.bus_bandwidth = {wire_bytes.value / terms.time() * 1e6};
  return result;
}

CollectiveTime finish_pairwise(const Terms& terms, Bytes wire_bytes,
                               const CollectiveOptions& options) {
  CollectiveTime result = finish(terms, wire_bytes, options);
  result.algorithm = "Pairwise";
  result.protocol = to_string(NcclProtocol::kSimple);
  return result;
}

double empty_all_reduce_us(const Topology& topology, int ranks) {
  const auto tuning = NcclTuning::make(nccl_tuning_input(topology, {.ranks = ranks}));
  return tuning->time(tuning->best({0}), {0}).count();
}

/// One node whose topology has NCCL's times. Curves of all-reduce go before them from their first
/// size on; below it, no time is longer than the curve's first one, so that none falls with bytes.
Terms fitted_terms(const Topology& topology, const CollectiveQuery& query) {
  const Terms protocols = ring_times(*topology.nccl, query);
  if (query.kind != CollectiveKind::kAllReduce || curves_inside(topology).empty()) return protocols;
  const Terms curve =
      calibrated_all_reduce(topology, query.ranks, std::max(query.bytes, topology.first_bytes),
                            empty_all_reduce_us(topology, query.ranks));
  return query.bytes >= topology.first_bytes ? curve : cheaper(protocols, curve);
}

Terms terms_of(const NcclTuning& tuning, Bytes bytes) {
  const double time = tuning.monotone_time(bytes).count();
  const double latency = std::min(time, tuning.best(bytes).latency_us);
  return {.latency = latency, .wire = time - latency};
}

/// An all-reduce between nodes with the protocol Simple: the pipeline is filled, then the slower of
/// the links inside a node and its NICs decides. Two nodes exchange their sums once in each
/// direction where NCCL has a tree, others pass twice what a ring does.
Terms piped_terms(const Topology& topology, const CollectiveQuery& query, const NcclTuning& tuning,
                  double inside_us) {
  const double local = static_cast<double>(query.ranks) / query.nodes;
  const BytesPerSecond rate = ring_share_of_network(topology, query.nodes, query.node_stride) *
                              node_bandwidth(topology, local, query.groups_per_node);
  const double fill = us(std::min(query.bytes, local * kInFlightPerGpu), rate);
  Terms best{.latency = std::numeric_limits<double>::infinity()};
  for (const NcclOption& option : tuning.options()) {
    if (option.protocol != NcclProtocol::kSimple) continue;
    const bool once =
        query.nodes == 2 && topology.nic->pair_trees && option.algorithm != NcclAlgorithm::kRing;
    const double passes = once ? 1 : 2 * ring_share(query.ranks);
    best = cheaper(best, {.latency = option.latency_us,
                          .wire = fill + std::max(inside_us, us(passes * query.bytes, rate))});
  }
  return best;
}

Terms tuned_terms(const Topology& topology, const CollectiveQuery& query);

/// Over several nodes, at least the time of the same buffer inside one. NCCL often leaves LL128
/// before it pays, so that its choice counts and not the cheapest; but where it has a choice no
/// larger buffer is faster.
Terms terms_between_nodes(const Topology& topology, const CollectiveQuery& query,
                          const NcclTuning& tuning) {
  CollectiveQuery local = query;
  local.nodes = local.groups_per_node = 1;
  local.ranks = (query.ranks + query.nodes - 1) / query.nodes;
  const Terms inside = local.ranks < 2 ? Terms{} : tuned_terms(topology, local);
  Terms across = terms_of(tuning, query.bytes);
  if (query.kind == CollectiveKind::kAllReduce) {
    const Bytes all = local.bytes;
    local.bytes = {1 << 30};  // where the links alone decide
    const double link_us = local.ranks < 2 ? 0 : tuned_terms(topology, local).wire;
    const Terms piped =
        piped_terms(topology, query, tuning, link_us * all.value / local.bytes.value);
    across = tuning.leaves_ll(all) ? piped : cheaper(across, piped);
  }
  return inside.time() > across.time() ? inside : across;
}

/// Collectives that NCCL's tuning model knows, inside one node or over several.
Terms tuned_terms(const Topology& topology, const CollectiveQuery& query) {
  const auto tuning = NcclTuning::make(nccl_tuning_input(topology, query));
  PERFMODEL_CHECK(tuning.has_value());  // read_topology gives valid figures
  if (query.nodes > 1) {
    const Topology::Curve* curve = curve_between(topology, query);
    if (!curve) return terms_between_nodes(topology, query, *tuning);
    CollectiveQuery empty = query;
    empty.bytes = {};
    const double empty_us = terms_between_nodes(topology, empty, *tuning).time();
    return scaled_curve(topology, *curve, query.ranks, query.bytes, empty_us);
  }
  if (topology.nccl) return fitted_terms(topology, query);
  if (curves_inside(topology).empty()) return terms_of(*tuning, query.bytes);

  const double empty_us = empty_all_reduce_us(topology, query.ranks);
  const double n = query.ranks;
  Bytes like = query.bytes;  // the all-reduce of which this is one half
  if (query.kind == CollectiveKind::kBroadcast || query.kind == CollectiveKind::kReduce) {
    like = (1 / ring_share(n)) * query.bytes;
  }
  Terms terms = calibrated_all_reduce(topology, query.ranks, like, empty_us);
  if (query.kind == CollectiveKind::kAllReduce) return terms;
  return {.latency = (terms.latency + kLaunchUs) / 2, .wire = terms.wire / 2};
}

}  // namespace

NcclTuningInput nccl_tuning_input(const Topology& topology, const CollectiveQuery& query,
                                  bool datasheet_rates) {
  constexpr double kGb = 1e-9;
  const int ranks = query.ranks, nodes = query.nodes;
  const Topology::Intra& intra = topology.intra;
  const int local = (ranks + nodes - 1) / nodes;
  const double efficiency = datasheet_rates ? 1 : intra.efficiency;
  NcclGraph ring{.channels = local > 1 ? topology.ring_channels(local) : intra.ring_channels};
  ring.intra_gb_per_s = intra.channel_bandwidth.value * kGb * efficiency;
  double node_gb_per_s = 0;
  if (nodes > 1) {
    // All rings leave the node by its NICs.
    node_gb_per_s = node_bandwidth(topology, local, query.groups_per_node).value * kGb *
                    ring_share_of_network(topology, nodes, query.node_stride);
    if (datasheet_rates) node_gb_per_s /= topology.nic->efficiency;
    ring.intra_gb_per_s = std::min(ring.intra_gb_per_s, node_gb_per_s / ring.channels);
    ring.inter_latency_us = topology.nic->latency.count();
  }
  ring.inter_gb_per_s = ring.intra_gb_per_s;
  NcclTuningInput input{
      .collective = query.kind,
      .ranks = ranks,
      .nodes = nodes,
      .generation = topology.generation,
      .cpu_amd = topology.cpu == "amd",
      .intra_link = intra.kind == IntraLink::kPcie ? NcclLink::kPcie : NcclLink::kNvlink,
      .ring = ring,
      .tree = ring,
      .nvls_available = false,
      .ll128_enabled = intra.ll128 && (nodes == 1 || topology.nic->ll128)};
  if (nodes == 2 && topology.nic->pair_trees) {
    // Each edge of a tree between two nodes carries the buffer once, half of what a ring does.
    input.tree->intra_gb_per_s =
        std::min(intra.channel_bandwidth.value * kGb, 2 * node_gb_per_s / input.tree->channels);
    input.tree_pattern = false;
  }
  if (intra.nvls_channels && nvls_efficiency(topology.generation) > 0) {
    input.nvls_available = true;
    NcclGraph nvls{.channels = *intra.nvls_channels,
                   .intra_gb_per_s = intra.channel_bandwidth.value * kGb * efficiency};
    // No network limits NVLS inside one node: twice the link is more than it can use.
    nvls.inter_gb_per_s = nodes > 1 ? node_gb_per_s / nvls.channels : 2 * nvls.intra_gb_per_s;
    nvls.inter_latency_us = ring.inter_latency_us;
    (nodes > 1 ? input.nvls_tree : input.nvls) = nvls;
  }
  return input;
}

Result<CollectiveTime> collective_time(const Topology& topology, const CollectiveQuery& query,
                                       const CollectiveOptions& options) {
  if (auto error = check(topology, query.ranks, query.nodes, options)) return *error;
  if (auto error = check_groups(topology, query.groups_per_node)) return *error;
  if (auto error = check_network(topology, query)) return *error;
  if (!valid(query.bytes)) {
    return impossible("bytes of at least 0", std::to_string(query.bytes.value));
  }
  const int ranks = query.ranks, nodes = query.nodes;
  if (ranks == 1) return CollectiveTime{};
  const double n = ranks, local = n / nodes, share = ring_share(n);
  const auto node_rate = [&](double ranks_per_node) {
    return nodes > 1 ? node_bandwidth(topology, ranks_per_node, query.groups_per_node)
                     : BytesPerSecond{};
  };
  Bytes wire_bytes = query.bytes;
  switch (query.kind) {
    case CollectiveKind::kSend:
    case CollectiveKind::kRecv: {
      if (nodes == 1 && topology.nccl) {  // an all-to-all between two, one direction of it
        return finish_pairwise(all_to_all_times(*topology.nccl, 2, query.bytes), wire_bytes,
                               options);
      }
      Terms terms{.latency = pairwise_latency(topology, 2, nodes > 1 ? 2 : 1),
                  .wire = us(query.bytes, topology.intra.p2p_bandwidth)};
      if (nodes > 1) {
        terms.wire = us(query.bytes, node_rate(1)) /
                     ring_share_of_network(topology, nodes, query.node_stride);
      }
      return finish_pairwise(terms, wire_bytes, options);
    }
    case CollectiveKind::kAllToAll:
    case CollectiveKind::kGather:
    case CollectiveKind::kScatter: {
      // Gather and scatter: the root alone exchanges as much as each rank in an all-to-all.
      wire_bytes = share * query.bytes;
      const double senders = query.kind == CollectiveKind::kAllToAll ? local : 1;
      const Bytes leaving = (senders * (nodes - 1) / nodes) * query.bytes;
      const double slowdown =
          nodes > 1 ? pairwise_slowdown(topology, nodes, query.node_stride, local) : 1;
      const Terms terms = pairwise_terms(
          topology, ranks, nodes,
          ((local - 1) / n) * query.bytes + moved_to_rails(topology, leaving, senders, local),
          slowdown * leaving, node_rate(senders));
      CollectiveTime result = finish_pairwise(terms, wire_bytes, options);
      result.in_range = measured(topology, query);
      return result;
    }
    case CollectiveKind::kAllReduce:
      wire_bytes = 2 * share * query.bytes;
      break;
    case CollectiveKind::kAllGather:
    case CollectiveKind::kReduceScatter:
      wire_bytes = share * query.bytes;
      break;
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kReduce:
      break;
  }
  CollectiveTime result = finish(tuned_terms(topology, query), wire_bytes, options);
  const auto tuning = NcclTuning::make(nccl_tuning_input(topology, query));
  const NcclOption& best = tuning->best(query.bytes);
  result.algorithm = to_string(best.algorithm);
  result.protocol = to_string(best.protocol);
  result.in_range = measured(topology, query);
  return result;
}

Result<CollectiveTime> all_to_all_v_time(const Topology& topology, int nodes,
                                         std::span<const Bytes> sent,
                                         std::span<const Bytes> received,
                                         const CollectiveOptions& options) {
  if (sent.size() != received.size()) {
    return impossible("as many received as sent sizes, " + std::to_string(sent.size()),
                      std::to_string(received.size()));
  }
  const int ranks = static_cast<int>(sent.size());
  if (auto error = check(topology, ranks, nodes, options)) return *error;
  if (ranks % nodes != 0) {
    return impossible("equally many ranks on each of " + std::to_string(nodes) + " nodes",
                      std::to_string(ranks) + " ranks");
  }
  for (std::span<const Bytes> list : {sent, received}) {
    for (std::size_t rank = 0; rank < list.size(); ++rank) {
      if (!valid(list[rank])) {
        return impossible("bytes of at least 0",
                          std::to_string(list[rank].value) + " at rank " + std::to_string(rank));
      }
    }
  }
  if (ranks == 1) return CollectiveTime{};
  const int local = ranks / nodes;
  Bytes worst_rank, worst_node;
  for (std::span<const Bytes> list : {sent, received}) {
    Bytes node;
    for (std::size_t rank = 0; rank < list.size(); ++rank) {
      if (rank % static_cast<std::size_t>(local) == 0) node = {};
      node += list[rank];
      worst_rank = std::max(worst_rank, list[rank]);
      worst_node = std::max(worst_node, node);
    }
  }
  const double inside = static_cast<double>(local - 1) / (ranks - 1);
  const BytesPerSecond node_rate =
      nodes > 1 ? node_bandwidth(topology, local, 1) : BytesPerSecond{};
  return finish_pairwise(pairwise_terms(topology, ranks, nodes, inside * worst_rank,
                                        (1 - inside) * worst_node, node_rate),
                         worst_rank, options);
}

}  // namespace perfmodel
