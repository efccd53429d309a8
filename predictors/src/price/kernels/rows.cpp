#include <algorithm>
#include <cmath>

#include "batch_norm.hpp"
#include "column_sums.hpp"
#include "models.hpp"
#include "price/terms.hpp"

namespace perfmodel::kernels {
namespace {

struct RowConstants {
  std::string_view model;
  double bandwidth_share;                     ///< share of the reachable DRAM rate, all SMs busy
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
/// (blocks of `block_threads` threads) compete for L2. Between 0.35 and 0.75 of it a linear change;
/// GPUs with two L2 partitions keep data twice. Read off NeuSight's softmax rows of 1025 to 4096
/// columns on P4 and V100.
double evicted_share(const RowShape& shape, double row_bytes, double block_threads,
                     const Gpu& gpu) {
  const double in_flight =
      std::min(static_cast<double>(shape.rows),
               gpu.num_sms * std::max(1.0, gpu.max_threads_per_sm / block_threads));
  const double l2 = gpu.l2_size.value >= 32e6 ? gpu.l2_size.value / 2 : gpu.l2_size.value;
  return std::clamp((in_flight * row_bytes / l2 - 0.35) / 0.4, 0.0, 1.0);
}

/// Row kernels whose SMs bound them, whatever the memory:
///
///   t = kernels t_empty + 2 t_dram + sqrt(memory^2 + issue^2 + chain^2)
///   issue = rows (row + cols / rate) / (speed SMs clock)
///   chain = cols / (chain_rate speed clock)
///
/// Too few bytes of a row are in flight, between barriers and divisions, for an SM to use what a
/// wide memory delivers. `chain`: one row alone. `memory` counts inputs and results cold, what a
/// second kernel reads again through L2 (`passes`), and rereads of rows that were evicted since.
/// Fitted on the ops of PyTorch 2.11 on H100 and H200, first draw, both types together
/// (data/measurements); mean errors 6 to 21 %. Norms: rows whose length is a multiple of 8; others
/// have a kernel that is up to 4 times slower.
struct RowKernel {
  double row;          ///< clocks of an SM for each row
  double rate;         ///< elements per clock and SM
  double chain_rate;   ///< elements per clock of a row alone
  double passes = 1;   ///< traffic over the work's bytes, without rereads
  double rereads = 0;  ///< share of the work's bytes that evicted rows move again
  double block_threads = 1024;
  int kernels = 1;
  double register_rate = 0;  ///< rate of rows that a warp keeps in registers; 0: none does
};

constexpr RowKernel kSoftmax = {16, 1.33, 1.95, 1, 1, 1024, 1, 3.5};
constexpr RowKernel kLogSoftmax = {16, 1.5, 2.2, 1, 1, 1024, 1, 3.5};
/// softmax_backward first multiplies gradient and result in a kernel of its own.
constexpr RowKernel kSoftmaxBackward = {20, 4.4, 1.85, 2, 1.0 / 3, 1024, 2};
constexpr RowKernel kLogSoftmaxBackward = {20, 5, 1.55, 1, 1.0 / 3};
constexpr RowKernel kLayerNorm = {310, 4.1, 0.3, 1, 0.5, 256};
constexpr RowKernel kRmsNorm = {75, 6, 0.8, 1, 0.5, 256};
/// With the kernel of the parameters' gradients, which reads x and its gradient once more.
constexpr RowKernel kLayerNormBackward = {770, 1.6, 0.34, 5.0 / 3, 2.0 / 3, 256, 2};
constexpr RowKernel kRmsNormBackward = {400, 1.4, 0.39, 5.0 / 3, 2.0 / 3, 256, 2};
constexpr RowKernel kBatchNorm = {3400, 1.1, 0.43, 1, 0, 512, 3};
constexpr RowKernel kBatchNormBackward = {620, 0.77, 0.31};
constexpr RowKernel kBatchNormBackwardLast = {1750, 1.26, 0.31, 1, 0, 512, 2};
constexpr RowKernel kCudnnBatchNorm = {2300, 1.86, 1.1};
constexpr RowKernel kCudnnBatchNormBackward = {2040, 1.72, 0.45};
/// In half types, which no row of cuDNN has, elements of NCHW images bound the SMs as in PyTorch's
/// own kernels: so ResNet-50 under autocast on H100, H200 and A100 agrees (Lambda's public steps).
constexpr RowKernel kCudnnHalfBatchNorm = {2300, 1.1, 1.1};
constexpr RowKernel kCudnnHalfBatchNormBackward = {2040, 0.77, 0.40};
constexpr double kChannelsLastChain = 1.5;  ///< chain_rate: many blocks share a channel

/// Clocks of a row. Rows of over 1024 elements go through shared memory; beyond 8192 they cost less
/// per element (never less than a shorter row).
double row_clocks(const RowKernel& kernel, double cols) {
  constexpr double kSharedRow = 8192, kStreamRate = 2.5;
  if (kernel.register_rate <= 0) return kernel.row + cols / kernel.rate;
  const double in_registers = std::min<double>(cols, kLongRow) / kernel.register_rate;
  if (cols <= kLongRow) return kernel.row + in_registers;
  return kernel.row +
         std::max({in_registers, std::min(cols, kSharedRow) / kernel.rate, cols / kStreamRate});
}

/// Speed of the row kernels per clock and SM, relative to Hopper's, as far as its layer norms tell;
/// 0: the GPU's are bound by their bytes, as `Rows` says. Batch norms have no tables of their own
/// on older GPUs: in fp32 they go by the speed of half types there.
double row_speed(const KernelWork& work, const RowShape& shape, const Gpu& gpu) {
  const Architecture& a = gpu.architecture;
  const bool as_half = terms::is_half(work.dtype) || (shape.is_channel && a.norm_row_clocks <= 0);
  const double clocks = as_half ? a.half_norm_row_clocks : a.norm_row_clocks;
  return gpu.vendor == "nvidia" && clocks > 0 ? kLayerNorm.row / clocks : 0;
}

bool is_backward(const KernelWork& work) {
  return work.bytes_read.value > 1.5 * work.bytes_written.value;
}

Price row_kernel_price(RowKernel kernel, const KernelWork& work, const RowShape& shape,
                       const Gpu& gpu, std::string_view model, double range) {
  if (shape.is_channels_last) kernel.chain_rate = kChannelsLastChain;
  const auto rows = static_cast<double>(shape.rows), cols = static_cast<double>(shape.cols);
  const double speed = row_speed(work, shape, gpu), bytes = work.bytes().value;
  const double cold = bytes / terms::dram_bytes_per_us(gpu);
  const double row_bytes = cols * size_in_bytes(work.dtype);
  const double memory =
      cold * (1 + kernel.rereads * evicted_share(shape, row_bytes, kernel.block_threads, gpu)) +
      (kernel.passes - 1) * terms::stream_time(gpu, bytes, 1);
  const double issue = rows * row_clocks(kernel, cols) / (speed * terms::sm_clocks_per_us(gpu));
  const double chain = cols / (kernel.chain_rate * speed * terms::clock_mhz(gpu));
  const double latency =
      kernel.kernels * terms::empty_kernel_us(gpu) + 2 * terms::kConstants.dram_latency_us;
  Price price = terms::make_price(std::max(issue, chain), memory, latency, model, range);
  price.time = Microseconds{latency + std::hypot(memory, issue, chain)};
  terms::set_range(price, range);
  return price;
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
      const double row_bytes = work.bytes().value / (2 * static_cast<double>(shape->rows));
      memory += c_.rereads * evicted_share(*shape, row_bytes, 1024, gpu) *
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

class Softmax final : public Rows {
 public:
  using Rows::Rows;

  Price price(const KernelWork& work, const Gpu& gpu) const override {
    const auto* shape = std::get_if<RowShape>(&work.shape);
    if (!shape || row_speed(work, *shape, gpu) <= 0) return Rows::price(work, gpu);
    const RowKernel& kernel = is_backward(work)
                                  ? shape->is_log ? kLogSoftmaxBackward : kSoftmaxBackward
                              : shape->is_log ? kLogSoftmax
                                              : kSoftmax;
    return row_kernel_price(kernel, work, *shape, gpu, "softmax-heuristic", 0.3);
  }
};

/// PyTorch's sums and maxima where they have been measured, along rows
///
///   t = t_empty + 2 t_dram + min(chain, most) + sqrt(memory^2 + issue^2)
///
/// and along columns by column_sum_latency_us(). chain: a row's elements, one after the other,
/// until more blocks share the row (`most`). Rows of some 5,000 elements take up to twice as long,
/// until the split starts. Fitted as row kernels are (mean error 8 % of whole tensors, 20 of rows).
class Reduction final : public Rows {
 public:
  using Rows::Rows;

  Price price(const KernelWork& work, const Gpu& gpu) const override {
    const auto* shape = std::get_if<RowShape>(&work.shape);
    const double speed = shape ? row_speed(work, *shape, gpu) : 0;
    if (speed <= 0) return Rows::price(work, gpu);
    constexpr double kRow = 50, kRange = 0.4;
    const double memory = work.bytes().value / terms::dram_bytes_per_us(gpu);
    if (shape->is_strided) {
      return terms::make_price(0, memory, column_sum_latency_us(*shape, work.bytes().value, gpu),
                               "reduction-heuristic", kRange);
    }
    struct Chain {
      double rate, most_us;
    };
    const Chain chain = shape->rows == 1 ? Chain{6, 5.2} : Chain{0.38, 6.6};
    const auto rows = static_cast<double>(shape->rows), cols = static_cast<double>(shape->cols);
    // Short rows share a block.
    const double issue = rows * std::min(kRow, cols) / (speed * terms::sm_clocks_per_us(gpu));
    const double latency =
        terms::empty_kernel_us(gpu) + 2 * terms::kConstants.dram_latency_us +
        std::min(cols / (chain.rate * speed * terms::clock_mhz(gpu)), chain.most_us);
    Price price = terms::make_price(issue, memory, latency, "reduction-heuristic", kRange);
    price.time = Microseconds{latency + std::hypot(memory, issue)};
    terms::set_range(price, kRange);
    return price;
  }
};

const RowKernel& norm_kernel(const RowShape& shape, bool backward, bool half) {
  if (!shape.is_channel) {
    if (shape.is_rms) return backward ? kRmsNormBackward : kRmsNorm;
    return backward ? kLayerNormBackward : kLayerNorm;
  }
  if (shape.is_cudnn && half && !shape.is_channels_last) {
    return backward ? kCudnnHalfBatchNormBackward : kCudnnHalfBatchNorm;
  }
  if (shape.is_cudnn) return backward ? kCudnnBatchNormBackward : kCudnnBatchNorm;
  if (!backward) return kBatchNorm;
  return shape.is_channels_last ? kBatchNormBackwardLast : kBatchNormBackward;
}

/// Norms in PyTorch's own kernels. If `RowKernel` does not price them, a block takes a row
/// through its reductions, whatever its length,
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
    const auto* shape = std::get_if<RowShape>(&work.shape);
    // A kernel that writes no tensor makes only statistics or the parameters' gradients; cuDNN's
    // batch norm of inference is a stream.
    const bool is_row_kernel =
        shape && work.bytes_written.value > 0 && (shape->is_channel || !shape->is_cudnn);
    if (is_row_kernel && row_speed(work, *shape, gpu) > 0) {
      // Training's batch norm reads x twice forward, x and its gradient twice backward.
      const double reads = work.bytes_read.value / work.bytes_written.value;
      const bool backward = reads > (shape->is_channel ? 3 : 1.5);
      if (knows_batch_norm(work)) {
        return batch_norm_price(*shape, backward, row_speed(work, *shape, gpu), gpu);
      }
      const RowKernel& kernel = norm_kernel(*shape, backward, terms::is_half(work.dtype));
      return row_kernel_price(kernel, work, *shape, gpu, "norm-heuristic", kRange);
    }
    const Price bytes = Rows::price(work, gpu);
    if (!shape) return bytes;
    if (shape->is_channel) return channels(*shape, bytes, gpu);
    const bool half = terms::is_half(work.dtype);
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
/// strided. Share and fixed cost follow the public MLP and ResNet traces (2080 Ti, A100).
const KernelModel& reduction_model() {
  static const Reduction model({"reduction-heuristic", 0.5, 0.5, 0.5, 4, 2.0, 0, true, 0.4});
  return model;
}

const KernelModel& softmax_model() {
  static const Softmax model({"softmax-heuristic", 0.88, 0.75, 0.34, 2, 1.0, 0.75, false, 0.3});
  return model;
}

const KernelModel& norm_model() {
  static const Norm model({"norm-heuristic", 0.80, 0.68, 0.55, 2, 1.0, 0, true, 0.3});
  return model;
}

}  // namespace perfmodel::kernels
