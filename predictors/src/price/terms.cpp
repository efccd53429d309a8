#include "terms.hpp"

#include <string_view>

#include "perfmodel/predictors/detail/board_power.hpp"

namespace perfmodel::terms {
namespace {

/// Whether a board with GDDR keeps check bits in its memory, a sixteenth of it or more. If usable
/// memory is not known, its name tells.
bool checks_in_band(const Gpu& gpu) {
  constexpr double kLeastUsable = 0.95;
  if (gpu.usable_gib > 0) return gpu.usable_gib < kLeastUsable * gpu.dram_gb;
  const std::string_view name = gpu.name;
  return !name.starts_with("gtx") && !name.starts_with("rtx") && !name.starts_with("titan");
}

/// Share of the data sheet's DRAM bandwidth that long streams reach; data/architectures has the
/// measured shares. A memory type and generation without a measurement takes its nearest
/// relative's.
double dram_efficiency(const Gpu& gpu) {
  const Architecture& architecture = gpu.architecture;
  if (gpu.dram_type.starts_with("HBM")) return architecture.hbm_share;
  return checks_in_band(gpu) ? architecture.gddr_share : architecture.unchecked_gddr_share;
}

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
  // The energy is derived from fp32's even if products were measured: other kernels on matrix units
  // were fitted with it.
  const double picojoule = derived_picojoule_per_flop(gpu, dtype, matrix_units);
  if (gpu.tdp_w <= 0 || picojoule <= 0) return peak;
  // 1 W / 1 pJ = 1e12 FLOP/s = 1e6 FLOP/us
  const double power_limit = work_power_w(gpu) / picojoule * 1e6;
  return std::min(peak, power_limit);
}

}  // namespace perfmodel::terms
