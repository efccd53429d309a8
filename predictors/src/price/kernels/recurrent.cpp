#include "recurrent.hpp"

#include "models.hpp"
#include "price/kernel_work.hpp"
#include "terms.hpp"

namespace perfmodel::kernels {
namespace {

/// Chosen on DeepBench's fp32 rows (`rnn.csv.gz`: 8 GPUs, H 256-4096, B 8-128) for the smallest
/// mean |log error|, e and the share of the DRAM rate held at or below 0.95 and 1. Mean (median)
/// absolute error in %, each GPU with constants of the other GPUs of its vendor, which differ
/// little from these; beside it roofline, and one constant ratio per pair of GPUs fitted on the
/// very rows (mean over the partners):
///
///   forward         this         LSTM    roofline   ratio
///   gtx-1080-ti     22 (18)      25      76         19
///   m40             29 (22)      19      73         23
///   p100-pcie-16gb  18 (12)      23      74         23
///   titan-x-maxwell 28 (25)      18      71         24
///   titan-x-pascal  21 (14)      30      76         22
///   titan-xp        21 (10)      31      79         22
///   mi25, vega-fe   15, 13       18, 13  82, 83     41, 38
///
/// The form of the equation was chosen among some fifteen with all GPUs in view, Pascal's exception
/// too, so only the constants are left out, not the form. LSTM forward over the NVIDIA GPUs: 24.
/// Backward data 17-19 on Pascal and 31 on Maxwell (roofline 72-83), backward weights 8-24 (18-41),
/// AMD's whole backward pass 16 and 11 (62 and 66).
constexpr RecurrentConstants kChosen{.forward = {0.95, 58e3, 53, 53},
                                     .backward_data = {0.89, 48.5e3, 23, 109},
                                     .forward_amd = {0.506, 150e3, 21, 21},
                                     .backward_amd = {0.95, 176e3, 12, 12},
                                     .weight_gradient_share = 0.8,
                                     .weight_gradient_cycles = 116e3,
                                     .weight_gradient_step_cycles = 340};

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
///   t = t_empty + T (floor + 2 g H H B / (e P) + weights / B_mem)
///   floor = (f [LSTM, GRU] + d depth) / clock
///   weights = g H H s bytes, at L2 speed where half the cache holds them
///
/// depth: length of the summed axis (H forward, g H for NVIDIA's backward data), which blocks walk
/// one after the other; with few results per step nothing hides it. The weights are read at every
/// step: rows with persistent kernels (weights kept in registers) do not stand out in the data,
/// except 256 hidden units at batch 16 on some Pascal cards (2-3 times faster than this). On Pascal
/// batches of 17 to 32 take backward kernels that are slower than those of batch 64: a choice of
/// CUDA 8's library. GPUs after 2018, their libraries and half types are not in the data: out of
/// range. Rows include what the host adds between the kernels of a step.
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
    const bool amd = gpu.vendor == "amd";
    Terms t;
    switch (s->pass) {
      case Pass::kForward:
        t = steps(*s, work.dtype, gpu, amd ? chosen_.forward_amd : chosen_.forward, 1, 1);
        break;
      case Pass::kBackwardData:
        // No AMD rows: taken as a forward pass, which has the same products.
        t = amd ? steps(*s, work.dtype, gpu, chosen_.forward_amd, 1, 1)
                : steps(*s, work.dtype, gpu, chosen_.backward_data, 1, gates_of(s->cell));
        break;
      case Pass::kBackwardWeights:
        t = weight_gradient(*s, work, gpu);
        break;
      case Pass::kBackward:
        if (amd) {
          t = steps(*s, work.dtype, gpu, chosen_.backward_amd, 2, 1);
        } else {
          t = steps(*s, work.dtype, gpu, chosen_.backward_data, 1, gates_of(s->cell));
          const Terms weights = weight_gradient(*s, work, gpu);
          t = {t.compute + weights.compute, t.memory + weights.memory, t.latency + weights.latency};
        }
        break;
    }
    Price price = terms::make_price(t.compute, t.memory, t.latency, kName);
    price.time = Microseconds{t.compute + t.memory + t.latency};
    const bool split_on_amd =
        amd && (s->pass == Pass::kBackwardData || s->pass == Pass::kBackwardWeights);
    price.in_range = work.dtype == DType::kFloat32 && gpu.architecture.recurrent_measured &&
                     !split_on_amd && s->hidden >= 256 && s->hidden <= 4096 && s->batch >= 8 &&
                     s->batch <= 128;
    terms::set_range(price, price.in_range ? 0.4 : 0.6);
    return price;
  }

 private:
  static constexpr std::string_view kName = "recurrent-heuristic";
  struct Terms {
    double compute = 0, memory = 0, latency = 0;  ///< added up, not overlapped
  };

  static double weight_elements(const RecurrentShape& s) {
    const double h = static_cast<double>(s.hidden);
    return gates_of(s.cell) * h * h;
  }

  /// `products` per step; `depth` in units of H.
  static Terms steps(const RecurrentShape& s, DType dtype, const Gpu& gpu, const RecurrentStep& c,
                     double products, double depth) {
    const double n = static_cast<double>(s.timesteps), weights = weight_elements(s);
    const bool odd_batch = gpu.architecture.slow_recurrent_batches && s.batch > 16 && s.batch <= 32;
    const double cycles =
        (s.cell == RecurrentShape::Cell::kPlain ? 0 : c.cell_cycles) +
        depth * static_cast<double>(s.hidden) * (odd_batch ? c.odd_batch_cycles : c.depth_cycles);
    const double flop = products * 2 * weights * static_cast<double>(s.batch);
    return {n * flop / (c.peak_share * product_rate(gpu, dtype)),
            n * terms::stream_time(gpu, weights * size_in_bytes(dtype), 1),
            terms::empty_kernel_us(gpu) + n * cycles / terms::clock_mhz(gpu)};
  }

  Terms weight_gradient(const RecurrentShape& s, const KernelWork& work, const Gpu& gpu) const {
    const double n = static_cast<double>(s.timesteps);
    const double flop = 2 * weight_elements(s) * static_cast<double>(s.batch) * n;
    return {flop / (chosen_.weight_gradient_share * product_rate(gpu, work.dtype)), 0,
            (chosen_.weight_gradient_cycles + n * chosen_.weight_gradient_step_cycles) /
                terms::clock_mhz(gpu)};
  }

  RecurrentConstants chosen_;
};

}  // namespace

RecurrentConstants recurrent_constants() { return kChosen; }

std::unique_ptr<KernelModel> make_recurrent_model(const RecurrentConstants& constants) {
  return std::make_unique<Recurrent>(constants);
}

const KernelModel& recurrent_model() {
  static const Recurrent model(kChosen);
  return model;
}

}  // namespace perfmodel::kernels
