#include "perfmodel/predictors/detail/power.hpp"

#include <algorithm>
#include <variant>

#include "price/kernels/matrix_gemm.hpp"

namespace perfmodel {
namespace {

bool gain_from_matrix_units(DType dtype, const Gpu& gpu) {
  return gpu.peak(dtype, true).value > gpu.peak(dtype, false).value;
}

/// The type that the GPU computes in: bf16 for narrower types that its matrix units lack, as in
/// `Gpu::peak`.
DType computed_type(DType dtype, const Gpu& gpu) {
  return has_matrix_units(dtype, gpu) ? dtype : DType::kBFloat16;
}

const MatrixGemm* products_of(const KernelWork& work, const Gpu& gpu) {
  if (!work.matrix_units) return nullptr;
  const auto* shape = std::get_if<GemmShape>(&work.shape);
  return kernels::measured_products(work.dtype, shape ? shape->scaling : Scaling::kTensor, gpu);
}

}  // namespace

double picojoule_per_flop(const KernelWork& work, const Gpu& gpu) {
  const DType dtype = computed_type(work.dtype, gpu);
  const MatrixGemm* products = products_of(work, gpu);
  if (products) return kernels::measured_picojoule(*products, dtype, gpu.architecture);
  return derived_picojoule_per_flop(gpu, dtype,
                                    work.matrix_units && gain_from_matrix_units(dtype, gpu));
}

KernelEnergy kernel_energy(const KernelWork& work, const Gpu& gpu, Microseconds time) {
  constexpr double kPico = 1e-12;
  if (gpu.tdp_w <= 0) return {};
  const double most_bytes = gpu.dram_bandwidth.value * time.count() * 1e-6;
  return {.flop_j = work.flop.value * picojoule_per_flop(work, gpu) * kPico,
          .dram_j = std::min(work.bytes().value, most_bytes) *
                    gpu.architecture.dram_picojoule_per_byte * kPico,
          .measured = products_of(work, gpu) != nullptr};
}

namespace {

/// Time that the work takes at the power that the board has for it, or the burst's where that is
/// more. Only products whose energy was measured are held back.
double least_us(const Price& burst, const KernelWork& work, const Gpu& gpu) {
  const double us = burst.time.count();
  // FlashAttention-4 was measured at 1.2 times the power that a product of its FLOP would take.
  if (work.family == KernelFamily::kAttention || !products_of(work, gpu)) return us;
  const double watt = work_power_w(gpu);
  if (gpu.tdp_w <= 0 || burst.bound == Bound::kMeasured || us <= 0 || watt <= 0) return us;
  return std::max(us, kernel_energy(work, gpu, burst.time).sum_j() / watt * 1e6);
}

}  // namespace

Price sustained(const Price& burst, const KernelWork& work, const Gpu& gpu) {
  Price made = burst;
  made.time = Microseconds{least_us(burst, work, gpu)};
  if (made.time > burst.time) made.high *= made.time / burst.time;
  return made;
}

Price sustained_alone(const Price& burst, const KernelWork& work, const Gpu& gpu) {
  const double share = kernels::held_share(burst.time.count());
  if (share == 0) return burst;
  const Price limited = sustained(burst, work, gpu);
  Price made = burst;
  made.time += share * (limited.time - burst.time);
  made.high += share * (limited.high - burst.high);
  return made;
}

}  // namespace perfmodel
