#include "batch_norm.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "launch_sizes.hpp"
#include "price/terms.hpp"

namespace perfmodel::kernels {
namespace {

constexpr std::int64_t kNormThreads = 512;
constexpr double kHalfSize = 2;

/// Threads side by side along an image's pixels.
std::int64_t threads_along(std::int64_t pixels) {
  return std::clamp<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(pixels)), 32,
                                  kNormThreads);
}

struct NormPass {
  double setup_us, iteration_us;
  double rate;              ///< elements per clock and SM
  double first_iterations;  ///< cost of a block's begin and end, in iterations
};

constexpr NormPass kStatistics = {1.8, 0.432, 3.9, 10.3};
constexpr NormPass kGradient = {0.5, 0.67, 0.967, 1.8};
constexpr double kEvictedUs = 0.258;  ///< more per iteration, if L2 lost what was read before
/// Share of an iteration's time if the image is in L2: what the gradient's second pass takes, 0.67
/// less 0.432, over what the statistics' takes.
constexpr double kCachedIteration = 0.55;
constexpr NormPass kStatisticsLast = {0.93, 0.321, 1.2, 0}, kResultLast = {0, 0, 2.93, 0};
constexpr NormPass kSumsLast = {1.92, 0.254, 1.78, 0}, kGradientLast = {0, 0, 3.42, 0};
// Blocks that share a channel meet at a semaphore; its memory is cleared first.
constexpr double kMeetForwardUs = 6.6, kMeetBackwardUs = 2.5;

double cube(double x) { return x * x * x; }

/// The kernels of one batch norm.
class BatchNorm {
 public:
  BatchNorm(const RowShape& shape, double speed, const Gpu& gpu)
      : channels_(shape.rows),
        cols_(shape.cols),
        pixels_(quotient_up(shape.cols, shape.batch)),
        images_(shape.batch),
        image_bytes_(kHalfSize * static_cast<double>(shape.rows) * static_cast<double>(shape.cols)),
        image_us_(image_bytes_ / terms::dram_bytes_per_us(gpu)),
        clocks_per_us_(speed * terms::sm_clocks_per_us(gpu)),
        slots_(gpu.num_sms * std::max<std::int64_t>(1, gpu.max_threads_per_sm / kNormThreads)),
        l2_bytes_(gpu.l2_size.value),
        empty_us_(terms::empty_kernel_us(gpu)) {}

  double forward() const {
    return statistics(kStatistics, by_channel()) + empty_us_ + result_by_image();
  }

  double backward() const {
    // Blocks at work read two tensors, each twice.
    const double at_work =
        std::min(1.0, static_cast<double>(slots_) / static_cast<double>(channels_));
    const double evicted = evicted_share(2 * image_bytes_ * at_work);
    NormPass gradient = kGradient;
    gradient.iteration_us += evicted * kEvictedUs;
    return pass(gradient, by_channel(), 3 + 2 * evicted);
  }

  double forward_last() const {
    const double meet = shares_channels() ? kMeetForwardUs : 0;
    return statistics(kStatisticsLast, last(true)) + meet + empty_us_ +
           pass(kResultLast, last(false), 2);
  }

  double backward_last() const {
    const double meet = shares_channels() ? kMeetBackwardUs : 0;
    return pass(kSumsLast, last(true), 2) + meet + pass(kGradientLast, last(false), 3);
  }

  double image_us() const { return image_us_; }
  double empty_us() const { return empty_us_; }

 private:
  struct Launch {
    std::int64_t blocks, iterations;
  };
  Launch by_channel() const {
    const std::int64_t x = threads_along(pixels_), y = kNormThreads / x;
    return {channels_, quotient_up(images_, y) * quotient_up(pixels_, x)};
  }

  double pass(const NormPass& p, const Launch& launch, double images_moved) const {
    const double blocks = static_cast<double>(launch.blocks);
    const double iterations = static_cast<double>(launch.iterations);
    const double waves = std::max(1.0, std::ceil(blocks / static_cast<double>(slots_)));
    const double chain = waves * (p.setup_us + iterations * p.iteration_us);
    const double issue =
        blocks * (iterations + p.first_iterations) * kNormThreads / (p.rate * clocks_per_us_);
    return empty_us_ + std::cbrt(cube(chain) + cube(issue) + cube(images_moved * image_us_));
  }

