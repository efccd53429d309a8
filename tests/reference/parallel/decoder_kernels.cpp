#include "decoder_kernels.hpp"

#include <cmath>

namespace perfmodel::parallel {
namespace {

double item_size(DType dtype) {
  switch (dtype) {
    case DType::kFloat8:
      return 1;
    case DType::kFloat16:
    case DType::kBFloat16:
      return 2;
    default:
      return 4;
  }
}

std::int64_t whole(double value) { return static_cast<std::int64_t>(std::llround(value)); }

}  // namespace

void append(OpList& list, const OpList& more) { list.insert(list.end(), more.begin(), more.end()); }

double kernel_us(const OpList& list) {
  double sum = 0;
  for (const IssuedOp& op : list) sum += op.collective ? 0 : op.device_us;
  return sum;
}

double collective_us(const OpList& list) {
  double sum = 0;
  for (const IssuedOp& op : list) sum += op.collective ? op.device_us : 0;
  return sum;
}

double host_us(const OpList& list) {
  double sum = 0;
  for (const IssuedOp& op : list) sum += op.host_us;
  return sum;
}

/// Prices kernels as they are issued. Sizes are elements unless the name says bytes.
struct DecoderKernels::Issue {
  const DecoderKernels& k;
  double op_us;  // host cost per kernel in this pass
  OpList list = {};

