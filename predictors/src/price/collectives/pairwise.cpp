#include "price/collectives/pairwise.hpp"

#include <algorithm>

#include "price/collectives/inside_node.hpp"
#include "price/collectives/node_network.hpp"

namespace perfmodel::collectives {
namespace {

// [I] Every further peer on another node costs its proxy one more message.
constexpr double kNetworkPeerUs = 1;
constexpr std::string_view kPairwise = "Pairwise";

int local_ranks(const Exchange& exchange) {
  return (exchange.ranks + exchange.nodes - 1) / exchange.nodes;
}

/// Latency between nodes: one hop, and a message of the proxy for each peer there.
double network_us(const Exchange& exchange, double hop_us) {
  const double peers = exchange.ranks - static_cast<double>(exchange.ranks) / exchange.nodes;
  return hop_us + peers * kNetworkPeerUs;
}

Terms low_latency_terms(const Topology& topology, const Exchange& exchange) {
  const bool pcie = topology.intra.kind == IntraLink::kPcie;
  const double hops = local_ranks(exchange) - 1.0;
  const double inside = kLaunchUs + hops * (pcie ? kPcieLlHopUs : kNvlinkLlHopUs);
  Terms terms{.latency = inside, .wire = 2 * us(exchange.inside, exchange.link)};
  if (topology.nccl) {
    const auto& own = topology.nccl->all_to_all;
    const Bytes all = (1 / ring_share(exchange.ranks)) * exchange.to_others;
    terms = {.latency = own.base.count(), .wire = us(all, own.low_rate)};
  }
  terms.algorithm = kPairwise;
  terms.protocol = to_string(NcclProtocol::kLl);
  if (exchange.nodes == 1) return terms;
  terms.latency += network_us(exchange, kNetworkLlHopUs + topology.nic->latency.count());
  terms.wire = std::max(terms.wire, 2 * exchange.between_us);
  return terms;
}

Terms simple_terms(const Topology& topology, const Exchange& exchange) {
  const double hop = topology.intra.kind == IntraLink::kPcie ? kPcieHopUs : kNvlinkHopUs;
  const double inside = topology.nccl ? topology.nccl->all_to_all.simple_base.count()
                                      : kBaseUs + (local_ranks(exchange) - 1) * hop;
  Terms terms{.latency = inside,
              .wire = us(exchange.inside, exchange.link),
              .algorithm = kPairwise,
              .protocol = to_string(NcclProtocol::kSimple)};
  if (exchange.nodes == 1) return terms;
  terms.latency += network_us(exchange, kNetworkHopUs + 2 * topology.nic->latency.count());
  terms.wire = std::max(terms.wire, exchange.between_us);
  return terms;
}

/// The ranks of one node alone, with as large a buffer.
Exchange part_of_a_node(const Topology& topology, const Exchange& exchange) {
  const int local = local_ranks(exchange);
  const Bytes to_others = (ring_share(local) / ring_share(exchange.ranks)) * exchange.to_others;
  return {.ranks = local,
          .to_others = to_others,
          .inside = to_others,
          .link = all_to_all_link(topology, local)};
}

/// Bytes that a sender hands to another GPU of its node because the receiver is on another rail.
Bytes moved_to_rails(const Topology& topology, Bytes leaving, double senders,
                     double ranks_per_node) {
  if (!topology.network || !topology.network->pxn) return {};
  return (share_across_rails(topology, ranks_per_node) / senders) * leaving;
}

Exchange one_message(const Topology& topology, const CollectiveQuery& query) {
  Exchange exchange{
      .ranks = 2,
      .nodes = std::min(query.nodes, 2),
      .to_others = query.bytes,
      .inside = query.bytes,
      .link = topology.nccl ? all_to_all_rate(*topology.nccl, 2) : topology.intra.p2p_bandwidth};
  if (query.nodes == 1) return exchange;
  exchange.inside = {};
  exchange.between_us = us(query.bytes, node_bandwidth(topology, 1, query.groups_per_node)) /
                        ring_share_of_network(topology, query.nodes, query.node_stride);
  return exchange;
}

}  // namespace

BytesPerSecond all_to_all_link(const Topology& topology, int ranks_per_node) {
  const Topology::Intra& intra = topology.intra;
  if (topology.nccl) return all_to_all_rate(*topology.nccl, ranks_per_node);
  if (intra.kind != IntraLink::kPcie || ranks_per_node < 2) return intra.all_to_all_bandwidth;
  const auto crossing = [](double n) { return n * n / (n - 1); };
  const double more = crossing(topology.gpus_per_node) / crossing(ranks_per_node);
  return std::min(intra.p2p_bandwidth, more * intra.all_to_all_bandwidth);
}

Terms pairwise(const Topology& topology, const Exchange& exchange) {
  const Terms low = low_latency_terms(topology, exchange);
  const Terms terms = cheaper(simple_terms(topology, exchange), low);
  if (exchange.nodes == 1 || local_ranks(exchange) < 2) return terms;
  return longer(terms, pairwise(topology, part_of_a_node(topology, exchange)));
}

Exchange exchange_of(const Topology& topology, const CollectiveQuery& query) {
  if (query.kind == CollectiveKind::kSend || query.kind == CollectiveKind::kRecv) {
    return one_message(topology, query);
  }
  // Gather and scatter: the root alone exchanges as much as each rank in an all-to-all.
  const double n = query.ranks, nodes = query.nodes, local = n / nodes;
  const double senders = query.kind == CollectiveKind::kAllToAll ? local : 1;
  const Bytes leaving = (senders * ring_share(nodes)) * query.bytes;
  Exchange exchange{
      .ranks = query.ranks,
      .nodes = query.nodes,
      .to_others = ring_share(n) * query.bytes,
      .inside = ((local - 1) / n) * query.bytes + moved_to_rails(topology, leaving, senders, local),
      .link = all_to_all_link(topology, (query.ranks + query.nodes - 1) / query.nodes)};
  if (query.nodes == 1) return exchange;
  exchange.between_us = pairwise_slowdown(topology, query.nodes, query.node_stride, local) *
                        us(leaving, node_bandwidth(topology, senders, query.groups_per_node));
  return exchange;
}

Exchange uneven_exchange(const Topology& topology, int ranks, int nodes, Bytes worst_rank,
                         Bytes worst_node) {
  const int local = ranks / nodes;
  const double inside = (local - 1.0) / (ranks - 1);
  const Bytes leaving = (1 - inside) * worst_node;
  Exchange exchange{.ranks = ranks,
                    .nodes = nodes,
                    .to_others = worst_rank,
                    .inside = inside * worst_rank + moved_to_rails(topology, leaving, local, local),
                    .link = all_to_all_link(topology, local)};
  if (nodes > 1) {
    exchange.between_us = pairwise_slowdown(topology, nodes, 1, local) *
                          us(leaving, node_bandwidth(topology, local, 1));
  }
  return exchange;
}

}  // namespace perfmodel::collectives
