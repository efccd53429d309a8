#include "terms.hpp"

#include <string_view>

namespace perfmodel::terms {
namespace {

/// Share of the data sheet's DRAM bandwidth that long streams reach. Measured: slope of time over
/// bytes of elementwise kernels of 80-320 MB [N], one and two inputs averaged, and the peaks of a
/// roofline tool [R]:
///
///   HBM2   P100 0.76 and 0.74 [N], 0.74 [R]; V100 0.92 [N], 0.91 [R];
///          A100 0.87-0.91 [N], 0.89 [R]; MI100 0.81-0.85 [N]
///   HBM2e  MI210 0.80-0.88 [N]
///   GDDR5  P4 0.75 [N]; GDDR5X TITAN Xp 0.80 [R]; GDDR6 T4 0.76 and 0.74 [N]
///
/// A memory type and generation without a measurement takes that of its nearest relative: later HBM
/// on NVIDIA like A100; CDNA 3 like CDNA 2, Vega like P100 (first HBM2 controllers of both
/// vendors). GDDR of server boards checks errors in band, which costs some of the bandwidth; boards
/// without (GTX, RTX, TITAN) take TITAN Xp's share. GDDR6 on Ampere and Ada: between the two, an
/// estimate.
double dram_efficiency(const Gpu& gpu) {
  const std::string_view type = gpu.dram_type, architecture = gpu.architecture, name = gpu.name;
  if (type.starts_with("HBM")) {
    if (architecture == "pascal" || architecture.starts_with("gcn")) return 0.75;
    if (architecture == "volta") return 0.92;
    if (architecture.starts_with("cdna")) return 0.84;
    return 0.89;
  }
  const bool checks_in_band =
      !name.starts_with("gtx") && !name.starts_with("rtx") && !name.starts_with("titan");
  if (!checks_in_band) return 0.80;
  return architecture == "ampere" || architecture == "ada" ? 0.78 : 0.75;
}

/// Energy of one FLOP of a dense fp32 GEMM [pJ], by architecture: Turing from what the T4 sustains
/// in NeuSight's rows (11, 12.5 and 13.5 were tried); all others are estimates scaled by process,
/// checked only for not limiting V100, P100 and A100 boards.
double fp32_picojoule_per_flop(std::string_view architecture) {
  if (architecture == "maxwell") return 25;
  if (architecture == "pascal") return 15;
  if (architecture == "volta" || architecture == "turing") return 12.5;
  if (architecture == "ampere") return 8;
  if (architecture == "ada" || architecture == "hopper") return 5;
  if (architecture == "blackwell") return 4;
  if (architecture == "vega" || architecture == "gcn5") return 16;
  return 8;  // CDNA
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
  const double rate =
      kConstants.l2_bytes_per_clock_per_sm * clock_mhz(gpu) * static_cast<double>(gpu.num_sms);
  return std::max(rate, dram_bytes_per_us(gpu));
}

double sustained_flop_per_us(const Gpu& gpu, DType dtype, bool matrix_units) {
  const double peak = gpu.peak(dtype, matrix_units).value * 1e-6;
  if (gpu.tdp_w <= 0) return peak;
  double picojoule = fp32_picojoule_per_flop(gpu.architecture);
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
