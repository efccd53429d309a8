#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "perfmodel/graph/execution_graph.hpp"

namespace perfmodel {

/// Which tensor stands for one of the source while a backward pass is copied node by node: ids,
/// storage and offset of another one; views that the pass makes of it have its storage. As
/// TensorSubstitution, with a scope: what is replaced inside of it is as it was before when it
/// ends.
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
  std::vector<std::int64_t> inputs_;  // ids that a node takes
  struct Moved {
    std::int64_t storage = 0, to = 0, offset = 0;
  };
  std::vector<Moved> moved_;  // storages of what a node takes instead
};

}  // namespace perfmodel
