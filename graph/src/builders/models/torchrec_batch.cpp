#include "torchrec_batch.hpp"

#include <numeric>

#include "builders/emit/graph_reduction.hpp"
#include "builders/emit/ops.hpp"

namespace perfmodel {
namespace {

const Value kCpu = Value::Opaque{"cpu"};

Batch new_batch(GraphBuilder& graph, const RandomBatchShape& shape, Device device) {
  const auto features = static_cast<std::int64_t>(shape.lookups.size());
  const std::int64_t total =
      std::accumulate(shape.lookups.begin(), shape.lookups.end(), std::int64_t{0});
  Batch made;
  made.dense = graph.new_tensor(DType::kFloat32, device, {shape.batch, shape.dense_features});
  made.sparse.values = graph.new_tensor(DType::kInt32, device, {total});
  made.sparse.lengths = graph.new_tensor(DType::kInt32, device, {features * shape.batch});
  made.offsets = graph.new_tensor(DType::kInt64, device, {features * shape.batch + 1});
  made.labels = graph.new_tensor(DType::kInt32, device, {shape.batch});
  return made;
}

class RandomBatch {
 public:
  RandomBatch(AutogradTape& tape, const RandomBatchShape& shape)
      : tape_(tape), graph_(tape.graph()), shape_(shape) {}

  Batch make() {
    graph_.begin_label("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__");
    Batch batch = new_batch(graph_, shape_, GraphBuilder::cpu());
    lengths(batch.sparse.lengths);
    batch.offsets = offsets(batch.sparse.lengths);
    const auto features = static_cast<std::int64_t>(shape_.lookups.size());
    const TensorRef per_feature = offsets_of_features(features);
    values(batch.sparse.values);
    lift(batch.dense, tape_.sequence());
    to_list(graph_, per_feature, tape_.sequence());
    lift(batch.labels, tape_.sequence());
    batch.dense = pin(batch.dense);
    batch.sparse.values = pin(batch.sparse.values);
    batch.sparse.lengths = pin(batch.sparse.lengths);
    batch.offsets = pin(batch.offsets);
    batch.labels = pin(batch.labels);
    graph_.end_op();
    return batch;
  }

 private:
  void lift(TensorRef x, std::int64_t sequence) {
    graph_.leaf_op("aten::lift_fresh", {x}, {x}, sequence);
  }

  // One number per feature is written into its slice.
  void lengths(TensorRef all) {
    const std::int64_t count = graph_.numel(all), sequence = tape_.sequence();
    graph_.begin_op("aten::ones", {Shape{count}, 3, kNone, kCpu, false});
    allocate(graph_, all, from_python());
    fill(graph_, all, 1.0);
    graph_.end_op({all});
    for (std::size_t i = 0; i < shape_.lookups.size(); ++i) {
      const auto start = static_cast<std::int64_t>(i) * shape_.batch;
      const std::int64_t length = shape_.lookups[i] / shape_.batch;
      const TensorRef scalar = graph_.new_tensor(DType::kInt32, GraphBuilder::cpu(), {});
      lift(scalar, -1);
      const TensorRef part = slice(graph_, all, 0, start, start + shape_.batch, sequence);
      graph_.begin_op("aten::fill_.Tensor", {part, scalar}, sequence);
      item(graph_, scalar, length);
      graph_.end_op({part});
    }
  }

