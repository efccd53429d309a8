#include "recurrent.hpp"

#include "models.hpp"
#include "price/kernel_work.hpp"
#include "price/terms.hpp"
#include "recurrent_steps.hpp"

namespace perfmodel::kernels {
namespace {

/// Chosen on DeepBench's fp32 rows (`rnn.csv.gz`: 8 GPUs, H 256-4096, B 8-128) for the smallest
/// mean |log error|, e and the share of the DRAM rate held at or below 0.95 and 1. Mean (median)
/// absolute error in %, each GPU with constants of the other GPUs of its vendor, which differ
/// little from these; then roofline, and one constant ratio per pair of GPUs fitted on the very
/// rows (mean over the partners):
///
///   forward         this         LSTM  GRU  plain  roofline   ratio
///   gtx-1080-ti     19 (11)      26    10   19     76         19
///   m40             22 (16)      19    32   10     73         23
///   p100-pcie-16gb  19 (14)      21    11   28     74         23
///   titan-x-maxwell 14 (9)       18    11   10     71         24
///   titan-x-pascal  19 (8)       32    4    17     76         22
///   titan-xp        22 (10)      34    9    19     79         22
///   mi25, vega-fe   15, 14       18,14 12,13 14,13 82, 83     41, 38
///
/// The form of the equation was chosen among some twenty with all GPUs in view, Pascal's exception
/// too, so only the constants are left out, not the form. All GPUs, forward: LSTM 23, GRU 13, plain
/// 16; NVIDIA's backward data 23, 14, 22 (M40's is the worst, 31), AMD's whole backward pass 15,
/// 16, 12; backward weights 8-24.
constexpr RecurrentConstants kChosen{.forward = {0.755, 59.5e3, 13.8e3, 82, 143, 0.678},
                                     .backward_data = {0.678, 39.4e3, 5.5e3, 35.7, 135, 0.558},
                                     .forward_amd = {0.425, 134e3, 235e3, 39.3, 39.3, 0.615},
                                     .backward_amd = {0.918, 200e3, 268e3, 43.4, 43.4, 0.91},
                                     .weight_gradient_share = 0.806,
                                     .weight_gradient_cycles = 116e3,
                                     .weight_gradient_step_cycles = 342};

/// Rate of the products [FLOP/us]. Without matrix units half types compute in fp32: DeepBench's
/// `pseudo_fp16` rows of P100 are no faster than its fp32 rows.
double product_rate(const Gpu& gpu, DType dtype) {
  const bool half = dtype == DType::kFloat16 || dtype == DType::kBFloat16;
  const auto& peaks = gpu.peak_tflop_per_s;
  const bool has_matrix = dtype == DType::kFloat16 ? peaks.fp16_matrix.has_value()
                                                   : half && peaks.bf16_matrix.has_value();
  if (has_matrix) return terms::sustained_flop_per_us(gpu, dtype, true);
  return terms::sustained_flop_per_us(gpu, half ? DType::kFloat32 : dtype, false);
}

/// Library LSTM, GRU and plain layers, g gates, hidden size H, batch B, T steps:
///
///   t = t_empty + T (f / clock + max(d depth / clock + 2 g H H B / (e P), weights / (m B_mem)))
///   weights = g H H s bytes, at L2 speed where half the cache holds them
///
/// f: of the cell, LSTM or GRU. depth: length of the summed axis (H forward, g H for NVIDIA's
/// backward data), which blocks walk one after the other; with few results per step nothing hides
/// it. The weights are read at every step, during the sums: rows with persistent kernels (weights
/// kept in registers) do not stand out in the data, except 256 hidden units at batch 16 on some
/// Pascal cards (2-3 times faster than this). On Pascal batches of 17 to 32 take slower backward
/// kernels than batch 64: a choice of CUDA 8's library. GPUs after 2018, their libraries and half
/// types are not in the data: out of range. DeepBench's rows include what the host adds between the
/// kernels of a step.
///
/// If the architecture has `recurrent_cycles` (on Hopper measured, elsewhere another one's, and
/// then the range reaches to the time of DeepBench's libraries), a step is a product in waves of
/// tiles, its pointwise kernel and gaps, and layers run side by side (`recurrent_steps.hpp`):
///
///   t = t_empty + max(steps of all layers, T L weights / (m B_mem))
///
/// On the others L layers of one size as a wavefront, two streams each:
/// max((L + T - 1) steps, L T products).
///
/// Persistent kernels (where `lower/ops/recurrent.cpp` finds that PyTorch asks for them): weights
/// come once, a step is its sums and a barrier of all blocks, two round trips to L2. Not measured.
///
/// Weight gradients of all steps are one product: t = t_0 + T t_step + 2 g H H B T / (0.8 P).
class Recurrent final : public KernelModel {
 public:
  explicit Recurrent(const RecurrentConstants& constants) : chosen_(constants) {}

