#pragma once

#include "perfmodel/predictors/topology.hpp"

namespace perfmodel::collectives {

/// Bandwidth of the NICs that a node's part of the group can use: its ranks' own NICs, at least
/// one, and no more than an equal part of all where several groups of the node are active.
BytesPerSecond node_bandwidth(const Topology& topology, double ranks_per_node, int groups_per_node);

/// Share of a node's NICs that what goes from one node to the next can use; nodes `stride` apart.
double ring_share_of_network(const Topology& topology, int nodes, int stride);

/// Share of a leaf's traffic that goes to other rails if all nodes send to all.
double share_across_rails(const Topology& topology, double ranks_per_node);

/// Factor by which messages between all nodes take longer than the NICs do.
double pairwise_slowdown(const Topology& topology, int nodes, int stride, double ranks_per_node);

}  // namespace perfmodel::collectives
