#include "attention.hpp"

#include <cmath>
#include <utility>

#include "memory.hpp"
#include "pointwise.hpp"
#include "views.hpp"

namespace perfmodel {
namespace {

// Rows of the log-sum-exp of the memory-efficient kernel are padded to this.
constexpr std::int64_t kLogSumExpAlignment = 32;

struct SavedAttention {
  TensorRef q, k, v, out, log_sum_exp, seed, offset;
  std::int64_t queries = 0, keys = 0;
  double scale = 0;
  bool mask_needs_gradient = false;
};

// [B, H, S, D] <-> [B, S, H, D], the layout of the kernels.
TensorRef swap_heads(GraphBuilder& graph, TensorRef x) { return transpose(graph, x, 1, 2); }

std::int64_t padded(std::int64_t size) {
  return (size + kLogSumExpAlignment - 1) / kLogSumExpAlignment * kLogSumExpAlignment;
}

// State of the random numbers: on the host, as no stream is being captured.
TensorRef random_state(GraphBuilder& graph) {
  const TensorRef made = graph.new_tensor(DType::kInt64, graph.cpu(), {});
  allocate(graph, made, {.layout = false, .device = false});
  return made;
}

// q, k and v as the kernels see them; they write [B, S, H, Dv].
struct Operands {
  TensorRef q, k, v;
  Shape result, log_sum_exp;
};

Operands operands(GraphBuilder& graph, const SavedAttention& saved, bool pad) {
  Operands made = {.q = swap_heads(graph, saved.q),
                   .k = swap_heads(graph, saved.k),
                   .v = swap_heads(graph, saved.v),
                   .result = {},
                   .log_sum_exp = {}};
  const Shape& shape = graph.shape(made.q);
  made.result = {shape[0], shape[1], shape[2], graph.shape(made.v)[3]};
  made.log_sum_exp = {shape[0], shape[2], pad ? padded(shape[1]) : shape[1]};
  return made;
}

Value optional(TensorRef tensor) { return tensor.exists() ? Value(tensor) : Value(kNone); }

void flash_forward(GraphBuilder& graph, SavedAttention& saved, const FusedAttention& options,
                   std::int64_t sequence) {
  graph.begin_op("aten::_scaled_dot_product_flash_attention",
                 {saved.q, saved.k, saved.v, options.dropout, options.causal, false, saved.scale},
                 sequence);
  const Operands in = operands(graph, saved, false);
  graph.begin_op("aten::_flash_attention_forward",
                 {in.q, in.k, in.v, kNone, kNone, saved.queries, saved.keys, options.dropout,
                  options.causal, false, saved.scale, kNone, kNone, kNone, kNone});
  // Values may be narrower than queries (latent attention).
  const bool alike = graph.shape(in.q)[3] == in.result[3];
  const TensorRef result =
      alike ? empty_like(graph, in.q) : empty(graph, graph.dtype(saved.q), in.result);
  saved.log_sum_exp = empty(graph, DType::kFloat32, in.log_sum_exp);
  saved.seed = random_state(graph);
  saved.offset = random_state(graph);
  const TensorRef debug = empty(graph, graph.dtype(saved.q), {0});
  graph.end_op({result, saved.log_sum_exp, saved.seed, saved.offset, debug});
  saved.out = swap_heads(graph, result);
  graph.end_op({saved.out, saved.log_sum_exp, graph.undefined(), graph.undefined(), saved.queries,
                saved.keys, saved.seed, saved.offset, debug});
}

void efficient_forward(GraphBuilder& graph, SavedAttention& saved, const FusedAttention& options,
                       std::int64_t sequence) {
  const Value mask = optional(options.mask);
  graph.begin_op(
      "aten::_scaled_dot_product_efficient_attention",
      {saved.q, saved.k, saved.v, mask, true, options.dropout, options.causal, saved.scale},
      sequence);
  const Operands in = operands(graph, saved, true);
  graph.begin_op("aten::_efficient_attention_forward",
                 {in.q, in.k, in.v, mask, kNone, kNone, kNone, kNone, options.dropout,
                  options.causal ? 1 : 0, true, saved.scale, kNone, kNone});
  const TensorRef result = empty(graph, graph.dtype(saved.q), in.result);
  saved.log_sum_exp = empty(graph, DType::kFloat32, in.log_sum_exp);
  saved.seed = random_state(graph);
  saved.offset = random_state(graph);
  graph.end_op({result, saved.log_sum_exp, saved.seed, saved.offset, saved.queries, saved.keys});
  saved.out = swap_heads(graph, result);
  graph.end_op({saved.out, saved.log_sum_exp, saved.seed, saved.offset});
}

// As PyTorch 2.5 calls cuDNN, whose kernels read and write [B, H, S, D].
void cudnn_forward(GraphBuilder& graph, SavedAttention& saved, const FusedAttention& options,
                   std::int64_t sequence) {
  graph.begin_op("aten::_scaled_dot_product_cudnn_attention",
                 {saved.q, saved.k, saved.v, kNone, true, options.dropout, options.causal, false,
                  options.scale ? Value(saved.scale) : Value(kNone)},
                 sequence);
  const Shape& shape = graph.shape(saved.q);
  saved.seed = random_state(graph);
  saved.offset = random_state(graph);
  saved.out = empty_like(graph, saved.q);
  saved.log_sum_exp = empty(graph, DType::kFloat32, {shape[0], shape[1], shape[2], 1});
  const TensorRef none = graph.undefined();
  graph.end_op({saved.out, saved.log_sum_exp, none, none, saved.queries, saved.keys, saved.seed,
                saved.offset, none});
}

// Gradients of q, k and v in the kernels' layout, then in the caller's.
std::vector<TensorRef> gradients_of(GraphBuilder& graph, const Operands& in) {
  return {empty_like(graph, in.q), empty_like(graph, in.k), empty_like(graph, in.v)};
}

std::vector<TensorRef> to_caller(GraphBuilder& graph, std::vector<TensorRef> gradients) {
  for (TensorRef& gradient : gradients) gradient = swap_heads(graph, gradient);
  return gradients;
}

std::vector<TensorRef> flash_backward(GraphBuilder& graph, const SavedAttention& saved,
                                      const FusedAttention& options, TensorRef gradient) {
  const TensorRef none = graph.undefined();
  graph.begin_op(
      "aten::_scaled_dot_product_flash_attention_backward",
      {gradient, saved.q, saved.k, saved.v, saved.out, saved.log_sum_exp, none, none, saved.queries,
       saved.keys, options.dropout, options.causal, saved.seed, saved.offset, saved.scale});
  const Operands in = operands(graph, saved, false);
  const TensorRef gradient_in = swap_heads(graph, gradient), out_in = swap_heads(graph, saved.out);
  graph.begin_op("aten::_flash_attention_backward",
                 {gradient_in, in.q, in.k, in.v, out_in, saved.log_sum_exp, none, none,
                  saved.queries, saved.keys, options.dropout, options.causal, saved.seed,
                  saved.offset, saved.scale, kNone, kNone});
  const std::vector<TensorRef> made = gradients_of(graph, in);
  const Shape& shape = in.result;
  empty(graph, DType::kFloat32, {shape[0], shape[2], padded(shape[1])});  // sums of P * dP
  empty(graph, DType::kFloat32, {shape[0], padded(shape[1]), shape[2], shape[3]});  // dq
  graph.end_op({made[0], made[1], made[2], none});
  std::vector<TensorRef> gradients = to_caller(graph, made);
  graph.end_op({gradients[0], gradients[1], gradients[2]});
  return gradients;
}

std::vector<TensorRef> efficient_backward(GraphBuilder& graph, const SavedAttention& saved,
                                          const FusedAttention& options, TensorRef gradient) {
  const TensorRef none = graph.undefined();
  const TensorRef mask = options.mask.exists() ? options.mask : none;
  const bool of_mask = saved.mask_needs_gradient;
  graph.begin_op("aten::_scaled_dot_product_efficient_attention_backward",
                 {gradient, saved.q, saved.k, saved.v, mask, saved.out, saved.log_sum_exp,
                  saved.seed, saved.offset, options.dropout, Value::List{true, true, true, of_mask},
                  options.causal, saved.scale});
  const TensorRef gradient_in = swap_heads(graph, gradient), out_in = swap_heads(graph, saved.out);
  const Operands in = operands(graph, saved, true);
  graph.begin_op("aten::_efficient_attention_backward", {gradient_in,
                                                         in.q,
                                                         in.k,
                                                         in.v,
                                                         mask,
                                                         out_in,
                                                         none,
                                                         none,
                                                         saved.queries,
                                                         saved.keys,
                                                         saved.log_sum_exp,
                                                         options.dropout,
                                                         saved.seed,
                                                         saved.offset,
                                                         options.causal ? 1 : 0,
                                                         of_mask,
                                                         saved.scale,
                                                         kNone,
                                                         kNone,
                                                         false});
  const std::vector<TensorRef> made = gradients_of(graph, in);
  const TensorRef mask_gradient =
      of_mask ? empty(graph, graph.dtype(mask), graph.shape(mask)) : none;
  empty(graph, DType::kFloat32, in.log_sum_exp);  // sums of P * dP
  graph.end_op({made[0], made[1], made[2], mask_gradient});
  std::vector<TensorRef> gradients = to_caller(graph, made);
  graph.end_op({gradients[0], gradients[1], gradients[2], mask_gradient});
  if (options.mask.exists()) gradients.push_back(mask_gradient);
  return gradients;
}

std::vector<TensorRef> cudnn_backward(GraphBuilder& graph, const SavedAttention& saved,
                                      const FusedAttention& options, TensorRef gradient) {
  const TensorRef none = graph.undefined();
  graph.begin_op("aten::_scaled_dot_product_cudnn_attention_backward",
                 {gradient, saved.q, saved.k, saved.v, saved.out, saved.log_sum_exp, saved.seed,
                  saved.offset, none, none, none, saved.queries, saved.keys, options.dropout,
                  options.causal, options.scale ? Value(saved.scale) : Value(kNone)});
  const std::vector<TensorRef> made = {empty_like(graph, saved.q), empty_like(graph, saved.k),
                                       empty_like(graph, saved.v)};
  graph.end_op({made[0], made[1], made[2]});
  return made;
}

/// How PyTorch calls a kernel.
struct KernelCalls {
  const char* backward_function;
  void (*forward)(GraphBuilder&, SavedAttention&, const FusedAttention&, std::int64_t);
  std::vector<TensorRef> (*backward)(GraphBuilder&, const SavedAttention&, const FusedAttention&,
                                     TensorRef);
};

KernelCalls calls_of(FusedAttention::Kernel kernel) {
  switch (kernel) {
    case FusedAttention::Kernel::kFlash:
      return {"ScaledDotProductFlashAttentionBackward0", flash_forward, flash_backward};
    case FusedAttention::Kernel::kCudnn:
      return {"ScaledDotProductCudnnAttentionBackward0", cudnn_forward, cudnn_backward};
    case FusedAttention::Kernel::kEfficient:
    case FusedAttention::Kernel::kMath: break;
  }
  return {"ScaledDotProductEfficientAttentionBackward0", efficient_forward, efficient_backward};
}

}  // namespace

TensorRef fused_attention(AutogradTape& tape, TensorRef q, TensorRef k, TensorRef v,
                          const FusedAttention& options) {
  GraphBuilder& graph = tape.graph();
  const Value scale = options.scale ? Value(*options.scale) : Value(kNone);
  const auto begin = [&](std::int64_t sequence) {
    graph.begin_op("aten::scaled_dot_product_attention",
                   {q, k, v, optional(options.mask), options.dropout, options.causal, scale},
                   sequence);
  };
  if (options.autocast) {
    begin(-1);
    for (TensorRef* operand : {&q, &k, &v}) *operand = cast(tape, *operand, *options.autocast);
  }
  begin(tape.sequence());
  const int opened = options.autocast ? 2 : 1;
  const KernelCalls calls = calls_of(options.kernel);
  const double width = static_cast<double>(graph.shape(q)[3]);
  SavedAttention saved = {.q = q,
                          .k = k,
                          .v = v,
                          .out = {},
                          .log_sum_exp = {},
                          .seed = {},
                          .offset = {},
                          .queries = graph.shape(q)[2],
                          .keys = graph.shape(k)[2],
                          .scale = options.scale.value_or(1.0 / std::sqrt(width)),
                          .mask_needs_gradient = tape.requires_grad(options.mask)};
  if (options.kernel == FusedAttention::Kernel::kMath) {
    const TensorRef out = math_attention(tape, q, k, v, options);
    for (int i = 0; i < opened; ++i) graph.end_op({out});
    return out;
  }
  calls.forward(graph, saved, options, tape.sequence());
  for (int i = 0; i < opened; ++i) graph.end_op({saved.out});
  std::vector<TensorRef> inputs = {q, k, v};
  if (options.mask.exists()) inputs.push_back(options.mask);
  tape.record(calls.backward_function, inputs, saved.out,
              [&graph, saved, options, calls](TensorRef gradient) {
                return calls.backward(graph, saved, options, gradient);
              });
  return saved.out;
}

}  // namespace perfmodel
