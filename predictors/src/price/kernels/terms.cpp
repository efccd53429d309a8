#include "terms.hpp"

#include <string_view>

namespace perfmodel::terms {
namespace {

/// Share of the data sheet's DRAM bandwidth that long streams reach; data/architectures has what
/// was measured. A memory type and generation without a measurement takes that of its nearest
/// relative.
double dram_efficiency(const Gpu& gpu) {
  const std::string_view type = gpu.dram_type, name = gpu.name;
  const Architecture& architecture = gpu.architecture;
  if (type.starts_with("HBM")) return architecture.hbm_share;
  const bool checks_in_band =
      !name.starts_with("gtx") && !name.starts_with("rtx") && !name.starts_with("titan");
  return checks_in_band ? architecture.gddr_share : architecture.unchecked_gddr_share;
}

/// Matrix units spend less per FLOP: A100 holds 312 TFLOP/s of fp16 on 400 W.
constexpr double kHalfMatrixEnergyShare = 0.12;
constexpr double kEighthMatrixEnergyShare = 0.06;  ///< operands of half the size
constexpr double kFp32MatrixEnergyShare = 0.5;

/// Board power that computes nothing (idle, memory, fans), as a share of the limit, at least 15 W.
constexpr double kIdleShare = 0.2;
constexpr double kIdleWatt = 15;

}  // namespace

double dram_bytes_per_us(const Gpu& gpu) {
  return dram_efficiency(gpu) * gpu.dram_bandwidth.value * 1e-6;
}

double l2_bytes_per_us(const Gpu& gpu) {
  const double rate = gpu.architecture.l2_bytes_per_clock_per_sm * clock_mhz(gpu) *
                      static_cast<double>(gpu.num_sms);
  return std::max(rate, dram_bytes_per_us(gpu));
}

double last_level_bytes_per_us(const Gpu& gpu) {
  const double per_clock = gpu.architecture.last_level_bytes_per_clock_per_sm;
  if (per_clock <= 0) return l2_bytes_per_us(gpu);
  return std::max(per_clock * clock_mhz(gpu) * static_cast<double>(gpu.num_sms),
                  dram_bytes_per_us(gpu));
}

double sustained_flop_per_us(const Gpu& gpu, DType dtype, bool matrix_units) {
  const double peak = gpu.peak(dtype, matrix_units).value * 1e-6;
  double picojoule = gpu.architecture.fp32_picojoule_per_flop;
  if (gpu.tdp_w <= 0 || picojoule <= 0) return peak;
  if (matrix_units) {
    picojoule *= dtype == DType::kFloat32  ? kFp32MatrixEnergyShare
                 : dtype == DType::kFloat8 ? kEighthMatrixEnergyShare
                                           : kHalfMatrixEnergyShare;
  } else if (dtype == DType::kFloat16 || dtype == DType::kBFloat16) {
    picojoule *= 0.5;
  } else if (dtype == DType::kFloat64) {
    picojoule *= 2;
  }
  const double watt = gpu.tdp_w - std::max(kIdleWatt, kIdleShare * gpu.tdp_w);
  const double power_limit = watt / picojoule * 1e6;  // 1 W / 1 pJ = 1e12 FLOP/s = 1e6 FLOP/us
  return std::min(peak, power_limit);
}

}  // namespace perfmodel::terms