  Price price(const KernelWork& work, const Gpu& gpu) const override {
    const auto* s = std::get_if<RecurrentShape>(&work.shape);
    if (!s) {
      Price price = terms::make_price(work.flop.value / (0.3 * product_rate(gpu, work.dtype)),
                                      terms::stream_time(gpu, work.bytes().value, 1),
                                      terms::empty_kernel_us(gpu), kName, 0.7);
      price.in_range = false;
      return price;
    }
    using Pass = RecurrentShape::Pass;
    const std::optional<RecurrentCycles>& own = gpu.architecture.recurrent_cycles;
    Price price = priced(terms_of(*s, work, gpu, own.has_value()));
    const bool split_on_amd = gpu.vendor == "amd" &&
                              (s->pass == Pass::kBackwardData || s->pass == Pass::kBackwardWeights);
    price.in_range = work.dtype == DType::kFloat32 && gpu.architecture.recurrent_measured &&
                     !split_on_amd && !s->persistent && s->layers == 1 && s->hidden >= 256 &&
                     s->hidden <= 4096 && s->batch >= 8 && s->batch <= 128;
    terms::set_range(price, price.in_range ? 0.4 : 0.6);
    if (own && !own->measured) {
      price.high = std::max(price.high, priced(terms_of(*s, work, gpu, false)).time);
    }
    return price;
  }

 private:
  static constexpr std::string_view kName = "recurrent-heuristic";
  struct Terms {
    double compute = 0, memory = 0, latency = 0;
  };

  static Price priced(const Terms& t) {
    return terms::make_price(t.compute, t.memory, t.latency, kName);
  }

  Terms terms_of(const RecurrentShape& s, const KernelWork& work, const Gpu& gpu, bool own) const {
    using Pass = RecurrentShape::Pass;
    const bool amd = gpu.vendor == "amd";
    const auto forward = [&] {
      if (own && !s.persistent) return library_steps(s, work.dtype, gpu, false);
      return steps(s, work.dtype, gpu, amd ? chosen_.forward_amd : chosen_.forward, 1, 1);
    };
    const auto backward_data = [&] {
      if (own && !s.persistent) return library_steps(s, work.dtype, gpu, true);
      return steps(s, work.dtype, gpu, chosen_.backward_data, 1, gates_of(s.cell));
    };
    switch (s.pass) {
      case Pass::kForward: return forward();
      case Pass::kBackwardData:
        // No AMD rows: taken as a forward pass, which has the same products.
        return amd ? forward() : backward_data();
      case Pass::kBackwardWeights: return weight_gradient(s, work, gpu);
      case Pass::kBackward: {
        if (amd) return steps(s, work.dtype, gpu, chosen_.backward_amd, 2, 1);
        // One after the other: the steps, then the product for the weights.
        const Terms data = backward_data(), weights = weight_gradient(s, work, gpu);
        return {std::max(data.compute, data.memory) + weights.compute, data.memory,
                data.latency + weights.latency};
      }
    }
    return {};
  }

