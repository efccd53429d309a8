#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "perfmodel/graph/execution_graph.hpp"

namespace perfmodel {

/// The tensors of a graph of unique ids (with_unique_ids()), numbered from 0: who makes each and
/// who reads it.
class Values {
 public:
  /// `id`: &Tensor::storage_id numbers storages instead.
  explicit Values(const ExecutionGraph& graph, std::int64_t Tensor::*id = &Tensor::id);

  std::size_t size() const { return makers_.size(); }
  /// Of a mention in the graph; undefined tensors have one number.
  std::int32_t of(const Tensor& mention) const {
    return numbers_[&mention - graph_->tensors.data()];
  }

  /// The outermost node that gives it and does not take it; -1: it was there before.
  std::int32_t maker(std::int32_t value) const { return makers_[value]; }
  /// Nodes that take it, in order; those around others as well.
  std::span<const std::int32_t> readers(std::int32_t value) const {
    return std::span(readers_).subspan(ends_[value], ends_[value + 1] - ends_[value]);
  }

 private:
  const ExecutionGraph* graph_;
  std::vector<std::int32_t> numbers_;  // by entry of ExecutionGraph::tensors
  std::vector<std::int32_t> makers_;
  std::vector<std::int32_t> readers_;  // of one value after the other
  std::vector<std::size_t> ends_ = {0};
};

/// A fact about some of the values.
template <class Fact>
class FactsOfValues {
 public:
  explicit FactsOfValues(const Values& values, Fact none = {})
      : values_(&values), facts_(values.size(), none) {}

  Fact& operator[](const Tensor& mention) { return facts_[values_->of(mention)]; }
  const Fact& operator[](const Tensor& mention) const { return facts_[values_->of(mention)]; }

 private:
  const Values* values_;
  std::vector<Fact> facts_;
};

}  // namespace perfmodel
