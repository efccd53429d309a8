#include "attention.hpp"

#include <cmath>
#include <utility>

#include "models.hpp"
#include "price/kernel_work.hpp"

namespace perfmodel::kernels {
namespace {

constexpr std::string_view kName = "attention-heuristic";

Price out_of_range(Price price) {
  price.in_range = false;
  return price;
}

Bound largest_term(const Price& price) {
  return price.latency >= std::max(price.compute, price.memory) ? Bound::kLatency
         : price.compute >= price.memory                        ? Bound::kCompute
                                                                : Bound::kMemory;
}

/// FlashAttention-2 (Dao 2023; recalled, not re-read): share of the peak that a pass reaches, and
/// FLOP per score and element of the head. Backward computes the scores again.
constexpr double kForwardShare = 0.68, kBackwardShare = 0.55;
constexpr double kForwardFlop = 4, kBackwardFlop = 10;

/// Without a measured kernel: rows of q that one block owns (backward: of k), and rows of k that it
/// takes at a time.
constexpr double kTile = 128;

/// Share of the sustained peak of the SMs that work. FlashAttention-2 reports 50-73 % of an A100's
/// peak forward and less backward, most at head size 128 (Dao 2023; recalled, not re-read); other
/// architectures are relative to that.
///
/// fp32: of the vector units' peak. PyTorch's memory-efficient kernels sum three TF32 products
/// where there are units for them; their shares were chosen on 99 calls on an H100
/// (data/measurements, first draw; 20 % off, the second draw forward 14, backward 23). On other
/// GPUs they are estimates.
double peak_share(const AttentionShape& s, bool matrix_units, const Gpu& gpu) {
  const bool forward = s.pass == AttentionShape::Pass::kForward;
  double share = forward ? kForwardShare : kBackwardShare;
  if (!matrix_units) {
    const bool has_tf32 = gpu.vendor == "nvidia" && gpu.peak(DType::kFloat32, true).value >
                                                        gpu.peak(DType::kFloat32, false).value;
    share = has_tf32 ? (forward ? 0.65 : 0.53) : (forward ? 0.40 : 0.30);
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

/// Flash kernels on an architecture without measured ones, scores in tiles of 128 x 128:
///
///   blocks = b h ceil(s / 128), s = sq forward, sk backward; waves = ceil(blocks / SMs)
///   t = t_empty + 4 t_dram + t_set_up + max(bytes / B, FLOP per block / (e P / SMs) waves)
///
/// FLOP per block: 4 (forward) or 10 (backward) x 128 x d for each row of the other axis, rounded
/// up to tiles, half of it where causal. Scores never leave the chip, so long sequences are bound
/// by compute and few heads by the waves. Kernels that split the other axis for decoding (sq of a
/// few) are not modelled.
Price assumed_price(const AttentionShape& s, const KernelWork& work, const Gpu& gpu) {
  const bool forward = s.pass == AttentionShape::Pass::kForward;
  const double owned = static_cast<double>(forward ? s.seq_q : s.seq_k);
  const double other = static_cast<double>(forward ? s.seq_k : s.seq_q);
  const double sms = static_cast<double>(gpu.num_sms);
  const double blocks =
      static_cast<double>(s.batch) * static_cast<double>(s.heads) * std::ceil(owned / kTile);
  const double rows = std::ceil(other / kTile) * kTile;
  const double flop_per_block = (forward ? kForwardFlop : kBackwardFlop) * kTile *
                                static_cast<double>(s.head_dim) *
                                (s.causal ? std::max(rows / 2, kTile) : rows);
  const double rate = peak_share(s, work.matrix_units, gpu) *
                      terms::sustained_flop_per_us(gpu, work.dtype, work.matrix_units) / sms;
  const double compute = std::ceil(blocks / sms) * flop_per_block / rate;
  const double latency =
      terms::empty_kernel_us(gpu) + kRoundTrips * terms::kConstants.dram_latency_us + kSetUpUs;
  return out_of_range(terms::make_price(compute, terms::stream_time(gpu, work.bytes().value, 1),
                                        latency, kName, 0.5));
}

/// The kernel that is asked for, of the pass if that was measured, paged or not as asked if it is
/// both, and one that was measured with such a mask and head size; else the framework's. None if
/// the architecture has none.
const AttentionKernel* pick_kernel(const AttentionKernels& kernels, const AttentionShape& s) {
  const bool backward = s.pass == AttentionShape::Pass::kBackward;
  for (const AttentionGeneration name : {s.kernel, kernels.framework}) {
    const AttentionKernel* best = nullptr;
    const auto fits = [&](const AttentionKernel& kernel) {
      const bool misses = kernel.without_mask && (s.causal || static_cast<double>(s.head_dim) >
                                                                  kernel.tiles.back().head_dim);
      return 4 * (kernel.backward == backward) + 2 * (kernel.paged == s.writes_cache) - misses;
    };
    for (const AttentionKernel& kernel : kernels.list) {
      if (kernel.name != name || (kernel.backward && !backward)) continue;
      if (!best || fits(kernel) > fits(*best)) best = &kernel;
    }
    if (best) return best;
  }
  return nullptr;
}

/// The smallest listed head size that holds d, which the kernel pads d to; beyond the largest its
/// tile.
const AttentionTile& pick_tile(const AttentionKernel& kernel, double d) {
  for (const AttentionTile& tile : kernel.tiles) {
    if (tile.head_dim >= d) return tile;
  }
  return kernel.tiles.back();
}

/// FlashAttention's rule for splits (`num_splits_heuristic` of flash_api, recalled): at most
/// kMostSplits; none if blocks fill kFullSms of the SMs or keys are at most kFewTiles tiles; the
/// fewest whose waves are filled nearly as well as the best.
constexpr double kMostSplits = 128, kFullSms = 0.8, kFewTiles = 4, kWellFilled = 0.85;

double num_splits(double blocks, double sms, double k_tiles) {
  if (blocks >= kFullSms * sms || k_tiles <= kFewTiles) return 1;
  const auto filled = [&](double splits) {
    const double waves = blocks * splits / sms;
    return waves / std::ceil(waves);
  };
  const double most = std::floor(std::min({kMostSplits, sms, k_tiles}));
  double best = 0;
  for (double splits = 1; splits <= most; ++splits) best = std::max(best, filled(splits));
  double splits = 1;
  while (filled(splits) < kWellFilled * best) ++splits;
  return splits;
}

/// SMs finish apart by this share of the longest causal block: blocks differ in length, and no
/// kernel sorts all of them.
constexpr double kTail = 0.8;

double filled_share(double rows, double tile) { return rows / (std::ceil(rows / tile) * tile); }

/// Heads of q that share keys are packed into one tile where that fills tiles better by a tenth.
AttentionBlocks blocks_of(const AttentionShape& s, const AttentionKernel& kernel, double sms) {
  const bool forward = s.pass == AttentionShape::Pass::kForward;
  AttentionTile tile = pick_tile(kernel, static_cast<double>(s.head_dim));
  if (kernel.backward) std::swap(tile.q, tile.k);  // blocks own rows of k
  const double other = static_cast<double>(forward ? s.seq_k : s.seq_q);
  AttentionBlocks made{.groups = static_cast<double>(s.heads),
                       .rows = static_cast<double>(forward ? s.seq_q : s.seq_k),
                       .tokens = tile.q,
                       .kernel = kernel.name,
                       .paged = kernel.paged,
                       .in_training = !kernel.paged && !kernel.without_mask,
                       .tile = tile};
  const double kv_heads = s.kv_heads > 0 ? static_cast<double>(s.kv_heads) : made.groups;
  const double ratio = made.groups / kv_heads;
  if (forward && kernel.pack_gqa &&
      filled_share(made.rows, tile.q) < 0.9 * filled_share(made.rows * ratio, tile.q)) {
    made.groups = kv_heads;
    made.rows *= ratio;
    made.tokens /= ratio;
  }
  made.n_q = std::ceil(made.rows / tile.q);
  made.n_k = std::ceil(other / tile.k);
  const double blocks = static_cast<double>(s.batch) * made.groups * made.n_q;
  if (forward && kernel.split_us > 0) made.splits = num_splits(blocks, sms, made.n_k);
  made.waves = blocks * made.splits / sms;
  return made;
}

/// Time of the products and of what belongs to their blocks. `unit_us`: one tile of scores on one
/// SM.
double products_us(const AttentionBlocks& blocks, const AttentionKernel& kernel, bool causal,
                   double unit_us) {
  const double chain = std::ceil(blocks.n_k / blocks.splits) * unit_us;
  const double longest = kernel.block_us + chain;
  if (!causal) return std::max(std::ceil(blocks.waves), 1 / kernel.alone) * longest;
  const double diagonal = std::max(1.0, blocks.tokens / blocks.tile.k);  // counts whole
  const double tiles =
      blocks.n_q > 1 ? std::min(blocks.n_k, (blocks.n_k + diagonal) / 2) : blocks.n_k;
  return std::max(longest / kernel.alone,
                  blocks.waves * (kernel.block_us + tiles / blocks.splits * unit_us) +
                      kTail * std::min(1.0, blocks.waves) * chain);
}

/// Paged kernels were measured with a causal mask, kernels of training with and without one.
bool was_measured(const AttentionShape& s, const AttentionKernel& kernel, DType dtype,
                  AttentionGeneration asked) {
  const bool backward = s.pass == AttentionShape::Pass::kBackward;
  return kernel.measured && kernel.name == asked && kernel.paged == s.writes_cache &&
         kernel.backward == backward && (s.causal ? !kernel.without_mask : !kernel.paged) &&
         (dtype == DType::kBFloat16 || dtype == DType::kFloat16) &&
         static_cast<double>(s.head_dim) >= kernel.tiles.front().head_dim &&
         static_cast<double>(s.head_dim) <= kernel.tiles.back().head_dim;
}

/// Time of a tile of scores if SMs compute 32 exponentials per clock (Blackwell Ultra), from that
/// with 16, which the shares of tiles contain. 16 per clock are one per 16 FLOP of the vector
/// units' peak. Kernels written for tensor memory overlap exponentials with products (p = 2 holds
/// FA4's head sizes 64 and 128 together), FlashAttention-2 runs them after (p = 1, as FA3's and
/// cuDNN's on Hopper):
///
///   unit^p = products^p + exponentials^p
double with_fast_exponentials(double unit_us, double scores, AttentionGeneration kernel,
                              const Gpu& gpu) {
  if (gpu.target != "sm_103") return unit_us;
  const double per_us = gpu.peak(DType::kFloat32, false).value * 1e-6 / gpu.num_sms / 16;
  const double slow = std::min(scores / per_us, unit_us);
  const double p = kernel == AttentionGeneration::kFa2 ? 1 : 2;
  return std::pow(std::pow(unit_us, p) - std::pow(slow, p) * (1 - std::pow(0.5, p)), 1 / p);
}

/// Clocks of an SM for the random number of a score: FlashAttention-2 takes 0.08 to 0.14 in both
/// passes, cuDNN 0.07 to 0.11 backward and 0.20 forward (BERT and GPT-2 in bf16 on H100 and H200,
/// data/measurements).
double dropout_clocks(const AttentionShape& s, AttentionGeneration kernel) {
  if (!s.dropout) return 0;
  const bool forward = s.pass == AttentionShape::Pass::kForward;
  return forward && kernel == AttentionGeneration::kCudnn ? 0.2 : 0.1;
}

/// A kernel of which tiles and costs are known (docs/kernel_models.md); P is the data sheet's peak,
/// e the tile's share of it, d the padded head size:
///
///   unit    = 4 q k d / (e P / SMs)                       one tile of scores
///   chain   = ceil(n_k / splits) unit                     the longest block
///   waves   = b h ceil(sq / q) splits / SMs
///   compute = max(ceil(waves), 1 / alone) (t_block + chain)
///   causal:   max((t_block + chain) / alone, waves (t_block + mean) + 0.8 min(1, waves) chain),
///             mean = (n_k + max(1, q / k)) / 2 / splits unit, or chain where one tile holds all q
///   t       = t_launch + max(compute + exposed t_stream(bytes), t_stream(bytes))
///   splits:   ... + t_split + t_stream(8 splits b h sq d)
///
/// Backward: 10 FLOP instead of 4, blocks that own rows of k and take q in turn. If that pass was
/// measured, all of its exposed traffic counts, and the gradient of q, which blocks add up in fp32:
///
///   t       = t_launch + compute + exposed t_stream(bytes) + q_sums t_stream(4 b h sq d)
///
/// Else less of the peak as FlashAttention-2 reports.
Price measured_price(const AttentionKernel& kernel, const AttentionShape& s, const KernelWork& work,
                     const Gpu& gpu) {
  const bool forward = s.pass == AttentionShape::Pass::kForward;
  const double sms = static_cast<double>(gpu.num_sms), d = static_cast<double>(s.head_dim);
  const AttentionBlocks blocks = blocks_of(s, kernel, sms);
  const AttentionTile& tile = blocks.tile;
  const double share = tile.share * (kernel.measured ? 1 : gpu.architecture.attention_share) *
                       (forward || kernel.backward ? 1 : kBackwardShare / kForwardShare);
  const double rate = share * gpu.peak(work.dtype, work.matrix_units).value * 1e-6 / sms;
  const double scores = tile.q * tile.k;
  const double unit = with_fast_exponentials((forward ? kForwardFlop : kBackwardFlop) * scores *
                                                 std::max(tile.head_dim, d) / rate,
                                             scores, kernel.name, gpu) +
                      scores * dropout_clocks(s, kernel.name) / terms::clock_mhz(gpu);
  Price price;
  const double compute = products_us(blocks, kernel, s.causal, unit);
  // No kernel hides more of its traffic than its products last.
  const double stream = terms::stream_time(gpu, work.bytes().value, 1);
  double memory = std::max(kernel.exposed * stream, stream - compute);
  double latency = kernel.launch_us;
  if (kernel.backward) {
    const double rows = static_cast<double>(s.batch) * static_cast<double>(s.heads) * d;
    // Heads that share keys write gradients of their own, which another kernel adds up.
    const bool shares = s.kv_heads > 0 && s.kv_heads < s.heads;
    const double copies =
        shares ? 4.0 * size_in_bytes(work.dtype) * rows * static_cast<double>(s.seq_k) : 0;
    memory = kernel.exposed * terms::stream_time(gpu, work.bytes().value + copies, 1) +
             kernel.q_sums * terms::stream_time(gpu, 4 * rows * static_cast<double>(s.seq_q), 1);
  }
  if (blocks.splits > 1) {
    const double sums = static_cast<double>(s.batch) * static_cast<double>(s.heads) *
                        static_cast<double>(s.seq_q) * d;
    memory += terms::stream_time(gpu, 8 * blocks.splits * sums, 1);  // fp32, written and read
    latency += kernel.split_us;
  }
  price.compute = Microseconds{compute};
  price.memory = Microseconds{memory};
  price.latency = Microseconds{latency};
  price.time = price.compute + price.memory + price.latency;
  price.bound = largest_term(price);
  price.model = kName;
  const AttentionGeneration asked = s.kernel == AttentionGeneration::kFramework
                                        ? gpu.architecture.attention_kernels.framework
                                        : s.kernel;
  price.in_range = was_measured(s, kernel, work.dtype, asked);
  terms::set_range(price, price.in_range ? 0.25 : 0.5);
  return price;
}

Price flash_price(const AttentionShape& s, const KernelWork& work, const Gpu& gpu) {
  const AttentionKernel* kernel =
      work.matrix_units ? pick_kernel(gpu.architecture.attention_kernels, s) : nullptr;
  return kernel ? measured_price(*kernel, s, work, gpu) : assumed_price(s, work, gpu);
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
    product(s.seq_k, s.head_dim, s.seq_q);  // gradient of the values
    product(s.seq_q, s.seq_k, s.head_dim);  // gradient of the probabilities
    add(softmax_model(), softmax_work(heads * s.seq_q, s.seq_k, RowPass::kBackward, work.dtype));
    product(s.seq_q, s.head_dim, s.seq_k);  // gradient of the queries
    product(s.seq_k, s.head_dim, s.seq_q);  // gradient of the keys
  }
  sum.bound = largest_term(sum);
  sum.model = kName;
  return sum;
}

/// Out of range but where `was_measured` says otherwise.
class Attention final : public KernelModel {
 public:
  Price price(const KernelWork& work, const Gpu& gpu) const override {
    const auto* s = std::get_if<AttentionShape>(&work.shape);
    if (!s) {
      const double rate = 0.4 * terms::sustained_flop_per_us(gpu, work.dtype, work.matrix_units);
      return out_of_range(terms::make_price(work.flop.value / rate,
                                            terms::stream_time(gpu, work.bytes().value, 1),
                                            terms::empty_kernel_us(gpu), kName, 0.6));
    }
    if (s->method == AttentionShape::Method::kFlash) return flash_price(*s, work, gpu);
    return out_of_range(math_price(*s, work, gpu));
  }
};

}  // namespace

std::optional<AttentionBlocks> attention_blocks(const AttentionShape& shape, bool matrix_units,
                                                const Gpu& gpu) {
  if (shape.method != AttentionShape::Method::kFlash || !matrix_units) return std::nullopt;
  const AttentionKernel* kernel = pick_kernel(gpu.architecture.attention_kernels, shape);
  if (!kernel) return std::nullopt;
  return blocks_of(shape, *kernel, static_cast<double>(gpu.num_sms));
}

const KernelModel& attention_model() { return the_only<Attention>(); }

}  // namespace perfmodel::kernels
