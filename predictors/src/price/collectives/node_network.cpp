#include "price/collectives/node_network.hpp"

#include <algorithm>

namespace perfmodel::collectives {
namespace {

/// Nodes of a group that lie below one switch of a level.
double nodes_below(const Topology::Network::Level& level, int nodes, int stride) {
  return std::clamp(level.nodes / stride, 1, nodes);
}

}  // namespace

BytesPerSecond node_bandwidth(const Topology& topology, double ranks_per_node,
                              int groups_per_node) {
  const Topology::Nic& nic = *topology.nic;
  const double beside = std::max(nic.count * ranks_per_node / topology.gpus_per_node, 1.0);
  const double part = static_cast<double>(nic.count) / groups_per_node;
  return std::min(beside, part) * nic.efficiency * nic.bandwidth;
}

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

double share_across_rails(const Topology& topology, double ranks_per_node) {
  if (!topology.network || topology.network->rails == 0) return 0;
  const double rails = std::min<double>(topology.network->rails, ranks_per_node);
  return rails > 1 ? (rails - 1) / rails : 0;
}

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

}  // namespace perfmodel::collectives
