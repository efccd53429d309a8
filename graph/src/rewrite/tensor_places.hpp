#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "perfmodel/graph/execution_graph.hpp"

namespace perfmodel {

/// Tensors that are read in place of others, by id, while nodes are copied: the copies get ids,
/// storage and offset of the other one, and views that they make of it have its storage. The end
/// of a scope takes back what was replaced inside it.
class TensorPlaces {
 public:
  void replace(std::int64_t id, const Tensor& by);
  Tensor current(Tensor tensor) const;

  /// `node`: of `made`, a copy whose arguments no other node shares.
  void apply(ExecutionGraph& made, const Node& node);

  void begin_scope() { scoped_ = true; }
  void end_scope();

 private:
  std::unordered_map<std::int64_t, Tensor> by_;
  std::vector<std::pair<std::int64_t, std::optional<Tensor>>> before_;  // the scope
  bool scoped_ = false;
  std::vector<Tensor> taken_;  // by a node, before it is changed
};

}  // namespace perfmodel
