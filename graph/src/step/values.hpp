#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "perfmodel/graph/execution_graph.hpp"

namespace perfmodel {

/// The tensors of a graph of unique ids (with_unique_ids()), numbered from 0: who makes each and
/// who reads it.
class Values {
 public:
  /// `id`: &Tensor::storage_id numbers storages instead. The graph must outlive its values.
  explicit Values(const ExecutionGraph& graph, std::int64_t Tensor::*id = &Tensor::id);

  std::size_t size() const { return size_; }
  /// Number of a mention in the graph; undefined tensors share one number.
  std::int32_t of(const Tensor& mention) const {
    return numbers_[&mention - graph_->tensors.data()];
  }

  /// The outermost node that gives it and does not take it; -1: it was there before.
  std::int32_t maker(std::int32_t value) const { return uses().makers[value]; }
  /// Nodes that take it, in order; those around others as well.
  std::span<const std::int32_t> readers(std::int32_t value) const {
    const Uses& all = uses();
    return std::span(all.readers).subspan(all.ends[value], all.ends[value + 1] - all.ends[value]);
  }

 private:
  struct Uses {
    std::vector<std::int32_t> makers;
    std::vector<std::int32_t> readers;  // value by value
    std::vector<std::size_t> ends = {0};
  };
  Uses find_uses() const;
  // Found when they are first asked: some readers of a graph only number its tensors.
  const Uses& uses() const {
    if (!uses_) uses_ = find_uses();
    return *uses_;
  }

  const ExecutionGraph* graph_;
  std::vector<std::int32_t> numbers_;  // by entry of ExecutionGraph::tensors
  std::size_t size_ = 0;
  mutable std::optional<Uses> uses_;
};

/// A fact about some of the values.
template <class Fact>
class FactsOfValues {
 public:
  explicit FactsOfValues(const Values& values, Fact none = {})
      : values_(&values), facts_(values.size(), none) {}

  auto operator[](const Tensor& mention) -> typename std::vector<Fact>::reference {
    return facts_[values_->of(mention)];
  }
  auto operator[](const Tensor& mention) const -> typename std::vector<Fact>::const_reference {
    return facts_[values_->of(mention)];
  }

 private:
  const Values* values_;
  std::vector<Fact> facts_;
};

}  // namespace perfmodel
