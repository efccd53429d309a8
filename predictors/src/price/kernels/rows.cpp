#include <cmath>

#include "models.hpp"
#include "terms.hpp"

namespace perfmodel::kernels {
namespace {

struct RowConstants {
  std::string_view model;
  double bandwidth_share;                     ///< of the reachable DRAM rate, with all SMs busy
  double long_row_share, long_row_share_amd;  ///< the same for rows of over 1024 elements
  double round_trips;  ///< dependent memory round trips of the shortest kernel
  double barrier_us;   ///< block-wide barriers and shuffles of one row
  double rereads;      ///< further passes over a long row, in units of its traffic
  bool splits_rows;    ///< many blocks may share a row (reductions do; softmax and norms do not)
  double relative_range;
};

/// Reductions, softmax and norms:
///
///   t = t_empty + n t_dram + t_barrier + max(bytes / B, flop / (0.5 peak)) / u
///
/// u: share of the SMs that work. A row is one block's (or one warp's) work, so r rows keep min(1,
/// r / SMs) of the SMs busy; half of them saturate DRAM, thus u = min(1, 2 r / SMs) for kernels
/// that do not split rows. Splitting ones cut rows into pieces of 4096 elements. B: DRAM or L2 rate
/// as for streams. Rows of over 1024 elements no longer stay in registers (PyTorch's persistent
/// softmax ends there): they are read again, from L2 at best. Shares chosen on NeuSight's softmax
/// and layer-norm rows with paper_train = 1. Valid for reductions along contiguous dimensions;
/// strided ones up to 2x slower.
constexpr std::int64_t kLongRow = 1024;

/// Share of the rereads of long rows that find their row evicted: all rows in flight together
/// (blocks of 1024 threads) compete for L2. Between 0.35 and 0.75 of it a linear change; GPUs with
/// two L2 partitions keep data twice. Read off NeuSight's softmax rows of 1025 to 4096 columns on
/// P4 and V100.
double evicted_share(const RowShape& shape, const KernelWork& work, const Gpu& gpu) {
  const double in_flight = std::min(static_cast<double>(shape.rows),
                                    gpu.num_sms * std::max(1.0, gpu.max_threads_per_sm / 1024.0));
  const double item =
      work.bytes().value / (2 * static_cast<double>(shape.rows) * static_cast<double>(shape.cols));
  const double l2 = gpu.l2_size.value >= 32e6 ? gpu.l2_size.value / 2 : gpu.l2_size.value;
  const double share = in_flight * static_cast<double>(shape.cols) * item / l2;
  return std::clamp((share - 0.35) / 0.4, 0.0, 1.0);
}

/// A reduction of a whole tensor reads it as a stream does.
constexpr double kTotalShare = 0.9;

bool is_total(const KernelWork& work) {
  const auto* shape = std::get_if<RowShape>(&work.shape);
  return shape && work.family == KernelFamily::kReduction && shape->rows == 1;
}

class Rows : public KernelModel {
 public:
  explicit Rows(const RowConstants& constants) : c_(constants) {}

  Price price(const KernelWork& work, const Gpu& gpu) const override {
    const auto* shape = std::get_if<RowShape>(&work.shape);
    const bool is_long = shape && shape->cols > kLongRow;
    const double share = is_total(work)        ? kTotalShare
                         : !is_long            ? c_.bandwidth_share
                         : gpu.vendor == "amd" ? c_.long_row_share_amd
                                               : c_.long_row_share;
    double memory = terms::stream_time(gpu, work.bytes().value, share);
    if (is_long && c_.rereads > 0) {
      memory += c_.rereads * evicted_share(*shape, work, gpu) *
                terms::stream_time(gpu, work.bytes().value, 1);
    }
    double compute = work.flop.value > 0
                         ? work.flop.value / (0.5 * gpu.peak(work.dtype, false).value * 1e-6)
                         : 0;
    if (shape) {
      constexpr double kPiece = 4096;
      double blocks = static_cast<double>(shape->rows);
      if (c_.splits_rows) blocks *= std::max(1.0, static_cast<double>(shape->cols) / kPiece);
      const double busy = std::clamp(2 * blocks / static_cast<double>(gpu.num_sms),
                                     1.0 / static_cast<double>(gpu.num_sms), 1.0);
      memory /= busy;
      compute /= busy;
    }
    const double latency = terms::empty_kernel_us(gpu) +
                           c_.round_trips * terms::kConstants.dram_latency_us + c_.barrier_us;
    return terms::make_price(compute, memory, latency, c_.model, c_.relative_range);
  }

 private:
  RowConstants c_;
};

/// Norms in PyTorch's own kernels: a block takes a row through its reductions, whatever its length,
///
///   t = t_empty + n t_dram + t_barrier + max(rows model, rows clocks / (SMs clock))
///
/// (a norm of mean squares keeps no running statistics: its bytes alone bound it) and a batch norm
/// of AMD's a block per channel, element after element, in three kernels (statistics, their update,
/// result).
class Norm final : public Rows {
 public:
  using Rows::Rows;

  Price price(const KernelWork& work, const Gpu& gpu) const override {
    const Price bytes = Rows::price(work, gpu);
    const auto* shape = std::get_if<RowShape>(&work.shape);
    if (!shape) return bytes;
    if (shape->is_channel) return channels(*shape, bytes, gpu);
    const bool half = work.dtype == DType::kBFloat16 || work.dtype == DType::kFloat16;
    const Architecture& a = gpu.architecture;
    const double clocks = shape->is_rms ? 0 : half ? a.half_norm_row_clocks : a.norm_row_clocks;
    if (clocks <= 0) return bytes;
    const double rows = static_cast<double>(shape->rows) * clocks / terms::sm_clocks_per_us(gpu);
    return terms::make_price(std::max(bytes.compute.count(), rows), bytes.memory.count(),
                             bytes.latency.count(), bytes.model, kRange);
  }

 private:
  static constexpr double kRange = 0.35;

  static Price channels(const RowShape& shape, const Price& bytes, const Gpu& gpu) {
    constexpr double kKernels = 3;
    const double clocks = gpu.architecture.channel_element_clocks;
    if (clocks <= 0) return bytes;
    const double waves = std::ceil(static_cast<double>(shape.rows) / gpu.num_sms);
    const double elements =
        waves * static_cast<double>(shape.cols) * clocks / terms::clock_mhz(gpu);
    const double latency = bytes.latency.count() + (kKernels - 1) * terms::empty_kernel_us(gpu);
    Price price = terms::make_price(std::max(bytes.compute.count(), elements), bytes.memory.count(),
                                    latency, bytes.model, kRange);
    price.in_range = false;
    return price;
  }
};

}  // namespace

/// Two phases: partial results, then the last block adds them up (one more round trip and a fence).
/// Most reductions of a training step are bias gradients: sums over the slow dimension, which read
/// strided. Share and fixed cost follow those of the public MLP and ResNet traces (2080 Ti, A100).
const KernelModel& reduction_model() {
  static const Rows model({"reduction-heuristic", 0.5, 0.5, 0.5, 4, 2.0, 0, true, 0.4});
  return model;
}

const KernelModel& softmax_model() {
  static const Rows model({"softmax-heuristic", 0.88, 0.75, 0.34, 2, 1.0, 0.75, false, 0.3});
  return model;
}

const KernelModel& norm_model() {
  static const Norm model({"norm-heuristic", 0.80, 0.68, 0.55, 2, 1.0, 0, true, 0.3});
  return model;
}

}  // namespace perfmodel::kernels
