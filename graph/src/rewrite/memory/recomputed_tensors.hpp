#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "builders/emit/graph_builder.hpp"
#include "rewrite/tensor_places.hpp"

namespace perfmodel {

/// Ids for tensors of nodes that are made by hand.
class FreshIds {
 public:
  std::int64_t next(GraphBuilder& builder);

 private:
  std::int64_t spare_ = 0;
};

/// Tensors of ops that are written a second time: what they make gets new ids, what they only take
/// stays, and TensorPlaces learns which is which.
class RecomputedTensors {
 public:
  RecomputedTensors(GraphBuilder& builder, FreshIds& ids, TensorPlaces& places)
      : builder_(builder), ids_(ids), places_(places) {}

  /// `by` is what the ops take instead of `input`.
  void stand_in(const Tensor& input, const Tensor& by);

  /// For every node in order, those below it before its close(); arguments are the node's own.
  void open(const Node& node);
  void close();

 private:
  /// Of tensors or of storages.
  struct Names {
    std::unordered_map<std::int64_t, std::int64_t> now;
    std::vector<std::int64_t> being_made;  // by the nodes that are open
    std::vector<std::int64_t> taken;       // by the last one
  };
  void name(std::int64_t& id, Names& names, bool is_output);
  template <class Visit>
  void visit(std::uint32_t begin, std::uint32_t count, Visit&& visit_one);

  GraphBuilder& builder_;
  FreshIds& ids_;
  TensorPlaces& places_;
  Names tensors_, storages_;
  std::vector<std::pair<std::size_t, std::size_t>> open_;  // sizes of being_made
};

}  // namespace perfmodel