  void kernel(KernelWork work, double read_bytes, double written_bytes) {
    work.bytes_read = {read_bytes};
    work.bytes_written = {written_bytes};
    const double us = k.costs_.models->price(work, *k.costs_.gpu).time.count();
    list.push_back({.host_us = op_us, .device_us = us * k.costs_.kernel_factor});
  }
  void gemm_as(DType dtype, double b, double m, double n, double depth) {
    const double item = item_size(dtype);
    kernel({.family = KernelFamily::kGemm,
            .dtype = dtype,
            .matrix_units = true,
            .flop = {2 * b * m * n * depth},
            .shape = GemmShape{.batch = whole(b), .m = whole(m), .n = whole(n), .k = whole(depth)}},
           b * (m + n) * depth * item, b * m * n * k.item_);
  }
  void batched_gemm(double b, double m, double n, double depth) {
    gemm_as(k.costs_.dtype, b, m, n, depth);
  }
  /// y[m, n] = x[m, depth] w[depth, n] of a linear layer.
  void linear(double m, double n, double depth) {
    if (k.costs_.linear_dtype == DType::kFloat8) {  // scale and cast both operands
      elementwise(m * depth * k.item_, m * depth);
      elementwise(n * depth * k.item_, n * depth);
    }
    gemm_as(k.costs_.linear_dtype, 1, m, n, depth);
  }
  /// Gradients of the same layer: input, then weight.
  void linear_backward(double m, double n, double depth) {
    linear(m, depth, n);
    gemm_as(k.costs_.linear_dtype, 1, depth, n, m);
  }
  void flash_attention(double flop) {
    const double peak = k.costs_.gpu->peak(k.costs_.dtype, true).value * 1e-6;
    const double us = flop / (k.costs_.flash_attention_share * peak);
    list.push_back({.host_us = op_us, .device_us = us * k.costs_.kernel_factor});
  }
  void elementwise(double read_bytes, double written_bytes) {
    kernel({.family = KernelFamily::kElementwise, .dtype = k.costs_.dtype}, read_bytes,
           written_bytes);
  }
  void rows(KernelFamily family, double rows, double cols, double read_bytes,
            double written_bytes) {
    kernel({.family = family,
            .dtype = k.costs_.dtype,
            .shape = RowShape{.rows = whole(rows), .cols = whole(cols)}},
           read_bytes, written_bytes);
  }
  void small(int count) {
    for (int i = 0; i < count; ++i) kernel({.family = KernelFamily::kSmall}, 4096, 4096);
  }
  void norm() {
    const double bytes = k.held_bytes();
    rows(KernelFamily::kNorm, k.held_tokens_, k.hidden_, bytes, bytes);
  }
  void norm_backward() {  // gradient of the input; scale and shift, in two stages
    const double bytes = k.held_bytes();
    rows(KernelFamily::kNorm, k.held_tokens_, k.hidden_, 2 * bytes, bytes);
    rows(KernelFamily::kReduction, k.hidden_, k.held_tokens_, 2 * bytes, 8 * k.hidden_);
    small(1);
  }
  void bias_gradient(double tokens, double cols) {
    rows(KernelFamily::kReduction, cols, tokens, tokens * cols * k.item_, cols * k.item_);
  }
  /// The whole activation for a block that is split over the ranks: they hold it, unless each has
  /// a part of the sequence.
  void into_split_block() {
    if (k.split_sequence_) collective("all_gather", k.activation_bytes());
  }
  /// Sums what the ranks computed of the activation, on all of them or each a part.
  void out_of_split_block() {
    collective(k.split_sequence_ ? "reduce_scatter" : "all_reduce", k.activation_bytes());
  }
  void all_reduce(double bytes) { collective("all_reduce", bytes); }
  /// Over the tensor-parallel group; nothing if there is none.
  void collective(std::string_view kind, double bytes) {
    if (k.tp_ <= 1) return;
    const CollectiveCall call{
        .kind = kind, .bytes = bytes, .ranks = whole(k.tp_), .nodes = whole(k.nodes_)};
    list.push_back({.host_us = op_us + k.costs_.host.collective_us,
                    .device_us = k.costs_.collective_us(call),
                    .collective = true});
  }
  void host_only(double us) {
    if (us > 0) list.push_back({.host_us = us, .launches = false});
  }
};

DecoderKernels::DecoderKernels(const DecoderShape& shape, const StepCosts& costs,
                               std::int64_t sequences, std::int64_t tp, std::int64_t gpus_per_node,
                               bool sequence_parallel)
    : costs_(costs),
      flash_(shape.flash_attention),
      dropout_(shape.dropout),
      fused_loss_(shape.fused_cross_entropy),
      split_sequence_(sequence_parallel && tp > 1),
      extra_losses_(shape.extra_losses),
      sequences_(static_cast<double>(sequences)),
      seq_(static_cast<double>(shape.seq)),
      tokens_(sequences_ * seq_),
      held_tokens_(split_sequence_ ? tokens_ / static_cast<double>(tp) : tokens_),
      hidden_(static_cast<double>(shape.hidden)),
      heads_(static_cast<double>(shape.heads)),
      ffn_(shape.ffn_hidden > 0 ? static_cast<double>(shape.ffn_hidden) : 4 * hidden_),
      vocab_(static_cast<double>(shape.vocab)),
      tp_(static_cast<double>(tp)),
      nodes_(static_cast<double>((tp + gpus_per_node - 1) / gpus_per_node)),
      item_(item_size(costs.dtype)) {}

/// Scores to context, [b heads/tp] products of one head each.
void DecoderKernels::attention_forward(Issue& issue) const {
  const double batch = sequences_ * heads_ / tp_, d = hidden_ / heads_;
  const double scores = batch * seq_ * seq_, part = tokens_ * hidden_ / tp_ * item_;
  if (flash_) {
    issue.flash_attention(2 * scores * d);  // two products, half of each masked
    return;
  }
  issue.batched_gemm(batch, seq_, seq_, d);
  issue.rows(KernelFamily::kSoftmax, batch * seq_, seq_, scores * item_, scores * item_);
  if (dropout_) issue.elementwise(scores * item_, scores * (item_ + 1));
  issue.batched_gemm(batch, seq_, d, seq_);
  issue.elementwise(part, part);  // heads back beside each other
}

void DecoderKernels::attention_backward(Issue& issue) const {
  const double batch = sequences_ * heads_ / tp_, d = hidden_ / heads_;
  const double scores = batch * seq_ * seq_, part = tokens_ * hidden_ / tp_ * item_;
  if (flash_) {
    issue.rows(KernelFamily::kReduction, batch * seq_, d, 2 * part, batch * seq_ * 4);
    issue.flash_attention(5 * scores * d);  // five products, half of each masked
    issue.elementwise(3 * part, 3 * part);  // gradients joined
    return;
  }
  issue.elementwise(part, part);
  issue.batched_gemm(batch, seq_, seq_, d);  // of the probabilities
  issue.batched_gemm(batch, seq_, d, seq_);  // of the values
  if (dropout_) issue.elementwise(scores * (item_ + 1), scores * item_);
  issue.rows(KernelFamily::kSoftmax, batch * seq_, seq_, 2 * scores * item_, scores * item_);
  issue.batched_gemm(batch, seq_, d, seq_);  // of the queries
  issue.batched_gemm(batch, seq_, d, seq_);  // of the keys
  issue.elementwise(3 * part, 3 * part);     // joined
}

OpList DecoderKernels::layer_forward(bool is_recompute) const {
  Issue issue{*this, costs_.host.forward_op_us};
  const double x = held_bytes(), qkv = 3 * hidden_ / tp_, ffn = ffn_ / tp_;
  const double mask = dropout_ ? held_tokens_ * hidden_ : 0;
  if (is_recompute) issue.host_only(costs_.host.recompute_us);
  issue.norm();
  issue.into_split_block();
  issue.linear(tokens_, qkv, hidden_);
  if (!flash_) issue.elementwise(tokens_ * qkv * item_, tokens_ * qkv * item_);  // bias
  attention_forward(issue);
  issue.linear(tokens_, hidden_, hidden_ / tp_);
  issue.out_of_split_block();
  issue.elementwise(2 * x, x + mask);  // bias, dropout, residual
  issue.norm();
  issue.into_split_block();
  issue.linear(tokens_, ffn, hidden_);
  issue.elementwise(tokens_ * ffn * item_, tokens_ * ffn * item_);  // bias, GeLU
  issue.linear(tokens_, hidden_, ffn);
  issue.out_of_split_block();
  issue.elementwise(2 * x, x + mask);
  return issue.list;
}

OpList DecoderKernels::layer_backward(Recompute recompute, bool accumulates) const {
  OpList list;
  if (recompute == Recompute::kFull) list = layer_forward(true);
  if (recompute == Recompute::kSelective && !flash_) {
    Issue again{*this, costs_.host.forward_op_us};
    again.host_only(costs_.host.recompute_us);
    attention_forward(again);
    append(list, again.list);
  }
  Issue issue{*this, costs_.host.backward_op_us};
  const double x = held_bytes(), qkv = 3 * hidden_ / tp_, ffn = ffn_ / tp_;
  const double mask = dropout_ ? held_tokens_ * hidden_ : 0;
  issue.elementwise(x + mask, x);
  issue.bias_gradient(held_tokens_, hidden_);
  issue.into_split_block();
  issue.linear_backward(tokens_, hidden_, ffn);
  issue.elementwise(2 * tokens_ * ffn * item_, tokens_ * ffn * item_);
  issue.bias_gradient(tokens_, ffn);
  issue.linear_backward(tokens_, ffn, hidden_);
  issue.out_of_split_block();
  issue.norm_backward();
  issue.elementwise(2 * x, x);  // residual
  issue.elementwise(x + mask, x);
  issue.bias_gradient(held_tokens_, hidden_);
  issue.into_split_block();
  issue.linear_backward(tokens_, hidden_, hidden_ / tp_);
  attention_backward(issue);
  issue.bias_gradient(tokens_, qkv);
  issue.linear_backward(tokens_, qkv, hidden_);
  issue.out_of_split_block();
  issue.norm_backward();
  issue.elementwise(2 * x, x);
  if (accumulates) {  // one kernel per parameter tensor, 12 of them
    const double weights[] = {qkv * hidden_, hidden_ * hidden_ / tp_, ffn * hidden_, hidden_ * ffn};
    for (double weight : weights) issue.elementwise(2 * weight * item_, weight * item_);
    for (int i = 0; i < 8; ++i) issue.elementwise(2 * hidden_ * item_, hidden_ * item_);
  }
  append(list, issue.list);
  return list;
}

OpList DecoderKernels::embedding_forward() const {
  Issue issue{*this, costs_.host.forward_op_us};
  const double x = activation_bytes();
  issue.small(4);  // masks, index arithmetic
  issue.kernel({.family = KernelFamily::kIndex, .dtype = costs_.dtype}, x, x);
  issue.out_of_split_block();
  issue.kernel({.family = KernelFamily::kIndex, .dtype = costs_.dtype}, x / sequences_,
               x / sequences_);
  issue.elementwise(2 * held_bytes(), held_bytes());
  if (dropout_) issue.elementwise(held_bytes(), held_bytes() + held_tokens_ * hidden_);
  return issue.list;
}

OpList DecoderKernels::embedding_backward() const {
  Issue issue{*this, costs_.host.backward_op_us};
  const double x = activation_bytes(), table = token_params() * item_;
  if (dropout_) issue.elementwise(held_bytes() + held_tokens_ * hidden_, held_bytes());
  issue.into_split_block();
  issue.kernel({.family = KernelFamily::kSet, .dtype = costs_.dtype}, 0, table);
  issue.small(8);  // sort of the tokens, segment borders, positions
  issue.kernel({.family = KernelFamily::kIndex, .dtype = costs_.dtype}, 2 * x, x);
  issue.elementwise(2 * table, table);  // shared with the logits: their gradients are added
  return issue.list;
}

OpList DecoderKernels::head_forward() const {
  Issue issue{*this, costs_.host.forward_op_us};
  const double columns = vocab_ / tp_, logits = tokens_ * columns;
  issue.norm();
  issue.into_split_block();
  issue.batched_gemm(1, tokens_, columns, hidden_);
  for (int i = 0; i < extra_losses_; ++i) {
    issue.elementwise(logits * item_, logits * 4);
    issue.rows(KernelFamily::kSoftmax, tokens_, columns, logits * 4, logits * 4);
    issue.small(3);
  }
  if (fused_loss_) {
    issue.rows(KernelFamily::kSoftmax, tokens_, columns, logits * item_, tokens_ * 8);
    issue.small(2);
    return issue.list;
  }
  issue.elementwise(logits * item_, logits * 4);
  issue.rows(KernelFamily::kReduction, tokens_, columns, logits * 4, tokens_ * 4);  // maximum
  issue.all_reduce(tokens_ * 4);
  issue.elementwise(logits * 4, logits * 4);  // minus the maximum
  issue.small(6);                             // target logits
  issue.all_reduce(tokens_ * 4);
  issue.elementwise(logits * 4, logits * 4);                                        // exp
  issue.rows(KernelFamily::kReduction, tokens_, columns, logits * 4, tokens_ * 4);  // sum
  issue.all_reduce(tokens_ * 4);
  issue.elementwise(logits * 4, logits * 4);  // divided by the sum
  issue.small(8);                             // loss, mask, mean
  return issue.list;
}

OpList DecoderKernels::head_backward() const {
  Issue issue{*this, costs_.host.backward_op_us};
  const double columns = vocab_ / tp_, logits = tokens_ * columns;
  issue.small(6);
  if (fused_loss_) {
    issue.elementwise(logits * item_, logits * item_);
  } else {
    issue.elementwise(logits * 4, logits * 4);
    issue.elementwise(logits * 4, logits * item_);
  }
  issue.batched_gemm(1, tokens_, hidden_, columns);
  issue.batched_gemm(1, hidden_, columns, tokens_);
  issue.out_of_split_block();
  issue.norm_backward();
  return issue.list;
}

double DecoderKernels::layer_params() const {
  // Weights and their split biases; norms and the biases behind an all-reduce stand on every rank.
  return (4 * hidden_ * hidden_ + 2 * hidden_ * ffn_ + 3 * hidden_ + ffn_) / tp_ + 6 * hidden_;
}

double DecoderKernels::token_params() const { return vocab_ / tp_ * hidden_; }

double DecoderKernels::embedding_params() const { return token_params() + seq_ * hidden_; }

double DecoderKernels::optimizer_us(double params) const {
  const KernelWork work{.family = KernelFamily::kOptimizer,
                        .bytes_read = {0.6 * costs_.optimizer_bytes_per_param * params},
                        .bytes_written = {0.4 * costs_.optimizer_bytes_per_param * params}};
  return costs_.models->price(work, *costs_.gpu).time.count() * costs_.kernel_factor;
}

}  // namespace perfmodel::parallel