  static double weight_elements(const RecurrentShape& s) {
    const double h = static_cast<double>(s.hidden);
    return gates_of(s.cell) * h * h;
  }

  static double cell_cycles(RecurrentShape::Cell cell, const RecurrentStep& c) {
    switch (cell) {
      case RecurrentShape::Cell::kLstm: return c.cell_cycles;
      case RecurrentShape::Cell::kGru: return c.gru_cycles;
      case RecurrentShape::Cell::kPlain: return c.plain_cycles;
    }
    return 0;
  }

  Terms library_steps(const RecurrentShape& s, DType dtype, const Gpu& gpu,
                      bool is_backward) const {
    const LibraryStep step = library_step(s, is_backward, product_rate(gpu, dtype), gpu);
    const double n = static_cast<double>(s.timesteps), layers = static_cast<double>(s.layers);
    const double weights = layers * weight_elements(s) * size_in_bytes(dtype);
    const double share = (is_backward ? chosen_.backward_data : chosen_.forward).memory_share;
    // In a single layer, time outside of products is latency; products of other layers would hide
    // it.
    const double beside = n * (step.kernels_us + step.gaps_us);
    return {library_steps_us(s, is_backward, step) - beside,
            n * terms::stream_time(gpu, weights, share), terms::empty_kernel_us(gpu) + beside};
  }

  /// `products` per step; `depth` in units of H.
  static Terms steps(const RecurrentShape& s, DType dtype, const Gpu& gpu, const RecurrentStep& c,
                     double products, double depth) {
    const double n = static_cast<double>(s.timesteps), weights = weight_elements(s);
    const double flop = products * 2 * weights * static_cast<double>(s.batch);
    const double sums = flop / (c.peak_share * product_rate(gpu, dtype));
    const double read = terms::stream_time(gpu, weights * size_in_bytes(dtype), c.memory_share);
    if (s.persistent) {
      constexpr double kBarrierUs = 2 * 0.7;  // [I] a round trip to L2 under way with others
      return {n * sums, read, terms::empty_kernel_us(gpu) + n * kBarrierUs};
    }
    const bool odd_batch = gpu.architecture.slow_recurrent_batches && s.batch > 16 && s.batch <= 32;
    const double clock = terms::clock_mhz(gpu);
    const double walk = depth * static_cast<double>(s.hidden) *
                        (odd_batch ? c.odd_batch_cycles : c.depth_cycles) / clock;
    const double cell = cell_cycles(s.cell, c) / clock;
    if (s.layers > 1) {
      const double layers = static_cast<double>(s.layers), path = n + layers - 1;
      return {std::max(path * (walk + sums), n * layers * sums), n * layers * read,
              terms::empty_kernel_us(gpu) + path * cell};
    }
    return {n * (walk + sums), n * read, terms::empty_kernel_us(gpu) + n * cell};
  }

  Terms weight_gradient(const RecurrentShape& s, const KernelWork& work, const Gpu& gpu) const {
    const double n = static_cast<double>(s.timesteps), layers = static_cast<double>(s.layers);
    const double flop = layers * 2 * weight_elements(s) * static_cast<double>(s.batch) * n;
    return {flop / (chosen_.weight_gradient_share * product_rate(gpu, work.dtype)), 0,
            layers * (chosen_.weight_gradient_cycles + n * chosen_.weight_gradient_step_cycles) /
                terms::clock_mhz(gpu)};
  }

  RecurrentConstants chosen_;
};

}  // namespace

std::unique_ptr<KernelModel> make_recurrent_model(const RecurrentConstants& constants) {
  return std::make_unique<Recurrent>(constants);
}

const KernelModel& recurrent_model() {
  static const Recurrent model(kChosen);
  return model;
}

}  // namespace perfmodel::kernels
