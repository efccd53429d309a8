#include "wave_scaling.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "price/terms.hpp"

namespace perfmodel {
namespace {

struct Launch {
  double blocks = 1;
  int threads_per_block = 128;
};

Launch launch_of(const KernelWork& work, const WaveScalingOptions& options) {
  constexpr double kBytesPerThread = 16, kGemmTile = 128;
  Launch launch;
  if (const auto* gemm = std::get_if<GemmShape>(&work.shape)) {
    launch.threads_per_block = 256;
    launch.blocks = static_cast<double>(gemm->batch) *
                    std::ceil(static_cast<double>(gemm->m) / kGemmTile) *
                    std::ceil(static_cast<double>(gemm->n) / kGemmTile);
  } else if (const auto* row = std::get_if<RowShape>(&work.shape)) {
    launch.blocks = static_cast<double>(row->rows);
  } else {
    const double bytes =
        work.bytes_written.value > 0 ? work.bytes_written.value : work.bytes_read.value;
    const int threads = options.threads_per_block.value_or(launch.threads_per_block);
    launch.blocks = std::ceil(bytes / kBytesPerThread / std::max(1, threads));
  }
  launch.threads_per_block = options.threads_per_block.value_or(launch.threads_per_block);
  launch.blocks = std::max(1.0, options.blocks.value_or(launch.blocks));
  return launch;
}

/// Figures of one GPU in the equation.
struct Side {
  double bandwidth = 0, clock = 0, wave = 0;
};

Unexpected missing(const Gpu& gpu, std::string_view field) {
  return fail(ErrorCode::kImpossible, "wave scaling: expected " + std::string(field) + " of GPU " +
                                          gpu.name + ", found none");
}

Result<Side> side_of(const Gpu& gpu, const Launch& launch, const WaveScalingOptions& options) {
  if (!(gpu.dram_bandwidth.value > 0)) return missing(gpu, "dram.bandwidth_gb_per_s");
  if (!(gpu.boost_clock_mhz > 0)) return missing(gpu, "boost_clock_mhz");
  if (gpu.num_sms <= 0) return missing(gpu, "num_sms");
  if (gpu.max_threads_per_sm <= 0) return missing(gpu, "max_threads_per_sm");
  const bool is_achieved = options.bandwidth == WaveScalingOptions::Bandwidth::kAchieved;
  return Side{
      .bandwidth = is_achieved ? terms::dram_bytes_per_us(gpu) : gpu.dram_bandwidth.value * 1e-6,
      .clock = gpu.boost_clock_mhz,
      .wave = blocks_per_wave(gpu, launch.threads_per_block)};
}

}  // namespace

double memory_boundedness(double flop_per_byte, double ridge) {
  if (!(flop_per_byte > 0)) return 1;
  if (!std::isfinite(flop_per_byte) || !(ridge > 0)) return 0;
  return flop_per_byte <= ridge ? 1 - 0.5 * flop_per_byte / ridge : 0.5 * ridge / flop_per_byte;
}

double blocks_per_wave(const Gpu& gpu, int threads_per_block) {
  const int per_sm = std::clamp(gpu.max_threads_per_sm / std::max(1, threads_per_block), 1,
                                gpu.architecture.max_blocks_per_sm);
  return static_cast<double>(per_sm) * gpu.num_sms;
}

std::string_view why_waves_mislead(KernelFamily family, const Gpu& origin, const Gpu& destination) {
  switch (family) {
    case KernelFamily::kGemm:
    case KernelFamily::kConvolution:
    case KernelFamily::kRecurrent:
      return "libraries choose another kernel, tile and algorithm on each GPU";
    case KernelFamily::kAttention:
    case KernelFamily::kGroupedGemm:
    case KernelFamily::kExperts:
    case KernelFamily::kLinearAttention:
      return "attention kernels are written and tuned per architecture";
    case KernelFamily::kSort:
      return "sort kernels choose digits and tiles per architecture";
    case KernelFamily::kEmbeddingForward:
    case KernelFamily::kEmbeddingBackward:
      return "the share of rows found in cache changes with the cache";
    case KernelFamily::kCollective:
      return "collectives take the time of links";
    default:
      break;
  }
  if (origin.vendor != destination.vendor) return "the vendors' kernels differ";
  return {};
}

Result<Price> scale_by_waves(Microseconds measured, const KernelWork& work, const Gpu& origin,
                             const Gpu& destination, const WaveScalingOptions& options) {
  if (!(options.dispatch_us >= 0) || !(measured.count() > options.dispatch_us) ||
      !std::isfinite(measured.count())) {
    return fail(ErrorCode::kImpossible, "wave scaling: expected a measured time above " +
                                            std::to_string(options.dispatch_us) +
                                            " us of dispatch, found " +
                                            std::to_string(measured.count()));
  }
  const auto* copy = std::get_if<CopyShape>(&work.shape);
  const bool uses_link =
      work.family == KernelFamily::kCollective || (copy && copy->kind != CopyKind::kDeviceToDevice);
  if (uses_link) {
    return fail(ErrorCode::kImpossible,
                "wave scaling: expected a kernel that works in device memory, found a " +
                    std::string(to_string(work.family)) + " over a link");
  }
  const Launch launch = launch_of(work, options);
  const auto from = side_of(origin, launch, options);
  if (!from) return Unexpected{from.error()};
  const auto to = side_of(destination, launch, options);
  if (!to) return Unexpected{to.error()};
  const double flop = work.flop.value, bytes = work.bytes().value;
  const double peak = destination.peak(work.dtype, work.matrix_units).value * 1e-6;
  if (flop > 0 && !(peak > 0)) return missing(destination, "peak_tflop_per_s.fp32");

  const double intensity = flop <= 0   ? 0
                           : bytes > 0 ? flop / bytes
                                       : std::numeric_limits<double>::infinity();
  const double g = memory_boundedness(intensity, peak / to->bandwidth);
  const double bandwidths = from->bandwidth / to->bandwidth, clocks = from->clock / to->clock;
  const double waves = std::ceil(launch.blocks / to->wave) / std::ceil(launch.blocks / from->wave);
  const double by_waves =
      waves * std::pow(bandwidths * to->wave / from->wave, g) * std::pow(clocks, 1 - g);
  const double by_many = std::pow(bandwidths, g) * std::pow(from->wave / to->wave * clocks, 1 - g);

  const double chosen = options.form == WaveScalingOptions::Form::kWaves ? by_waves : by_many;
  const Microseconds dispatch{options.dispatch_us}, kernel = measured - dispatch;
  Price price;
  price.in_range = why_waves_mislead(work.family, origin, destination).empty() &&
                   origin.architecture.is_known() && destination.architecture.is_known();
  const double slack = price.in_range ? 0.10 : 0.25;
  price.time = dispatch + chosen * kernel;
  price.low = dispatch + (1 - slack) * std::min(by_waves, by_many) * kernel;
  price.high = dispatch + (1 + slack) * std::max(by_waves, by_many) * kernel;
  price.latency = dispatch;
  price.memory = chosen * kernel;
  price.bound = Bound::kMeasured;
  price.model = "wave-scaling";
  return price;
}

}  // namespace perfmodel
