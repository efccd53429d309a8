#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace perfmodel {

/// Nodes and edges with capacities. Finds a maximum flow by shortest augmenting paths (Edmonds and
/// Karp, J. ACM 19, 1972).
class FlowNetwork {
 public:
  explicit FlowNetwork(std::size_t nodes) : edges_of_(nodes) {}

  void add(std::int32_t from, std::int32_t to, double capacity);

  /// Which nodes can still be reached from the source once nothing more flows: one side of a
  /// minimum cut. No path may have unlimited capacity.
  std::vector<bool> reached_after_flow(std::int32_t source, std::int32_t sink);

 private:
  struct Edge {
    std::int32_t to = 0;
    double left = 0;
  };
  /// The edge by which each node is reached; -1: none.
  std::vector<std::int32_t> search(std::int32_t source) const;

  std::vector<Edge> edges_;  // each followed by its reverse
  std::vector<std::vector<std::int32_t>> edges_of_;
};

}  // namespace perfmodel
