#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "backward_pass.hpp"
#include "perfmodel/graph/execution_graph.hpp"
#include "values.hpp"

namespace perfmodel {

/// A tensor as one op of the forward pass left it: an op in place makes another version.
struct Version {
  std::int32_t op = -1;                    ///< makes it, -1: it was there before
  std::uint32_t tensor = 0;                ///< into ExecutionGraph::tensors
  std::vector<std::int32_t> readers = {};  ///< ops, in their order
};

/// The forward pass as ops that hand versions to each other: the outermost ops of the program,
/// which include their calls. Nodes that only hold ops (modules, labels, aten::lstm) are left out.
class ForwardFlow {
 public:
  ForwardFlow(const ExecutionGraph& graph, const Values& tensors, const BackwardPass& pass);

  /// Nodes, in their order.
  const std::vector<std::int32_t>& ops() const { return ops_; }
  /// The versions that an op takes and makes, elements of lists too.
  const std::vector<const Version*>& inputs(std::int32_t op) const { return edges_[op].inputs; }
  const std::vector<const Version*>& outputs(std::int32_t op) const { return edges_[op].outputs; }
  /// The op that a node is or belongs to; -1: none.
  std::int32_t op_around(std::int32_t node) const { return node < 0 ? -1 : around_[node]; }

 private:
  struct Edges {
    std::vector<const Version*> inputs, outputs;
  };

  std::vector<std::int32_t> ops_, around_;  // around_ by node
  std::vector<Edges> edges_;                // by node
  std::deque<Version> versions_;
};

}  // namespace perfmodel
