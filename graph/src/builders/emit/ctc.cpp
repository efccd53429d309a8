#include "ctc.hpp"

#include <limits>

#include "memory.hpp"
#include "pointwise.hpp"
#include "reduction.hpp"
#include "update.hpp"
#include "views.hpp"

namespace perfmodel {
namespace {

struct Ctc {
  TensorRef log_probabilities, targets;
  Shape input_lengths = {}, target_lengths = {};  // in numbers: all samples are full
  TensorRef loss = {}, alpha = {};                // [B], [B, T, 2 S + 1]
};

// `x.to(device, dtype)` of a tensor that is there.
void to_same(GraphBuilder& graph, TensorRef x, std::int64_t sequence) {
  graph.leaf_op("aten::to.device",
                {x, GraphBuilder::device_value(graph.device(x)), scalar_type_code(graph.dtype(x)),
                 false, false, kNone},
                {x}, sequence);
}

TensorRef permuted(GraphBuilder& graph, TensorRef x) {
  const Shape shape = graph.shape(x);
  graph.begin_op("aten::permute", {x, Shape{1, 0, 2}});
  const TensorRef made =
      as_strided(graph, x, {shape[1], shape[0], shape[2]}, {shape[2], shape[1] * shape[2], 1});
  return graph.end_with(made);
}

// A small table of host numbers that the kernels on a GPU read.
void table_to_gpu(GraphBuilder& graph, std::int64_t size) {
  const int code = scalar_type_code(DType::kInt64);
  const Value device = graph.device_value();
  const TensorRef host = graph.new_tensor(DType::kInt64, GraphBuilder::cpu(), {size});
  allocate(graph, host);
  const TensorRef made = graph.new_tensor(DType::kInt64, {size});
  graph.begin_op("aten::to.dtype_layout", {host, code, 0, device, kNone, false, false, kNone});
  graph.begin_op("aten::_to_copy", {host, code, 0, device, kNone, false, kNone});
  allocate_strided(graph, made, {1});
  copy(graph, made, host);
  graph.end_op({made});
  graph.end_op({made});
}

// Lengths of inputs and targets and the start of each target.
void tables_to_gpu(GraphBuilder& graph, std::int64_t batch) {
  for (int i = 0; i < 3; ++i) table_to_gpu(graph, batch);
}

void forward_op(GraphBuilder& graph, Ctc& ctc, std::int64_t sequence) {
  const Shape shape = graph.shape(ctc.log_probabilities);
  const std::int64_t batch = shape[1], states = 2 * graph.shape(ctc.targets)[1] + 1;
  const DType dtype = graph.dtype(ctc.log_probabilities);
  graph.begin_op(
      "aten::_ctc_loss",
      {ctc.log_probabilities, ctc.targets, ctc.input_lengths, ctc.target_lengths, 0, false},
      sequence);
  const bool on_gpu = graph.pytorch().on_gpu();
  if (on_gpu) tables_to_gpu(graph, batch);
  ctc.alpha = empty(graph, dtype, {batch, shape[0], states});
  ctc.loss = empty(graph, dtype, {batch});
  if (!on_gpu) {
    permuted(graph, ctc.log_probabilities);
    const TensorRef first = narrow(graph, ctc.alpha, 1, 0, 1);
    fill(graph, first, -std::numeric_limits<double>::infinity());
  }
  graph.end_op({ctc.loss, ctc.alpha});
}

TensorRef backward_op(GraphBuilder& graph, const Ctc& ctc, TensorRef gradient) {
  const double minus_infinity = -std::numeric_limits<double>::infinity();
  const TensorRef x = ctc.log_probabilities;
  graph.begin_op("aten::_ctc_loss_backward", {gradient, x, ctc.targets, ctc.input_lengths,
                                              ctc.target_lengths, ctc.loss, ctc.alpha, 0, false});
  const bool on_gpu = graph.pytorch().on_gpu();
  if (on_gpu) tables_to_gpu(graph, graph.shape(x)[1]);
  TensorRef beta;
  if (on_gpu) beta = empty_like_contiguous(graph, ctc.alpha);
  graph.begin_op("aten::full_like", {x, minus_infinity, kNone, kNone, kNone, kNone, 0});
  const TensorRef made = empty_like_contiguous(graph, x);
  fill(graph, made, minus_infinity);
  graph.end_op({made});
  if (!on_gpu) {
    empty_like_contiguous(graph, ctc.alpha);
    permuted(graph, x);
    permuted(graph, made);
  }
  return graph.end_with(made);
}

// loss / lengths, then the mean.
TensorRef mean_per_target(AutogradTape& tape, TensorRef loss) {
  GraphBuilder& graph = tape.graph();
  const TensorRef lengths = empty(graph, graph.dtype(loss), graph.shape(loss));
  const TensorRef divisor = like(graph, lengths);
  graph.leaf_op("aten::clamp_min", {lengths, 1}, {divisor}, tape.sequence());
  return mean(tape, div(tape, loss, divisor));
}

}  // namespace

TensorRef ctc_loss(AutogradTape& tape, TensorRef log_probabilities, TensorRef targets,
                   TensorRef input_lengths, TensorRef target_lengths) {
  GraphBuilder& graph = tape.graph();
  Ctc ctc{.log_probabilities = log_probabilities, .targets = targets};
  const Shape& shape = graph.shape(log_probabilities);
  ctc.input_lengths.assign(shape[1], shape[0]);
  ctc.target_lengths.assign(shape[1], graph.shape(targets)[1]);
  const std::int64_t sequence = tape.sequence();
  const bool on_gpu = graph.pytorch().on_gpu();
  graph.begin_op("aten::ctc_loss.Tensor",
                 {log_probabilities, targets, input_lengths, target_lengths, 0, 1, false},
                 sequence);
  if (on_gpu) {
    graph.leaf_op("aten::_use_cudnn_ctc_loss.Tensor",
                  {log_probabilities, targets, input_lengths, target_lengths, 0}, {false},
                  sequence);
  }
  to_same(graph, input_lengths, sequence);
  to_same(graph, target_lengths, sequence);
  if (on_gpu) {
    graph.leaf_op("aten::_use_cudnn_ctc_loss",
                  {log_probabilities, targets, ctc.input_lengths, ctc.target_lengths, 0}, {false},
                  sequence);
  }
  to_same(graph, targets, sequence);
  forward_op(graph, ctc, sequence);
  tape.record_unary(
      "CtcLossBackward0", log_probabilities, ctc.loss,
      [&graph, ctc](TensorRef gradient) { return backward_op(graph, ctc, gradient); });
  return graph.end_with(mean_per_target(tape, ctc.loss));
}

}  // namespace perfmodel
