#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "builders/emit/collectives.hpp"
#include "builders/emit/graph_builder.hpp"

namespace perfmodel {

/// The reducer of one DistributedDataParallel module with find_unused_parameters and
/// gradient_as_bucket_view: gradients are scaled into flat buckets, each of which is all-reduced
/// when its last gradient has come.
///
/// Buckets hold parameters in reverse order; a bucket is closed when it has reached 1 MiB (the
/// first) or 25 MiB (the others).
class GradientReducer {
 public:
  /// Parameters in the order in which the module registers them.
  GradientReducer(GraphBuilder& graph, const std::vector<TensorRef>& parameters);

  bool owns(TensorRef parameter) const { return place_.contains(parameter.index); }
  /// Called after the accumulation of a gradient; returns its place in the bucket.
  TensorRef reduce(TensorRef parameter, TensorRef gradient, Communicator& ranks);
  /// After the backward pass: gradients are the buckets' pieces; which parameters were used?
  void finish();

  std::int64_t num_buckets() const { return static_cast<std::int64_t>(buckets_.size()); }

  /// Place of a parameter's gradient between the steps.
  TensorRef kept_gradient(TensorRef parameter) const { return views_.at(parameter.index); }

 private:
  struct Bucket {
    std::vector<std::size_t> parameters;  // numbers in order of registration
    TensorRef flat;
    std::size_t missing = 0;
  };

  GraphBuilder& graph_;
  std::vector<TensorRef> parameters_;
  std::vector<Bucket> buckets_;
  std::unordered_map<std::int32_t, std::size_t> place_;  // parameter -> bucket
  std::unordered_map<std::int32_t, TensorRef> views_;    // parameter -> piece of the bucket
};

}  // namespace perfmodel
