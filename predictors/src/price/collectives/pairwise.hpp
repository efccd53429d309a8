#pragma once

#include "price/collectives/terms.hpp"

namespace perfmodel::collectives {

/// Messages between all pairs of a group: what the busiest rank and the busiest node send or
/// receive.
struct Exchange {
  int ranks = 2, nodes = 1;
  Bytes to_others;        ///< from a rank to all others
  Bytes inside;           ///< the part that its links inside the node carry
  BytesPerSecond link;    ///< rate of these links
  double between_us = 0;  ///< time of its NICs for all that leaves a node
};

/// NCCL groups all messages into one kernel. The cheaper of LL, which carries a flag with every
/// word, and Simple; over several nodes at least the time of as large a buffer inside one.
Terms pairwise(const Topology& topology, const Exchange& exchange);

/// One GPU to all others of a group of the node at once. Boards on PCIe sit on two host bridges: of
/// a buffer S of n ranks n S / 4 cross between them, so that fewer ranks get more.
BytesPerSecond all_to_all_link(const Topology& topology, int ranks_per_node);

/// All-to-all, gather, scatter, send, recv.
Exchange exchange_of(const Topology& topology, const CollectiveQuery& query);

/// All-to-all whose busiest rank and node exchange so much with others.
Exchange uneven_exchange(const Topology& topology, int ranks, int nodes, Bytes worst_rank,
                         Bytes worst_node);

}  // namespace perfmodel::collectives
