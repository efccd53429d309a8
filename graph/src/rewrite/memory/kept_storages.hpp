#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "perfmodel/graph/execution_graph.hpp"

namespace perfmodel {

/// Memory that a rewritten program holds for longer than the recorded one did. Ids in recordings
/// are addresses: once a tensor was freed, others have its ids. What is to be read later gets ids
/// that nobody else has.
class KeptStorages {
 public:
  /// `graph` is changed by keep(): ids of tensors alone. Nothing to do for built graphs, which use
  /// no id again.
  explicit KeptStorages(ExecutionGraph& graph);

  /// Tensor `entry` of ExecutionGraph::tensors, as node `from` takes or makes it, is read at node
  /// `until`, too.
  void keep(std::uint32_t entry, std::int32_t from, std::int32_t until);

 private:
  using Definitions = std::unordered_map<std::int64_t, std::vector<std::int32_t>>;

  void note_definitions();
  void rename(std::int64_t Tensor::*id, const Definitions& definitions, std::int64_t old,
              std::int32_t from, std::int32_t until);

  ExecutionGraph& graph_;
  Definitions tensors_, storages_;  // id -> nodes that give it to something new, in order
  std::int64_t last_id_ = 0;
};

}  // namespace perfmodel
