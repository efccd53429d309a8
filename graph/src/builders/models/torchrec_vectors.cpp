#include "torchrec_vectors.hpp"

#include <utility>
#include <vector>

#include "builders/emit/ops.hpp"

namespace perfmodel {
namespace {

void begin_wait(GraphBuilder& graph) {
  graph.begin_label("## PooledEmbeddingsAwaitable wait() ##");
  graph.begin_label("## Request wait() ##");
}

// `pooled.new_empty(shape)`.
TensorRef new_empty(GraphBuilder& graph, TensorRef pooled, const Shape& shape) {
  graph.begin_op("aten::new_empty", {pooled, shape, scalar_type_code(DType::kFloat32), 0,
                                     graph.device_value(), kNone});
  return graph.end_with(empty(graph, DType::kFloat32, shape));
}

}  // namespace

TensorRef VectorRequest::flat_buffer(std::int64_t elements) {
  return python_empty(graph_, DType::kFloat32, {elements});
}

void VectorRequest::make_token() { token_ = python_empty(graph_, DType::kFloat32, {1}, false); }

Shape VectorRequest::times_batch(Shape amounts) const {
  for (std::int64_t& amount : amounts) amount *= batch_;
  return amounts;
}

Shape VectorRequest::own_width_to_each() const {
  return Shape(widths_.size(), batch_ * own_width_);
}

void VectorRequest::request_all_to_all(TensorRef pooled, std::int64_t batch, Shape widths) {
  batch_ = batch;
  widths_ = std::move(widths);
  pooled_shape_ = graph_.shape(pooled);
  own_width_ = pooled_shape_.back();
  make_token();
  graph_.begin_plain("All2All_Pooled_Req", {pooled}, tape_.sequence());
  const TensorRef flat = view(graph_, pooled, {-1});
  const Shape incoming = times_batch(widths_);
  received_ = flat_buffer(sum_of(incoming));
  graph_.begin_label("## alltoall_fwd_single ##");
  number_ = ranks_.all_to_all(received_, flat, incoming, own_width_to_each());
  graph_.end_op();
  graph_.end_op();
  tape_.record("All2All_Pooled_ReqBackward", {pooled}, token_, [this](TensorRef) {
    return std::vector<TensorRef>{wait_for_gradient(pooled_shape_)};
  });
}

TensorRef VectorRequest::wait_for_all_to_all() {
  graph_.begin_plain("All2All_Pooled_Wait", {token_}, tape_.sequence());
  ranks_.wait(number_);
  std::vector<TensorRef> parts = split_with_sizes(graph_, received_, times_batch(widths_), 0);
  for (TensorRef& part : parts) part = view(graph_, part, {batch_, -1});
  const TensorRef out = cat(graph_, parts, 1);
  graph_.end_op();
  tape_.record("All2All_Pooled_WaitBackward", {token_}, out,
               [this](TensorRef gradient) -> std::vector<TensorRef> {
                 send_gradient(gradient);
                 return {token_};
               });
  return out;
}

void VectorRequest::send_gradient(TensorRef gradient) {
  const TensorRef dense = contiguous(graph_, gradient);
  std::vector<TensorRef> parts = split_with_sizes(graph_, dense, widths_, 1);
  for (TensorRef& part : parts) part = view(graph_, contiguous(graph_, part), {-1});
  const TensorRef flat = cat(graph_, parts, 0);
  received_gradient_ = flat_buffer(sum_of(own_width_to_each()));
  graph_.begin_label("## alltoall_bwd_single ##");
  gradient_number_ =
      ranks_.all_to_all(received_gradient_, flat, own_width_to_each(), times_batch(widths_));
  graph_.end_op();
}

// Gradients of all ranks' losses are averaged.
TensorRef VectorRequest::wait_for_gradient(const Shape& shape) {
  ranks_.wait(gradient_number_);
  TensorRef gradient = received_gradient_;
  if (graph_.shape(gradient) != shape) gradient = view(graph_, gradient, shape);
  graph_.leaf_op("aten::div_.Tensor", {gradient, wrapped_number(graph_)}, {gradient});
  return gradient;
}

void VectorRequest::request_reduce_scatter(TensorRef pooled) {
  pooled_shape_ = graph_.shape(pooled);
  make_token();
  graph_.begin_plain("ReduceScatterBase_Req", {pooled}, tape_.sequence());
  received_ = new_empty(graph_, pooled, {pooled_shape_[0] / ranks_.world_size(), pooled_shape_[1]});
  graph_.begin_label("## reduce_scatter_base ##");
  number_ = ranks_.reduce_scatter(received_, pooled);
  graph_.end_op();
  graph_.end_op();
  tape_.record("ReduceScatterBase_ReqBackward", {pooled}, token_, [this](TensorRef) {
    return std::vector<TensorRef>{wait_for_gradient(pooled_shape_)};
  });
}

TensorRef VectorRequest::wait_for_reduce_scatter() {
  graph_.begin_plain("ReduceScatterBase_Wait", {token_}, tape_.sequence());
  ranks_.wait(number_);
  graph_.end_op();
  tape_.record("ReduceScatterBase_WaitBackward", {token_}, received_,
               [this](TensorRef gradient) -> std::vector<TensorRef> {
                 gather_gradient(gradient, pooled_shape_);
                 return {token_};
               });
  return received_;
}

void VectorRequest::gather_gradient(TensorRef gradient, const Shape& shape) {
  received_gradient_ = empty(graph_, DType::kFloat32, shape);
  const TensorRef dense = contiguous(graph_, gradient);
  graph_.begin_label("## reduce_scatter_base_bwd (all_gather) ##");
  gradient_number_ = ranks_.all_gather(received_gradient_, dense);
  graph_.end_op();
}

VectorExchange::VectorExchange(AutogradTape& tape, const ShardingGroup& group, std::int64_t batch,
                               const Communicator& ranks, const Communicator& host,
                               const Communicator& across)
    : tape_(tape),
      group_(group),
      batch_(batch),
      sums_(tape, group.has_hosts() ? host : ranks),
      columns_(tape, group.has_hosts() ? across : ranks) {}

void VectorExchange::send(TensorRef pooled) {
  if (group_.cuts_rows()) sums_.request_reduce_scatter(pooled);
  if (group_.sharding == TableSharding::kRowWise) return;
  if (group_.has_hosts()) {
    begin_wait(tape_.graph());
    pooled = sums_.wait_for_reduce_scatter();
    tape_.graph().end_op();
    tape_.graph().end_op();
  }
  columns_.request_all_to_all(pooled, batch_, group_.widths());
}

TensorRef VectorExchange::receive() {
  begin_wait(tape_.graph());
  TensorRef vectors = group_.sharding == TableSharding::kRowWise ? sums_.wait_for_reduce_scatter()
                                                                 : columns_.wait_for_all_to_all();
  tape_.graph().end_op();
  vectors = columns_in_order(vectors);
  tape_.graph().end_op();
  return vectors;
}

// The pieces of a table come from several owners.
TensorRef VectorExchange::columns_in_order(TensorRef vectors) {
  const std::vector<std::size_t> order = group_.column_order();
  if (order.empty()) return vectors;
  GraphBuilder& graph = tape_.graph();
  const auto count = static_cast<std::int64_t>(order.size());
  const auto list = [&](std::int64_t size) { return graph.new_tensor(DType::kInt64, {size}); };
  graph.begin_op("fbgemm::permute_pooled_embs_auto_grad_split",
                 {vectors, list(count + 1), list(count), list(count + 1), list(count)},
                 tape_.sequence());
  const TensorRef out = empty_like(graph, vectors);
  graph.end_op({out});
  tape_.record("torch::autograd::CppNode<fbgemm_gpu::PermutePooledEmbsFunctionSplit>", {vectors},
               out, [&graph](TensorRef gradient) -> std::vector<TensorRef> {
                 return {empty_like(graph, contiguous(graph, gradient))};
               });
  return out;
}

}  // namespace perfmodel
