// Lookups and sparse gradients that a capture holds without the ops that their kernels call on a
// GPU.

#include "builders/emit/embedding.hpp"
#include "builders/emit/memory.hpp"
#include "builders/emit/sparse.hpp"
#include "builders/emit/sparse_update.hpp"
#include "retarget_rules.hpp"

namespace perfmodel {
namespace {

bool is_sparse(const Tensor* tensor) {
  return tensor && tensor->storage_id == 0 && tensor->dtype != DType::kUnknown;
}

// _embedding_bag returns (out, offset2bag, sizes of bags, indices of maxima).
void fill_bag(const CpuOp& op) {
  if (!op.output(3)) return;
  op.refill([op](GraphBuilder& graph) {
    for (const std::size_t result : {2, 1, 0, 3}) allocate(graph, op.result(result));
  });
}

// (gradient, indices, offset2bag, sizes, maxima, rows, scale by frequency, mode, weights, padding)
void fill_dense_bag_gradient(const CpuOp& op) {
  op.replace([op](GraphBuilder& graph) {
    dense_bag_backward(graph,
                       {.rows = op.integer(5),
                        .indices = op.tensor(1),
                        .offset_to_bag = op.tensor(2),
                        .bag_size = op.tensor(3),
                        .maximum_indices = op.tensor(4),
                        .scale_by_frequency = op.integer(6) != 0,
                        .mode = op.integer(7),
                        .per_sample_weights = op.given(8) ? op.tensor(8) : TensorRef{},
                        .padding_row = op.integer(9)},
                       op.tensor(0));
  });
}

// (sparse axes, dense axes, size, indices, values, ...)
void fill_sparse_tensor(const CpuOp& op) {
  if (!op.input(3) || !op.input(4) || op.input(4)->rank != 2) return;
  op.refill([op](GraphBuilder& graph) {
    const TensorRef values = op.tensor(4);
    make_room(graph, graph.dtype(values), graph.shape(values).back());
    graph.set_sparse_parts(op.sparse(op.source().outputs(op.node())[0]), op.tensor(3), values);
  });
}

// sparse_coo_tensor(indices, values, size): PyTorch 1.13 compares the indices with the size.
void fill_checked_sparse_tensor(const CpuOp& op) {
  if (!op.given(0) || !op.given(1) || !op.output(0)) return;
  op.replace([op](GraphBuilder& graph) {
    const auto size = op.source().shape(*op.output(0));
    const TensorRef indices = op.tensor(0), values = op.tensor(1);
    checked_sparse_coo_tensor(graph, SparseMaker::kConstructor, indices, values,
                              {size.begin(), size.end()});
    graph.set_sparse_parts(op.sparse(op.source().outputs(op.node())[0]), indices, values);
  });
}

void fill_sparse_zero(const CpuOp& op) {
  if (!is_sparse(op.input(0))) return retarget_zero(op);
  op.replace([op](GraphBuilder& graph) { zero(graph, op.sparse(op.inputs()[0]), op.sequence()); });
}

// add_(to, sparse, alpha): to weights, or to a gradient that zero_grad has emptied.
void fill_sparse_sum(const CpuOp& op) {
  if (!op.input(0) || !is_sparse(op.input(1))) return;
  op.replace([op](GraphBuilder& graph) {
    const TensorRef added = op.filled_sparse(1);
    if (is_sparse(op.input(0))) {
      add_to_empty_sparse(graph, op.filled_sparse(0), added);
    } else {
      add_sparse_(graph, op.tensor(0), added, op.argument(2));
    }
  });
}

// The tensor that the program later reads as the indices or the values of a sparse result.
TensorRef part_of_result(const CpuOp& op, std::string_view part, DType dtype, Shape shape) {
  const ExecutionGraph& source = op.source();
  for (auto i = op.node() + 1; i < static_cast<std::int32_t>(source.nodes.size()); ++i) {
    const CpuOp later = op.at(i);
    const bool reads = later.name() == part && later.input(0) && later.output(0) &&
                       later.input(0)->id == op.output(0)->id;
    if (reads) return later.result(0);
  }
  return op.edit().builder().new_tensor(dtype, std::move(shape));
}

// Rows of one index become one. No capture knows how many there are, so its own number is taken.
void fill_coalesce(const CpuOp& op) {
  if (!is_sparse(op.input(0)) || !op.output(0)) return;
  op.refill([op](GraphBuilder& graph) {
    const TensorRef sparse = op.filled_sparse(0);
    const TensorRef made = op.sparse(op.source().outputs(op.node())[0]);
    const TensorRef values = graph.sparse_values(sparse);
    const std::int64_t rows = entries_of(graph, sparse);
    graph.set_sparse_parts(
        made, part_of_result(op, "aten::_indices", DType::kInt64, {1, rows}),
        part_of_result(op, "aten::_values", graph.dtype(values), graph.shape(values)));
    coalesce_on_gpu(graph, sparse, made);
  });
}

void fill_sparse_mask(const CpuOp& op) {
  if (!op.given(0) || !is_sparse(op.input(1))) return;
  op.replace([op](GraphBuilder& graph) { sparse_mask(graph, op.tensor(0), op.filled_sparse(1)); });
}

}  // namespace

const BareRules& bare_table_rules() {
  static const BareRules kRules = {
      {"aten::_embedding_bag", fill_bag},
      {"aten::_embedding_bag_dense_backward", fill_dense_bag_gradient},
      {"aten::_sparse_coo_tensor_with_dims_and_tensors", fill_sparse_tensor},
      {"aten::sparse_coo_tensor", fill_checked_sparse_tensor},
      {"aten::zero_", fill_sparse_zero},
      {"aten::add_", fill_sparse_sum},
      {"aten::_coalesce", fill_coalesce},
      {"aten::sparse_mask", fill_sparse_mask},
  };
  return kRules;
}

}  // namespace perfmodel
