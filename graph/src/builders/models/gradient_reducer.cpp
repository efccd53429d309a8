#include "gradient_reducer.hpp"

#include "builders/emit/ops.hpp"
#include "core/gradient_buckets.hpp"
#include "perfmodel/graph/detail/bucket_limits.hpp"

namespace perfmodel {

GradientReducer::GradientReducer(GraphBuilder& graph, const std::vector<TensorRef>& parameters)
    : graph_(graph), parameters_(parameters) {
  std::vector<BucketedGradient> gradients;
  for (std::size_t i = parameters.size(); i-- > 0;) {
    const DType dtype = graph.dtype(parameters[i]);
    gradients.push_back(
        {.bytes = static_cast<double>(graph.numel(parameters[i]) * size_in_bytes(dtype)),
         .group = static_cast<std::int32_t>(dtype)});
  }
  for (auto& members : gradient_buckets(gradients, kFirstBucketBytes, kBucketCapBytes)) {
    for (std::size_t& member : members) member = parameters.size() - 1 - member;
    buckets_.emplace_back().parameters = std::move(members);
  }
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    Bucket& bucket = buckets_[b];
    std::int64_t elements = 0;
    for (std::size_t i : bucket.parameters) elements += graph.numel(parameters[i]);
    bucket.flat = graph.new_tensor(graph.dtype(parameters[bucket.parameters.front()]), {elements});
    bucket.missing = bucket.parameters.size();
    std::int64_t offset = 0;
    for (std::size_t i : bucket.parameters) {
      const Shape& shape = graph.shape(parameters[i]);
      place_[parameters[i].index] = b;
      views_[parameters[i].index] =
          graph.new_view(bucket.flat, shape, contiguous_strides(shape), offset);
      offset += graph.numel(parameters[i]);
    }
  }
}

TensorRef GradientReducer::reduce(TensorRef parameter, TensorRef gradient, Communicator& ranks) {
  const TensorRef kept = kept_gradient(parameter);
  graph_.leaf_op("aten::mul.out", {gradient, wrapped_number(graph_, DType::kFloat64), kept},
                 {kept});
  Bucket& bucket = buckets_[place_.at(parameter.index)];
  if (--bucket.missing == 0) ranks.all_reduce(bucket.flat);
  return kept;
}

void GradientReducer::finish() {
  const auto count = static_cast<std::int64_t>(parameters_.size());
  const TensorRef used = graph_.new_tensor(DType::kInt32, GraphBuilder::cpu(), {count});
  for (const Bucket& bucket : buckets_) {
    std::int64_t offset = 0;
    for (std::size_t i : bucket.parameters) {
      const Shape& shape = graph_.shape(parameters_[i]);
      as_strided(graph_, bucket.flat, shape, contiguous_strides(shape), offset, true);
      offset += graph_.numel(parameters_[i]);
    }
    for (std::size_t i : bucket.parameters) {
      const TensorRef flag = select(graph_, used, 0, static_cast<std::int64_t>(i));
      item(graph_, flag, 1);
    }
  }
}

}  // namespace perfmodel
