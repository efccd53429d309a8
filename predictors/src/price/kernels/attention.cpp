#include <cmath>

#include "models.hpp"
#include "price/kernel_work.hpp"
#include "terms.hpp"

namespace perfmodel::kernels {
namespace {

constexpr std::string_view kName = "attention-heuristic";

/// Rows of q that one block owns (backward: of k), and of k that it takes at a time.
constexpr double kTile = 128;

/// Share of the sustained peak of the SMs that work. FlashAttention-2 reports 50-73 % of an A100's
/// peak forward and less backward, most at head size 128 (Dao 2023; recalled, not re-read); other
/// architectures are relative to that. The fp32 kernels on vector units are estimates.
double peak_share(const AttentionShape& s, bool matrix_units, const Gpu& gpu) {
  const bool forward = s.pass == AttentionShape::Pass::kForward;
  double share = forward ? 0.68 : 0.55;
  if (!matrix_units) {
    share = forward ? 0.40 : 0.30;
  } else {
    share *= gpu.architecture.attention_share;
  }
  // Small heads: the exponentials of a score are as many, its products fewer. Large ones: fewer
  // blocks fit on an SM.
  if (s.head_dim <= 32) return 0.6 * share;
  if (s.head_dim <= 64) return 0.85 * share;
  return s.head_dim <= 128 ? share : 0.8 * share;
}

/// Blocks load q, set up, and store their sums at the end; read off the one traced kernel at hand
/// (bf16, 8 heads, 141 tokens, head size 64 on H100: 9.1 us).
constexpr double kRoundTrips = 4;
constexpr double kSetUpUs = 2;

/// Flash kernels, N scores in tiles of 128 x 128:
///
///   blocks = b h ceil(s / 128), s = sq forward, sk backward; waves = ceil(blocks / SMs)
///   t = t_empty + 4 t_dram + t_set_up + max(bytes / B, FLOP per block / (e P / SMs) waves)
///
/// FLOP per block: 4 (forward) or 10 (backward) x 128 x d for each row of the other axis, rounded
/// up to tiles, half of it where causal. Scores never leave the chip, so long sequences are bound
/// by compute and few heads by the waves. Kernels that split the other axis for decoding (sq of a
/// few) are not modelled.
Price flash_price(const AttentionShape& s, const KernelWork& work, const Gpu& gpu) {
  const bool forward = s.pass == AttentionShape::Pass::kForward;
  const double owned = static_cast<double>(forward ? s.seq_q : s.seq_k);
  const double other = static_cast<double>(forward ? s.seq_k : s.seq_q);
  const double sms = static_cast<double>(gpu.num_sms);
  const double blocks =
      static_cast<double>(s.batch) * static_cast<double>(s.heads) * std::ceil(owned / kTile);
  const double rows = std::ceil(other / kTile) * kTile;
  const double flop_per_block = (forward ? 4 : 10) * kTile * static_cast<double>(s.head_dim) *
                                (s.causal ? std::max(rows / 2, kTile) : rows);
  const double rate = peak_share(s, work.matrix_units, gpu) *
                      terms::sustained_flop_per_us(gpu, work.dtype, work.matrix_units) / sms;
  const double compute = std::ceil(blocks / sms) * flop_per_block / rate;
  const double latency =
      terms::empty_kernel_us(gpu) + kRoundTrips * terms::kConstants.dram_latency_us + kSetUpUs;
  return terms::make_price(compute, terms::stream_time(gpu, work.bytes().value, 1), latency, kName,
                           0.5);
}

/// Unfused attention is the sum of its kernels, priced by their own models: scaling of q and k, two
/// products, softmax, and a mask where causal; backward four products and the softmax's gradient.
/// The sum's terms are the sums of their terms.
Price math_price(const AttentionShape& s, const KernelWork& work, const Gpu& gpu) {
  const std::int64_t heads = s.batch * s.heads;
  const double n = static_cast<double>(heads);
  const double rows = n * static_cast<double>(s.seq_q), d = static_cast<double>(s.head_dim);
  const double scores = rows * static_cast<double>(s.seq_k);
  Price sum;
  const auto add = [&](const KernelModel& model, const KernelWork& part) {
    const Price price = model.price(part, gpu);
    sum.time += price.time;
    sum.low += price.low;
    sum.high += price.high;
    sum.compute += price.compute;
    sum.memory += price.memory;
    sum.latency += price.latency;
  };
  const auto product = [&](std::int64_t m, std::int64_t cols, std::int64_t k) {
    add(gemm_model(),
        gemm_work({.batch = heads, .m = m, .n = cols, .k = k}, work.dtype, work.matrix_units));
  };
  if (s.pass == AttentionShape::Pass::kForward) {
    add(elementwise_model(), elementwise_work(rows * d, 1, 1, work.dtype));
    add(elementwise_model(),
        elementwise_work(n * static_cast<double>(s.seq_k) * d, 1, 1, work.dtype));
    product(s.seq_q, s.seq_k, s.head_dim);
    if (s.causal) add(elementwise_model(), elementwise_work(scores, 2, 1, work.dtype));
    add(softmax_model(), softmax_work(heads * s.seq_q, s.seq_k, RowPass::kForward, work.dtype));
    product(s.seq_q, s.head_dim, s.seq_k);
  } else {
    product(s.seq_k, s.head_dim, s.seq_q);  // of the values
    product(s.seq_q, s.seq_k, s.head_dim);  // of the probabilities
    add(softmax_model(), softmax_work(heads * s.seq_q, s.seq_k, RowPass::kBackward, work.dtype));
    product(s.seq_q, s.head_dim, s.seq_k);  // of the queries
    product(s.seq_k, s.head_dim, s.seq_q);  // of the keys
  }
  sum.bound = sum.latency >= std::max(sum.compute, sum.memory) ? Bound::kLatency
              : sum.compute >= sum.memory                      ? Bound::kCompute
                                                               : Bound::kMemory;
  sum.model = kName;
  return sum;
}

/// No measured attention kernels but one were at hand: every price is out of range.
class Attention final : public KernelModel {
 public:
  Price price(const KernelWork& work, const Gpu& gpu) const override {
    const auto* s = std::get_if<AttentionShape>(&work.shape);
    Price price;
    if (!s) {
      const double rate = 0.4 * terms::sustained_flop_per_us(gpu, work.dtype, work.matrix_units);
      price =
          terms::make_price(work.flop.value / rate, terms::stream_time(gpu, work.bytes().value, 1),
                            terms::empty_kernel_us(gpu), kName, 0.6);
    } else if (s->method == AttentionShape::Method::kFlash) {
      price = flash_price(*s, work, gpu);
    } else {
      price = math_price(*s, work, gpu);
    }
    price.in_range = false;
    return price;
  }
};

}  // namespace

const KernelModel& attention_model() {
  static const Attention model;
  return model;
}

}  // namespace perfmodel::kernels
