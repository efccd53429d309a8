#include "price/collectives/between_nodes.hpp"

#include <algorithm>
#include <limits>

#include "price/collectives/inside_node.hpp"
#include "price/collectives/node_network.hpp"

namespace perfmodel::collectives {
namespace {

double ranks_per_node(const CollectiveQuery& query) {
  return static_cast<double>(query.ranks) / query.nodes;
}

/// The group's part of one node; one rank alone exchanges nothing.
CollectiveQuery part_of_a_node(const CollectiveQuery& query) {
  CollectiveQuery part = query;
  part.nodes = part.groups_per_node = part.node_stride = 1;
  part.ranks = (query.ranks + query.nodes - 1) / query.nodes;
  return part;
}

/// Bytes over the busiest edge between nodes, by the buffer. Rings pass all but one part of n, an
/// all-reduce twice; trees of two nodes exchange their sums once in each direction.
double passes(const Topology& topology, const CollectiveQuery& query, NcclAlgorithm algorithm) {
  const bool once = query.kind == CollectiveKind::kAllReduce && query.nodes == 2 &&
                    topology.nic->pair_trees && algorithm != NcclAlgorithm::kRing;
  return once ? 1 : bus_factor(query.kind, query.ranks);
}

/// Bytes that a node passes on with Simple before the pipeline is full. An all-reduce goes up and
/// then down: what its slots hold is on the way up first. Broadcast and reduce are one chain, in
/// which each further node waits for a step (512 KiB per channel) as a whole. The ring of an
/// all-gather or reduce-scatter begins on all ranks at once and waits for nothing.
Bytes filling(const Topology& topology, const CollectiveQuery& query) {
  constexpr Bytes kStep{512 << 10};
  const int local = part_of_a_node(query).ranks;
  const double channels = local > 1 ? topology.ring_channels(local) : topology.intra.ring_channels;
  switch (query.kind) {
    case CollectiveKind::kAllReduce:
      return std::min(query.bytes, ranks_per_node(query) * topology.nic->in_flight);
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kReduce:
      return (query.nodes - 2.0) * std::min(query.bytes, channels * kStep);
    default: return {};
  }
}

/// Time of the links inside a node without latency: an all-reduce stays inside, of a ring they
/// carry as much as the edges between nodes.
double links_us(const Topology& topology, const CollectiveQuery& query) {
  CollectiveQuery part = part_of_a_node(query);
  if (part.ranks < 2) return 0;
  part.bytes = {1 << 30};  // where the links alone decide
  const double more = query.kind == CollectiveKind::kAllReduce
                          ? 1
                          : bus_factor(query.kind, query.ranks) / bus_factor(part.kind, part.ranks);
  return more * inside_node(topology, part).wire * query.bytes.value / part.bytes.value;
}

/// The protocol Simple: the pipeline is filled, then the slower of links and NICs decides.
Terms piped_terms(const Topology& topology, const CollectiveQuery& query, const NcclTuning& tuning,
                  double inside_us) {
  const BytesPerSecond rate =
      ring_share_of_network(topology, query.nodes, query.node_stride) *
      node_bandwidth(topology, ranks_per_node(query), query.groups_per_node);
  const double fill = us(filling(topology, query), rate);
  Terms best{.latency = std::numeric_limits<double>::infinity()};
  for (const NcclOption& option : tuning.options()) {
    if (option.protocol != NcclProtocol::kSimple) continue;
    const double edge = us(passes(topology, query, option.algorithm) * query.bytes, rate);
    best = cheaper(best, {.latency = option.latency_us,
                          .wire = fill + std::max(inside_us, edge),
                          .algorithm = to_string(option.algorithm),
                          .protocol = to_string(option.protocol)});
  }
  return best;
}

/// Whether NCCL has left LL and LL128 at this size. Its tables let larger groups leave them later,
/// as latencies of LL128 grow less with nodes; the public logs do not (four nodes left at 2 MiB
/// where the tables say 16). A group leaves where a smaller one did, by powers of two: else more
/// nodes would be faster.
bool leaves_ll(const Topology& topology, const CollectiveQuery& query) {
  CollectiveQuery smaller = query;
  for (int nodes = 2; nodes <= query.nodes; nodes *= 2) {
    smaller.nodes = nodes;
    smaller.ranks = part_of_a_node(query).ranks * nodes;
    const auto tuning = NcclTuning::make(nccl_tuning_input(topology, smaller));
    if (tuning->leaves_ll(query.bytes)) return true;
  }
  return false;
}

}  // namespace

/// NCCL often leaves LL128 before it pays, so that its choice counts and not the cheapest; but
/// where it has not left and Simple is faster, that counts: no larger buffer is faster.
Terms between_nodes(const Topology& topology, const CollectiveQuery& query) {
  const auto tuning = NcclTuning::make(nccl_tuning_input(topology, query));
  PERFMODEL_CHECK(tuning.has_value());  // read_topology gives valid figures
  const CollectiveQuery part = part_of_a_node(query);
  const Terms inside = part.ranks < 2 ? Terms{} : inside_node(topology, part);
  const double links = links_us(topology, query);
  const Terms piped = piped_terms(topology, query, *tuning, links);
  if (leaves_ll(topology, query)) return longer(inside, piped);
  Terms low = tuned_terms(*tuning, query.bytes, false);
  low.wire = std::max(low.wire, links);
  return longer(inside, cheaper(low, piped));
}

}  // namespace perfmodel::collectives