  // Zero in front, then running sums.
  TensorRef offsets(TensorRef numbers) {
    const std::int64_t sequence = tape_.sequence();
    const TensorRef zero = tensor_of_list(graph_, DType::kInt64, GraphBuilder::cpu(), 1, sequence);
    return cumsum_on_cpu(graph_, concat_on_host({zero, numbers}, DType::kInt64), 0, kNone,
                         sequence);
  }
  TensorRef offsets_of_features(std::int64_t features) {
    const std::int64_t sequence = tape_.sequence();
    const TensorRef zero = tensor_of_list(graph_, DType::kInt64, GraphBuilder::cpu(), 1, sequence);
    const TensorRef numbers =
        tensor_of_list(graph_, DType::kInt64, GraphBuilder::cpu(), features, sequence);
    return cumsum_on_cpu(graph_, concat_on_host({zero, numbers}, DType::kInt64), 0, kNone,
                         sequence);
  }
  TensorRef concat_on_host(const std::vector<TensorRef>& parts, DType dtype) {
    std::int64_t total = 0;
    for (TensorRef part : parts) total += graph_.numel(part);
    const TensorRef made = graph_.new_tensor(dtype, GraphBuilder::cpu(), {total});
    return concat_into(made, parts);
  }

  // On a CPU cat walks its inputs; one of another type is cast by way of a scratch tensor.
  TensorRef concat_into(TensorRef made, const std::vector<TensorRef>& parts) {
    graph_.begin_op("aten::concat", {parts, 0}, tape_.sequence());
    graph_.begin_op("aten::cat", {parts, 0}, tape_.sequence());
    std::int64_t start = 0;
    for (TensorRef part : parts) {
      const std::int64_t count = graph_.numel(part);
      const TensorRef target = narrow(graph_, made, 0, start, count);
      start += count;
      if (graph_.dtype(part) == graph_.dtype(made)) continue;
      const TensorRef cast = graph_.new_tensor(graph_.dtype(part), GraphBuilder::cpu(), {count});
      allocate_like(graph_, cast, target);
      copy(graph_, target, cast);
    }
    graph_.end_op({made});
    return graph_.end_with(made);
  }

  void values(TensorRef all) {
    const std::int64_t sequence = tape_.sequence();
    std::vector<TensorRef> parts;
    for (std::int64_t lookups : shape_.lookups) {
      // Samples of equal length, unless the pooling factor is no whole number.
      const std::int64_t samples = lookups % shape_.batch == 0 ? shape_.batch : 1;
      const TensorRef drawn =
          graph_.new_tensor(DType::kInt32, GraphBuilder::cpu(), {samples, lookups / samples});
      lift(drawn, sequence);
      parts.push_back(flatten(graph_, drawn, sequence));
    }
    concat_into(all, parts);
  }

  TensorRef pin(TensorRef x) {
    const std::int64_t sequence = tape_.sequence();
    const Shape shape = graph_.shape(x);
    const TensorRef pinned = graph_.new_tensor(graph_.dtype(x), GraphBuilder::cpu(), shape);
    const TensorRef nothing = graph_.new_view(pinned, {0}, {1});
    graph_.begin_op("aten::pin_memory", {x, kNone}, sequence);
    graph_.leaf_op("aten::is_pinned", {x, kNone}, {false}, sequence);
    graph_.begin_op("aten::_pin_memory", {x, kNone}, sequence);
    graph_.leaf_op("aten::set_.source_Storage_storage_offset",
                   {nothing, Value::Opaque{"<Storage>"}, 0, shape, contiguous_strides(shape)},
                   {pinned});
    copy(graph_, pinned, x);
    graph_.end_op({pinned});
    return graph_.end_with(pinned);
  }

  AutogradTape& tape_;
  GraphBuilder& graph_;
  const RandomBatchShape& shape_;
};

}  // namespace

Batch batch_on_device(GraphBuilder& graph, const RandomBatchShape& shape) {
  return new_batch(graph, shape, graph.device());
}

void copy_random_batch(AutogradTape& tape, const RandomBatchShape& shape) {
  for (TensorRef x : RandomBatch(tape, shape).make().tensors()) {
    to_device(tape.graph(), x, true, tape.sequence());
  }
}

void record_stream(AutogradTape& tape, const std::vector<TensorRef>& tensors) {
  for (TensorRef x : tensors) {
    tape.graph().leaf_op("aten::record_stream", {x, Value::Opaque{"<Stream>"}}, {},
                         tape.sequence());
  }
}

}  // namespace perfmodel
