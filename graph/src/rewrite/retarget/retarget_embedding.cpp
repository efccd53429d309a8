#include <algorithm>
#include <array>

#include "builders/emit/embedding.hpp"
#include "builders/emit/embedding_lookup.hpp"
#include "builders/emit/index.hpp"
#include "builders/emit/memory.hpp"
#include "builders/emit/sparse_update.hpp"
#include "builders/emit/views.hpp"
#include "retarget_rules.hpp"

namespace perfmodel {
namespace {

constexpr const char* kBagBackward = "EmbeddingBagBackward0";

std::int64_t columns_of(const CpuOp& op, const Tensor& matrix) {
  return op.source().shape(matrix).back();
}

// Whether the first input has a row for each element of the second, as gradients of lookups have.
bool has_row_per_index(const CpuOp& op) {
  const Tensor* gradient = op.input(0);
  const Tensor* indices = op.input(1);
  if (!gradient || !indices || gradient->rank == 0) return false;
  const std::int64_t columns = columns_of(op, *gradient);
  return columns > 0 && gradient->numel % columns == 0 &&
         gradient->numel / columns == indices->numel;
}

// Whether a matrix of gradients, a list of indices and one of the bags' starts are given.
bool has_bags(const CpuOp& op) {
  constexpr std::array<std::int64_t, 3> kRanks = {2, 1, 1};
  for (std::size_t i = 0; i < kRanks.size(); ++i) {
    const Tensor* given = op.input(i);
    if (!given || given->rank != kRanks[i]) return false;
  }
  return columns_of(op, *op.input(0)) > 0 && op.input(2)->numel > 0;
}

}  // namespace

// Rows are gathered one by one on a CPU.
void retarget_index_select(const CpuOp& op) {
  if (op.children().empty()) {
    return op.refill([op](GraphBuilder& graph) {
      op.write_as([&](GraphBuilder&) {
        const TensorRef unsized = empty(graph, graph.dtype(op.result(0)), {0});
        if (!graph.pytorch().before(2, 0)) resize_to(graph, unsized, op.result(0));
      });
    });
  }
  op.keep_children({"aten::empty"});
  const std::int32_t unsized = op.child("aten::empty");
  if (unsized < 0 || op.edit().builder().pytorch().before(2, 0)) return;
  op.edit().follow(unsized, [op, unsized] {
    op.edit().copy().close_to(op.node());
    resize_to(op.edit().builder(), op.at(unsized).result(0), op.result(0));
  });
}

// _index_put_impl_(x, indices, values, accumulate, unsafe): a CPU walks the indices, a GPU that
// adds up sorts them.
void retarget_index_put(const CpuOp& op) {
  const ExecutionGraph& source = op.source();
  const Tensor* to = op.input(0);
  const auto inputs = op.inputs();
  if (op.integer(3) == 0 || inputs[1].kind != Argument::Kind::kList || !to) return;
  const auto indices = source.elements(inputs[1]);
  const auto given = [&source](const Argument& index) {
    return index.kind == Argument::Kind::kTensor && source.tensors[index.index].storage_id != 0;
  };
  // A mask is turned into indices first, and tensors of several axes are spread.
  const bool has_mask = std::ranges::any_of(indices, [&](const Argument& index) {
    return given(index) && source.tensors[index.index].dtype != DType::kInt64;
  });
  if (has_mask || std::ranges::none_of(indices, given) || indices.size() > to->rank) return;
  op.replace([op, indices, given](GraphBuilder& graph) {
    std::vector<TensorRef> made;
    for (const Argument& index : indices) {
      made.push_back(given(index) ? graph.tensor_of_source(index.index) : TensorRef{});
    }
    index_put_accumulate(graph, op.tensor(0), made, op.tensor(2));
  });
}

// embedding_dense_backward(gradient, indices, rows, padding, scale by frequency)
void retarget_embedding_gradient(const CpuOp& op) {
  if (op.integer(4) != 0 || !has_row_per_index(op)) return;
  op.replace([op](GraphBuilder& graph) {
    const TensorRef gradient = op.tensor(0);
    embedding_dense_backward(graph, gradient, op.tensor(1),
                             {op.integer(2), graph.shape(gradient).back()}, op.integer(3));
  });
}

// A CPU needs the bag of each lookup in the backward pass alone, a GPU finds it on the way.
void retarget_embedding_bag(const CpuOp& op) {
  if (op.name() == "aten::embedding_bag") return;  // the op inside is visited next
  KeptForBackward& kept = op.keep(kBagBackward);
  const bool inside = op.parent_name() == "aten::embedding_bag";
  op.refill([op, &kept, inside](GraphBuilder& graph) {
    const TensorRef indices = op.tensor(1);
    const TensorRef offsets = op.tensor(2);
    const TensorRef out = op.result(0);
    const bool maximum = op.integer(4) == 2;
    const DType dtype = graph.dtype(indices);
    const TensorRef bag_size = empty(graph, dtype, graph.shape(offsets));
    const TensorRef offset_to_bag = empty(graph, dtype, graph.shape(indices));
    allocate(graph, out);
    const TensorRef maximum_indices = empty(graph, dtype, maximum ? graph.shape(out) : Shape{0});
    kept.tensors = {offset_to_bag, bag_size, maximum_indices};
    const std::vector<Value> outputs = {out, offset_to_bag, bag_size, maximum_indices};
    graph.end_op(outputs);
    if (inside) graph.end_op(outputs);
  });
}

// _embedding_bag_backward(gradient, indices, offsets, offset2bag, bag_size, maximum_indices, rows,
// scale by frequency, mode, sparse, per_sample_weights, padding)
void retarget_embedding_bag_gradient(const CpuOp& op) {
  constexpr std::size_t kRows = 6, kScale = 7, kMode = 8, kSparse = 9, kWeights = 10, kPadding = 11;
  const KeptForBackward* kept = op.kept_around(kBagBackward);
  if (!kept) return;
  if (!has_bags(op)) throw Contradiction("the gradient of bags has another shape than they have");
  op.replace([op, kept](GraphBuilder& graph) {
    Bag bag{.rows = op.integer(kRows),
            .indices = op.tensor(1),
            .offsets = op.tensor(2),
            .offset_to_bag = kept->tensors[0],
            .bag_size = kept->tensors[1],
            .maximum_indices = kept->tensors[2],
            .sparse = op.integer(kSparse) != 0};
    if (!bag.sparse) {
      bag.scale_by_frequency = op.integer(kScale) != 0;
      bag.mode = op.integer(kMode);
      bag.per_sample_weights = op.tensor(kWeights);
      bag.padding_row = op.integer(kPadding);
    }
    embedding_bag_backward(graph, bag, op.tensor(0));
  });
}

// weight += alpha * gradient: `add.out` with a sparse second tensor looks at its entries by ops.
void retarget_sparse_sum(const CpuOp& op) {
  const Tensor* other = op.input(1);
  const bool sparse_to_dense = op.given(0) && op.given(3) && other && other->storage_id == 0 &&
                               other->dtype != DType::kUnknown;
  const std::int32_t of_indices = op.child("aten::_indices");
  const std::int32_t of_values = op.child("aten::_values");
  if (!sparse_to_dense || op.child("aten::_nnz") < 0) return;
  if (of_indices < 0 || of_values < 0) return;
  op.refill([op, of_indices, of_values](GraphBuilder& graph) {
    const TensorRef weight = op.tensor(0);
    const TensorRef gradient = op.tensor(1);
    const TensorRef values = op.at(of_values).result(0);
    const TensorRef indices = op.at(of_indices).result(0);
    const Shape shape = graph.shape(weight);
    const std::int64_t entries = graph.shape(values)[0];
    graph.leaf_op("aten::_nnz", {gradient}, {entries});
    graph.leaf_op("aten::_values", {gradient}, {values});
    to_same_dtype(graph, values);
    graph.leaf_op("aten::_indices", {gradient}, {indices});
    graph.leaf_op("aten::is_coalesced", {gradient}, {false});
    const TensorRef rows = squeeze(graph, indices, 0);
    const TensorRef target = view(graph, weight, shape);
    const TensorRef added = reshape(graph, values, {entries, graph.numel(weight) / shape[0]});
    index_add_in_place(graph, target, rows, added, op.argument(2));
  });
}

// A CPU sorts the entries in an op of its own and merges them without one; the unused ends of its
// two results are cut off.
void retarget_coalesce(const CpuOp& op) {
  const std::int32_t of_indices = op.child("aten::_indices");
  const std::int32_t of_values = op.child("aten::_values");
  std::vector<std::int32_t> cut;  // first indices, then values
  for (const std::int32_t child : op.children()) {
    if (op.source().name(child) == "aten::narrow") cut.push_back(child);
  }
  if (of_indices < 0 || of_values < 0 || cut.size() != 2) return;
  op.refill([op, of_indices, of_values, cut](GraphBuilder& graph) {
    const TensorRef sparse = op.tensor(0), made = op.result(0);
    graph.set_sparse_parts(sparse, op.at(of_indices).result(0), op.at(of_values).result(0));
    graph.set_sparse_parts(made, op.at(cut[0]).result(0), op.at(cut[1]).result(0));
    coalesce_on_gpu(graph, sparse, made);
  });
}

// Indices that a GPU has merged are dense, while a CPU leaves them in the longer list.
void retarget_sparse_mask(const CpuOp& op) {
  for (const std::int32_t child : op.children()) {
    const CpuOp below = op.at(child);
    if (below.name() == "aten::mul") retarget_sparse_mask(below);  // PyTorch 2
    if (below.name() == "aten::narrow" && below.integer(1) == 1) {
      below.replace([below](GraphBuilder& graph) {
        narrow(graph, below.tensor(0), 1, below.integer(2), below.integer(3));
      });
    }
    if (below.name() != "aten::clone" || !below.output(0)) continue;
    below.refill([below](GraphBuilder& graph) {
      const TensorRef made = below.result(0);
      allocate_strided(graph, made, contiguous_strides(graph.shape(made)));
      copy(graph, made, below.tensor(0));
    });
  }
}

// PyTorch 1.13 looks at the least and the largest index on the host.
void retarget_sparse_tensor(const CpuOp& op) {
  const std::int32_t least = op.child("aten::min"), largest = op.child("aten::max");
  if (least < 0 || largest < 0) return;
  op.edit().follow(largest, [op, least, largest] {
    op.edit().copy().close_to(op.node());
    for (const std::int32_t extreme : {least, largest}) {
      read_index(op.edit().builder(), op.at(extreme).result(0));
    }
  });
}

}  // namespace perfmodel
