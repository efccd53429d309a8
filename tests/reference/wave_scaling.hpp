#pragma once

#include <optional>
#include <string_view>

#include "perfmodel/predictors/kernel.hpp"
#include "perfmodel/result.hpp"

/// One measured kernel time moved to another GPU by the closed form of Habitat (USENIX ATC 2021,
/// arXiv 2102.00527, equations 1 and 2). Indices o and d: origin and destination; B blocks of the
/// launch, W blocks that fit on a GPU at a time (one wave), D bandwidth, C clock:
///
///   kWaves      t_d = t_o ceil(B / W_d) / ceil(B / W_o) (D_o W_d / (D_d W_o))^g (C_o / C_d)^(1-g)
///   kManyWaves  t_d = t_o (D_o / D_d)^g (W_o / W_d)^(1-g) (C_o / C_d)^(1-g)
///
/// The first tends to the second where B is many waves. g, 1 for kernels that only move data, comes
/// from the kernel's FLOP per byte x and the destination's ridge R = peak / D:
/// g = 1 - x / (2 R) for x <= R, else R / (2 x).
///
/// Assumes that both GPUs run the same kernel (see `why_waves_mislead`), and that the time is the
/// kernel's alone: what else it holds (host dispatch, where a framework call was timed) does not
/// scale and misleads short kernels; `WaveScalingOptions::dispatch_us` keeps it apart.
namespace perfmodel {

struct WaveScalingOptions {
  enum class Form : std::uint8_t { kWaves, kManyWaves } form = Form::kWaves;
  /// D as long streams reach it (what the kernel models use), or as the data sheet says. The second
  /// is several times worse: GPUs reach 74 to 92 % of their data sheets.
  enum class Bandwidth : std::uint8_t { kAchieved, kDatasheet } bandwidth = Bandwidth::kAchieved;
  /// Launch as recorded. Default: one block per row for row-wise kernels; one per 128 x 128 results
  /// for GEMM (256 threads); else a thread writes 16 bytes: 4 elements of fp32.
  std::optional<double> blocks;
  std::optional<int> threads_per_block;  ///< default 128
  /// Part of the measured time that is not the kernel's and that both GPUs have.
  double dispatch_us = 0;
};

/// g of the equations above; `ridge` in FLOP per byte. Kernels without FLOP: 1, without bytes: 0.
double memory_boundedness(double flop_per_byte, double ridge);

/// Blocks that the GPU holds at a time: threads that fit on an SM over threads per block, at most
/// 32 (16 on Turing), times SMs. Registers and shared memory are not known and not counted.
double blocks_per_wave(const Gpu& gpu, int threads_per_block);

/// Why the equations do not hold for this kernel between these GPUs; empty where they do.
std::string_view why_waves_mislead(KernelFamily family, const Gpu& origin, const Gpu& destination);

/// `measured` on `origin`, moved to `destination`. `bound` is kMeasured, `model` "wave-scaling";
/// `low` and `high` span both forms and 10 % more (25 % where `in_range` is false: see
/// `why_waves_mislead`). An error names a field that one of the GPUs lacks and the equation needs,
/// or a time that is none or not above `dispatch_us`. Kernels that use a link (collectives, copies
/// to or from the host) are refused.
Result<Price> scale_by_waves(Microseconds measured, const KernelWork& work, const Gpu& origin,
                             const Gpu& destination, const WaveScalingOptions& options = {});

}  // namespace perfmodel
