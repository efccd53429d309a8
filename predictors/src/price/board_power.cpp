#include "perfmodel/predictors/detail/board_power.hpp"

#include <algorithm>

namespace perfmodel {
namespace {

constexpr double kLeastIdleWatt = 15;

// Shares of what fp32 takes on vector units: A100 holds 312 TFLOP/s of fp16 on 400 W.
constexpr double kHalfMatrixShare = 0.12;
constexpr double kEighthMatrixShare = 0.06;  // operands of half the size
constexpr double kQuarterMatrixShare = 0.035;
constexpr double kFp32MatrixShare = 0.5;
constexpr double kHalfVectorShare = 0.5;
constexpr double kFp64Share = 2;

}  // namespace

double idle_power_w(const Gpu& gpu) {
  if (gpu.tdp_w <= 0) return 0;
  return std::min(gpu.tdp_w,
                  std::max(kLeastIdleWatt, gpu.architecture.idle_power_share * gpu.tdp_w));
}

double work_power_w(const Gpu& gpu) { return gpu.tdp_w - idle_power_w(gpu); }

double derived_picojoule_per_flop(const Gpu& gpu, DType dtype, bool matrix_units) {
  const double fp32 = gpu.architecture.fp32_picojoule_per_flop;
  if (matrix_units) {
    if (dtype == DType::kFloat32) return kFp32MatrixShare * fp32;
    if (dtype == DType::kFloat4) return kQuarterMatrixShare * fp32;
    return (dtype == DType::kFloat8 ? kEighthMatrixShare : kHalfMatrixShare) * fp32;
  }
  if (dtype == DType::kFloat16 || dtype == DType::kBFloat16) return kHalfVectorShare * fp32;
  return (dtype == DType::kFloat64 ? kFp64Share : 1) * fp32;
}

}  // namespace perfmodel