  /// Read and since lost by L2: nothing of up to half of it, linear up to three quarters.
  double evicted_share(double bytes) const {
    return std::clamp((bytes / l2_bytes_ - 0.48) / 0.29, 0.0, 1.0);
  }

  /// The kernel before wrote the image.
  double statistics(NormPass p, const Launch& launch) const {
    const double evicted = evicted_share(image_bytes_);
    p.iteration_us *= kCachedIteration + (1 - kCachedIteration) * evicted;
    return pass(p, launch, evicted);
  }

  /// `batch_norm_transform_input_kernel`: small blocks, whose launches count.
  double result_by_image() const {
    constexpr std::int64_t kMostBlocks = 256 * 1024, kFewest = 64;
    constexpr double kBlockClocks = 166, kRate = 2;
    const std::int64_t x =
        std::max(threads_along(pixels_ / 4), std::min(threads_along(pixels_), kFewest));
    const std::int64_t y = std::max<std::int64_t>(1, kFewest / x);
    const std::int64_t along =
        std::clamp<std::int64_t>(kMostBlocks / channels_, 1, quotient_up(images_, y));
    const std::int64_t iterations = quotient_up(images_, along * y) * quotient_up(pixels_, x);
    const double blocks = static_cast<double>(channels_ * along);
    const double starts = blocks * kBlockClocks / clocks_per_us_;
    const double issue =
        blocks * static_cast<double>(iterations * x * y) / (kRate * clocks_per_us_);
    return empty_us_ + std::cbrt(cube(starts) + cube(issue) + cube(2 * image_us_));
  }

  /// `flexible_launch_configs`: threads x along channels, y along what a channel has.
  struct Grid {
    std::int64_t x, y, threads_y;
  };
  Grid grid() const {
    constexpr std::int64_t kAlongChannels = 32, kPerThread = 16, kMostShares = 128;
    std::int64_t x = power_of_two_up_to(channels_, kAlongChannels);
    const std::int64_t y = power_of_two_up_to(quotient_up(cols_, kPerThread), kNormThreads / x);
    if (x * y != kNormThreads) x = power_of_two_up_to(channels_, kNormThreads / y);
    return {quotient_up(channels_, x), std::min(quotient_up(cols_, y * kPerThread), kMostShares),
            y};
  }
  bool shares_channels() const { return grid().y >= 8; }

  Launch last(bool combines) const {
    const Grid g = grid();
    const std::int64_t along = combines && !shares_channels() ? 1 : g.y;
    return {g.x * along, quotient_up(cols_, g.threads_y * along)};
  }

  std::int64_t channels_, cols_, pixels_, images_;
  double image_bytes_, image_us_, clocks_per_us_;
  std::int64_t slots_;  ///< blocks that the GPU runs at a time
  double l2_bytes_, empty_us_;
};

}  // namespace

bool knows_batch_norm(const KernelWork& work) {
  const auto* shape = std::get_if<RowShape>(&work.shape);
  return shape && work.family == KernelFamily::kNorm && terms::is_half(work.dtype) &&
         work.bytes_written.value > 0 && shape->is_channel && !shape->is_cudnn && shape->batch > 1;
}

Price batch_norm_price(const RowShape& shape, bool backward, double speed, const Gpu& gpu) {
  const BatchNorm norm(shape, speed, gpu);
  // Without pixels to tell the orders apart, PyTorch takes the kernels of NHWC.
  const bool last = shape.is_channels_last || shape.cols == shape.batch;
  const double time = last ? (backward ? norm.backward_last() : norm.forward_last())
                           : (backward ? norm.backward() : norm.forward());
  const double latency = (last || !backward ? 2 : 1) * norm.empty_us();
  const double memory = (backward ? (last ? 5 : 3) : 3) * norm.image_us();
  Price price = terms::make_price(std::max(0.0, time - latency), memory, latency, "norm-heuristic");
  price.time = Microseconds{time};
  terms::set_range(price, 0.25);
  return price;
}

}  // namespace perfmodel::kernels
