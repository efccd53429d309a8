#include "perfmodel/predictors/detail/collectives.hpp"

#include <algorithm>
#include <cmath>
#include <span>
#include <string>

#include "base/impossible.hpp"
#include "price/collectives/between_nodes.hpp"
#include "price/collectives/inside_node.hpp"
#include "price/collectives/node_network.hpp"
#include "price/collectives/pairwise.hpp"

namespace perfmodel {
namespace {

using collectives::Terms;

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
  result.algorithm = terms.algorithm;
  result.protocol = terms.protocol;
  result.bound = terms.wire > terms.latency ? Bound::kLink : Bound::kLatency;
  result.wire_bytes = wire_bytes;
  if (terms.time() > 0) result.bus_bandwidth = {wire_bytes.value / terms.time() * 1e6};
  return result;
}

/// Collectives that NCCL's tuning model knows, inside one node or over several.
Terms tuned_or_measured(const Topology& topology, const CollectiveQuery& query) {
  if (query.nodes == 1) return collectives::inside_node(topology, query);
  const Terms priced = collectives::between_nodes(topology, query);
  const Topology::Curve* curve = collectives::curve_between(topology, query);
  if (!curve) return priced;
  CollectiveQuery empty = query;
  empty.bytes = {};
  return collectives::measured_terms(*curve, topology.first_bytes, query.kind, query.bytes,
                                     collectives::between_nodes(topology, empty).time());
}

bool is_pairwise(CollectiveKind kind) {
  using enum CollectiveKind;
  return kind == kAllToAll || kind == kGather || kind == kScatter || kind == kSend || kind == kRecv;
}

Terms terms_of(const Topology& topology, const CollectiveQuery& query) {
  return is_pairwise(query.kind)
             ? collectives::pairwise(topology, collectives::exchange_of(topology, query))
             : tuned_or_measured(topology, query);
}

/// Names the choice of NCCL's tuning model for a time that was measured.
void name_choice(const Topology& topology, const CollectiveQuery& query, CollectiveTime& result) {
  const auto tuning = NcclTuning::make(nccl_tuning_input(topology, query));
  result.algorithm = tuning ? to_string(tuning->best(query.bytes).algorithm) : "Pairwise";
  result.protocol = to_string(tuning ? tuning->best(query.bytes).protocol : NcclProtocol::kSimple);
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
    node_gb_per_s = collectives::node_bandwidth(topology, local, query.groups_per_node).value *
                    kGb * collectives::ring_share_of_network(topology, nodes, query.node_stride);
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
  if (query.ranks == 1) return CollectiveTime{};
  const Bytes wire_bytes = bus_factor(query.kind, query.ranks) * query.bytes;
  CollectiveTime result =
      finish(collectives::measured_or(topology, query, terms_of), wire_bytes, options);
  if (result.algorithm.empty()) name_choice(topology, query, result);
  result.in_range = collectives::is_measured(topology, query);
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
  return finish(
      collectives::pairwise(
          topology, collectives::uneven_exchange(topology, ranks, nodes, worst_rank, worst_node)),
      worst_rank, options);
}

}  // namespace perfmodel
