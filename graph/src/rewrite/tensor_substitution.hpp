#pragma once

#include <cstdint>
#include <unordered_map>

#include "perfmodel/graph/execution_graph.hpp"

namespace perfmodel {

/// In nodes that are copied: other tensors in place of some, by id. An id that an op gives to a new
/// tensor (recordings use ids again) is not replaced any more.
class TensorSubstitution {
 public:
  void replace(std::int64_t id, const Tensor& by) { by_[id] = by; }
  void clear() { by_.clear(); }

  /// `node`: of `made`, whose arguments no other node shares.
  void apply(ExecutionGraph& made, const Node& node);

 private:
  bool apply(ExecutionGraph& made, std::uint32_t begin, std::uint32_t count);

  std::unordered_map<std::int64_t, Tensor> by_;
};

}  // namespace perfmodel
