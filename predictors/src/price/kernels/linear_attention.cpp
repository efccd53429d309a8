#include <algorithm>
#include <cmath>

#include "models.hpp"
#include "price/kernel_work.hpp"
#include "price/terms.hpp"

namespace perfmodel::kernels {
namespace {

constexpr std::string_view kLinearName = "linear-attention-heuristic";

struct LinearTokens {
  double tokens, chunks, states;  ///< chunks of one sequence; states: sequences x heads of v
  double units;                   ///< chunks of all states
};

LinearTokens count_tokens(const LinearAttentionShape& s) {
  const double batch = static_cast<double>(s.batch), seq = static_cast<double>(s.seq);
  const double chunks = std::ceil(seq / kLinearAttentionChunk);
  const double states = batch * static_cast<double>(s.v_heads);
  return {.tokens = batch * seq, .chunks = chunks, .states = states, .units = states * chunks};
}

Price finish(double compute, double memory, double latency, double together) {
  Price price = terms::make_price(compute, memory, latency, kLinearName);
  price.time = Microseconds{latency + together};
  return price;
}

/// t = launch + max(bytes / B, elements / (rate clock SMs)), q, k and v read and written.
Price convolution_price(const LinearAttentionRates& rates, const KernelWork& work, const Gpu& gpu) {
  const double elements = work.bytes_written.value / size_in_bytes(work.dtype);
  const double compute =
      elements / (rates.convolution_elements_per_clock_per_sm * terms::sm_clocks_per_us(gpu));
  const double memory = terms::stream_time(gpu, work.bytes().value, rates.convolution_dram_share);
  return finish(compute, memory, rates.convolution_launch_us, std::max(compute, memory));
}

/// Bytes that the rule's kernels pass to each other: w, u and the new values per token and head;
/// the scores of a chunk, written and read twice; the state at each chunk, and in fp32 at both
/// ends.
double rule_bytes(const LinearAttentionShape& s, const LinearTokens& n, double size) {
  const double k = static_cast<double>(s.k_dim), v = static_cast<double>(s.v_dim);
  const double token_heads = n.tokens * static_cast<double>(s.v_heads);
  const double ends =
      2 * size * n.tokens * 2 * static_cast<double>(s.k_heads) * k + 2 * size * token_heads * v;
  return ends + 2 * size * token_heads * (2 * v + k) +
         4 * size * token_heads * kLinearAttentionChunk + 2 * size * n.units * k * v +
         8 * n.states * k * v;
}

/// C tokens per chunk, states = sequences x heads, units = states x chunks:
///
///   step     = chunks t_chunk max(1, states / (states per SM x SMs))
///   parallel = t_unit units / SMs;  memory = bytes / B
///   t        = launch + t_first min(1, seq / C) + step + (parallel^3 + memory^3)^(1/3)
Price rule_price(const LinearAttentionRates& rates, const LinearAttentionShape& s,
                 const KernelWork& work, const Gpu& gpu) {
  const LinearTokens n = count_tokens(s);
  const double sms = static_cast<double>(gpu.num_sms);
  const double step =
      n.chunks * rates.chunk_us * std::max(1.0, n.states / (rates.states_per_sm * sms));
  const double parallel = rates.unit_us * n.units / sms;
  const double memory =
      terms::stream_time(gpu, rule_bytes(s, n, size_in_bytes(work.dtype)), rates.dram_share);
  const double first =
      rates.first_chunk_us * std::min(1.0, static_cast<double>(s.seq) / kLinearAttentionChunk);
  return finish(step + parallel, memory, rates.launch_us + first,
                step + std::cbrt(parallel * parallel * parallel + memory * memory * memory));
}

/// In range: bf16 on architectures that were measured, heads of 128 elements.
class LinearAttention final : public KernelModel {
 public:
  Price price(const KernelWork& work, const Gpu& gpu) const override {
    const auto* s = std::get_if<LinearAttentionShape>(&work.shape);
    const auto& rates = gpu.architecture.linear_attention;
    if (!s || !rates ||
        std::min({s->batch, s->seq, s->k_heads, s->v_heads, s->k_dim, s->v_dim}) < 1) {
      const double rate = 0.1 * terms::sustained_flop_per_us(gpu, work.dtype, work.matrix_units);
      Price price = terms::make_price(work.flop.value / rate,
                                      work.bytes().value / terms::dram_bytes_per_us(gpu),
                                      terms::empty_kernel_us(gpu), kLinearName, 0.6);
      price.in_range = false;
      return price;
    }
    Price price = s->kernel == LinearAttentionShape::Kernel::kConvolution
                      ? convolution_price(*rates, work, gpu)
                      : rule_price(*rates, *s, work, gpu);
    price.in_range =
        rates->measured && work.dtype == DType::kBFloat16 && s->k_dim == 128 && s->v_dim == 128;
    terms::set_range(price, price.in_range ? 0.3 : 0.5);
    return price;
  }
};

}  // namespace

const KernelModel& linear_attention_model() { return the_only<LinearAttention>(); }

}  // namespace perfmodel::kernels
