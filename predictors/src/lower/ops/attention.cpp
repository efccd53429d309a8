#include "families.hpp"
#include "price/kernel_work.hpp"
#include "rule_support.hpp"

/// Fused attention. q [b, h, sq, d], k [b, h, sk, d] (flash variants of the low-level op: [b, s, h,
/// d]). FLOP as `attention_work` counts them (4 or 10 b h sq sk d, causal half of it); bytes are
/// the recorded tensors'. Before the backward pass, a kernel sums gradient times output per row;
/// after it, flash and cuDNN convert the gradient of q, which they sum in fp32.
namespace perfmodel::ops {
namespace {

bool lower_attention(const OpView& op, const Gpu& gpu, std::vector<KernelWork>& kernels) {
  const std::string_view name = op.name();
  const bool is_backward = name.find("backward") != std::string_view::npos;
  const std::size_t first = is_backward ? 1 : 0;  // backward: grad_out first
  const Tensor* q = op.tensor_input(first);
  const Tensor* k = op.tensor_input(first + 1);
  if (!q || !k || q->rank < 3 || k->rank != q->rank) return false;
  const bool of_cudnn = name.find("cudnn") != std::string_view::npos;
  const bool heads_last =
      !of_cudnn && !name.starts_with("aten::_scaled_dot_product");  // [b, s, h, d]
  std::int64_t sq, sk, heads, kv_heads;
  // Scores cost the width of queries, sums the width of values: both count by their mean.
  const Tensor* v = op.tensor_input(first + 2);
  const std::int64_t width = dim(op, *q, -1);
  const bool has_values = v && v->rank == q->rank && dim(op, *v, -1) > 0;
  const std::int64_t d = has_values ? (width + dim(op, *v, -1)) / 2 : width;
  if (q->rank == 4) {
    sq = dim(op, *q, heads_last ? 1 : 2);
    sk = dim(op, *k, heads_last ? 1 : 2);
    heads = dim(op, *q, heads_last ? 2 : 1);
    kv_heads = dim(op, *k, heads_last ? 2 : 1);
  } else {  // packed variable lengths [total, h, d]: arguments hold the longest sequence
    const int max_q = parameter_index(op, "max_q");
    const int max_k = parameter_index(op, "max_k");
    if (max_q < 0) return false;
    sq = int_input(op, static_cast<std::size_t>(max_q), dim(op, *q, 0));
    sk = max_k < 0 ? sq : int_input(op, static_cast<std::size_t>(max_k), sq);
    heads = dim(op, *q, 1);
    kv_heads = dim(op, *k, 1);
  }
  if (sq <= 0 || width <= 0 || heads <= 0) return false;
  int causal = parameter_index(op, "is_causal");
  if (causal < 0) causal = parameter_index(op, "causal");
  const int dropout = parameter_index(op, "dropout_p");
  const AttentionShape shape{
      .method = AttentionShape::Method::kFlash,
      .pass = is_backward ? AttentionShape::Pass::kBackward : AttentionShape::Pass::kForward,
      .batch = std::max<std::int64_t>(1, q->numel / (sq * heads * width)),
      .heads = heads,
      .seq_q = sq,
      .seq_k = sk,
      .head_dim = d,
      .causal = causal >= 0 && bool_input(op, static_cast<std::size_t>(causal), false),
      .dropout = dropout >= 0 && real_input(op, static_cast<std::size_t>(dropout), 0) > 0,
      .kv_heads = kv_heads,
      .kernel = of_cudnn ? AttentionGeneration::kCudnn : AttentionGeneration::kFramework};
  KernelWork work = attention_work(shape, q->dtype, gemm_uses_matrix_units(q->dtype, gpu));
  // Packed sequences are shorter than the longest: only their tokens count.
  work.flop.value *= static_cast<double>(q->numel) /
                     (static_cast<double>(shape.batch * heads * sq) * static_cast<double>(width));
  const Traffic t = traffic(op);
  work.bytes_read = {t.read};
  work.bytes_written = {t.written};
  if (is_backward)
    kernels.push_back(make_work(KernelFamily::kReduction, q->dtype, 2 * bytes(*q),
                                bytes(*q) / static_cast<double>(width),
                                2.0 * static_cast<double>(q->numel)));
  kernels.push_back(work);
  const bool sums_in_fp32 =
      gpu.vendor == "nvidia" && (of_cudnn || name.find("flash") != std::string_view::npos);
  if (is_backward && sums_in_fp32) kernels.push_back(part_work());
  return true;
}

}  // namespace

std::span<const NamedLower> attention_rules() {
  static constexpr NamedLower kRules[] = {
      {"attention", lower_attention},
  };
  return kRules;
}

}  // namespace perfmodel::ops
