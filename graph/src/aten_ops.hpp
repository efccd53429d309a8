#pragma once

#include <vector>

#include "graph_builder.hpp"

namespace perfmodel {

// Ops without a gradient: what runs inside an op that autograd handles as a whole, and in backward
// functions. `sequence` is that of the node, -1 where autograd is switched off.

TensorRef as_strided(GraphBuilder& graph, TensorRef x, Shape shape, Shape strides,
                     std::int64_t offset = 0, bool give_offset = false);
TensorRef transpose(GraphBuilder& graph, TensorRef x, int dim0, int dim1,
                    std::int64_t sequence = -1);
TensorRef t(GraphBuilder& graph, TensorRef x, std::int64_t sequence = -1);
TensorRef slice(GraphBuilder& graph, TensorRef x, int dim, std::int64_t start, std::int64_t end,
                std::int64_t sequence = -1);
TensorRef select(GraphBuilder& graph, TensorRef x, int dim, std::int64_t index,
                 std::int64_t sequence = -1);
TensorRef narrow(GraphBuilder& graph, TensorRef x, int dim, std::int64_t start,
                 std::int64_t length);
TensorRef squeeze(GraphBuilder& graph, TensorRef x);
TensorRef squeeze(GraphBuilder& graph, TensorRef x, int dim);
TensorRef expand(GraphBuilder& graph, TensorRef x, Shape shape);
/// A view of a contiguous tensor; `asked` is the size argument, which may hold a -1.
TensorRef view(GraphBuilder& graph, TensorRef x, const Shape& asked, std::int64_t sequence = -1);
TensorRef reshape(GraphBuilder& graph, TensorRef x, const Shape& asked, std::int64_t sequence = -1);
TensorRef contiguous(GraphBuilder& graph, TensorRef x);

TensorRef empty(GraphBuilder& graph, DType dtype, Shape shape);
TensorRef empty_like(GraphBuilder& graph, TensorRef x);
TensorRef empty_like(GraphBuilder& graph, TensorRef x, DType dtype);
TensorRef zeros(GraphBuilder& graph, DType dtype, Shape shape);
TensorRef zeros_like(GraphBuilder& graph, TensorRef x, DType dtype);
TensorRef new_zeros(GraphBuilder& graph, TensorRef like, Shape shape);
void zero(GraphBuilder& graph, TensorRef x, std::int64_t sequence = -1);
void copy(GraphBuilder& graph, TensorRef to, TensorRef from, bool non_blocking = false);
/// `x.to(dtype)` of a tensor that has this dtype already.
void to_same_dtype(GraphBuilder& graph, TensorRef x, std::int64_t sequence = -1);

TensorRef sparse_coo_tensor(GraphBuilder& graph, TensorRef indices, TensorRef values, Shape shape);
/// A second sparse tensor with the indices and values of `sparse`, as AccumulateGrad makes it.
TensorRef share_sparse(GraphBuilder& graph, TensorRef sparse);

/// Differentiable ops of the forward pass on one GPU.
class AtenOps {
 public:
  AtenOps(GraphBuilder& graph, AutogradTape& tape) : graph_(graph), tape_(tape) {}

  GraphBuilder& graph() { return graph_; }
  AutogradTape& tape() { return tape_; }

  TensorRef to_gpu(TensorRef host, bool non_blocking);
  TensorRef linear(TensorRef x, TensorRef weight, TensorRef bias);
  TensorRef relu(TensorRef x);
  TensorRef sigmoid(TensorRef x);
  TensorRef cat(const std::vector<TensorRef>& inputs, int dim);
  TensorRef view(TensorRef x, const Shape& asked);
  TensorRef transpose(TensorRef x, int dim0, int dim1);
  TensorRef bmm(TensorRef a, TensorRef b);
  /// `x[:, row, column]` of a [B, M, N] tensor with two index tensors of one length on the GPU.
  TensorRef index_matrix(TensorRef x, TensorRef row, TensorRef column);
  /// Mean over the batch.
  TensorRef binary_cross_entropy(TensorRef prediction, TensorRef target);

 private:
  TensorRef slice_all(TensorRef x);
  std::vector<TensorRef> addmm_backward(TensorRef gradient, TensorRef x, TensorRef weight_t);
  TensorRef index_backward(TensorRef gradient, const Shape& shape, TensorRef row, TensorRef column);

  GraphBuilder& graph_;
  AutogradTape& tape_;
};

// Optimizers as PyTorch 2 runs them on a GPU by default (`foreach`), and the plain loop that it
// falls back to as soon as one gradient is sparse. Gradients come from `tape`.

void sgd_step_foreach(GraphBuilder& graph, const AutogradTape& tape,
                      const std::vector<TensorRef>& parameters, double learning_rate);
void sgd_step_loop(GraphBuilder& graph, const AutogradTape& tape,
                   const std::vector<TensorRef>& parameters, double learning_rate);
void adagrad_step_foreach(GraphBuilder& graph, const AutogradTape& tape,
                          const std::vector<TensorRef>& parameters, double learning_rate);

}  // namespace perfmodel
