#pragma once

#include <algorithm>

#include "perfmodel/predictors/kernel.hpp"

/// Device terms that the heuristic models share. Everything here is arithmetic on the data sheet:
/// no allocation, a few nanoseconds per call.
namespace perfmodel::terms {

/// Measured behaviour, relative to data sheets. Sources: [R] constants of the reference DLRM model
/// (peaks measured with a roofline tool on A100, V100, GV100, TITAN Xp, P100), [N] NeuSight kernel
/// measurements of train-split GPUs (V100, A100, P100, P4, T4), [I] our estimate, not measured.
struct Constants {
  // A cache of size S keeps about this share for data that is read again (the rest: tags in flight,
  // other tensors). [R] uses 0.9 for embedding rows.
  double l2_usable = 0.9;
  // [I] Clock where a file has none (B200); only L2 rates and fixed costs use clocks.
  double default_clock_mhz = 1700;
  // [I] Fixed cost of any kernel: block scheduling, first instruction fetch, end-of-kernel flush,
  // from start to end stamp of an empty kernel; 2400 cycles = 1.6 us at 1.53 GHz.
  double empty_kernel_cycles = 2400;
  double empty_kernel_us_min = 1.3;
  double empty_kernel_us_amd = 2.5;
  // [I] One dependent round trip to DRAM (TLB hit), ~ 0.45-0.7 us on all these GPUs.
  double dram_latency_us = 0.55;
};
inline constexpr Constants kConstants;

inline bool is_half(DType dtype) { return dtype == DType::kFloat16 || dtype == DType::kBFloat16; }

inline double clock_mhz(const Gpu& gpu) {
  return gpu.boost_clock_mhz > 0 ? gpu.boost_clock_mhz : kConstants.default_clock_mhz;
}

/// Time of an empty kernel on the GPU [us].
inline double empty_kernel_us(const Gpu& gpu) {
  if (gpu.vendor == "amd") return kConstants.empty_kernel_us_amd;
  return std::max(kConstants.empty_kernel_us_min, kConstants.empty_kernel_cycles / clock_mhz(gpu));
}

/// Reachable DRAM bandwidth of long streams [bytes/us]: the data sheet's times a share by memory
/// type and architecture.
double dram_bytes_per_us(const Gpu& gpu);

/// Reachable L2 bandwidth with all SMs reading [bytes/us]; never below DRAM.
double l2_bytes_per_us(const Gpu& gpu);

/// Reachable bandwidth of the last-level cache, which is L2 unless there is another one beyond it
/// [bytes/us]; never below DRAM.
double last_level_bytes_per_us(const Gpu& gpu);

/// Last-level cache that data survives in between two kernels [bytes].
inline double cache_bytes(const Gpu& gpu) {
  return std::max(gpu.l2_size.value, gpu.last_level_cache_size.value);
}

/// Time [us] to move `bytes` once, at `share` of the reachable rates. The part that the kernel
/// before left in the last-level cache moves at the cache's speed: all of a working set of up to
/// half the cache, nothing beyond twice its size, a linear change between (cyclic streams through a
/// hashed, LRU-like cache).
inline double stream_time(const Gpu& gpu, double bytes, double share) {
  const double cache = cache_bytes(gpu);
  const double hit = std::clamp((2 * cache - bytes) / (1.5 * cache), 0.0, 1.0);
  return bytes * (hit / last_level_bytes_per_us(gpu) + (1 - hit) / dram_bytes_per_us(gpu)) / share;
}

/// Clocks of all SMs together in 1 us.
inline double sm_clocks_per_us(const Gpu& gpu) {
  return clock_mhz(gpu) * static_cast<double>(gpu.num_sms);
}

/// Peak rate that the board can sustain [FLOP/us]: the data-sheet peak, or less where board power
/// does not feed it.
///
/// P = P_idle + e FLOP/s, so the rate is at most (tdp - P_idle) / e, with the energy per FLOP e of
/// a dense GEMM by architecture (operand delivery included). Matters for small boards: T4 (70
/// W) holds about half its fp32 peak in [N], from which its energy is chosen; 250-W boards are not
/// limited.
double sustained_flop_per_us(const Gpu& gpu, DType dtype, bool matrix_units);

/// Fills `low` and `high` as a relative band round the part above the launch-free floor, and a
/// wider one (half to twice) round the floor itself, which was not measured for this GPU.
inline void set_range(Price& price, double relative) {
  const double floor = std::min(price.latency.count(), price.time.count());
  const double rest = price.time.count() - floor;
  price.low = Microseconds{0.6 * floor + rest * (1 - relative)};
  price.high = Microseconds{1.6 * floor + rest * (1 + relative)};
}

/// Puts the terms together: time = floor + max(compute, memory), bound = the largest of the three.
inline Price make_price(double compute_us, double memory_us, double latency_us,
                        std::string_view model, double relative = 0.25) {
  Price price;
  price.compute = Microseconds{compute_us};
  price.memory = Microseconds{memory_us};
  price.latency = Microseconds{latency_us};
  price.time = Microseconds{latency_us + std::max(compute_us, memory_us)};
  price.bound = latency_us >= std::max(compute_us, memory_us) ? Bound::kLatency
                : compute_us >= memory_us                     ? Bound::kCompute
                                                              : Bound::kMemory;
  price.model = model;
  set_range(price, relative);
  return price;
}

}  // namespace perfmodel::terms
