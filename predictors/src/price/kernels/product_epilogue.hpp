#pragma once

#include <algorithm>
#include <optional>

#include "price/kernel_work.hpp"
#include "price/terms.hpp"

namespace perfmodel::kernels {

/// The product of a generated kernel without the pointwise ops after it; none: another kernel.
inline std::optional<KernelWork> product_alone(const KernelWork& work) {
  const auto* shape = std::get_if<GemmShape>(&work.shape);
  if (work.layout != Layout::kGenerated || !shape) return std::nullopt;
  return gemm_work(*shape, work.dtype, work.matrix_units);
}

/// t = t_product + bytes / B_DRAM, where the pointwise ops read and write `bytes` in addition to
/// the product's own: a tile moves them when its sums are done. Their FLOP are hidden. No such
/// kernel was timed: whether tiles hide each other's epilogues is not known, and not assumed.
inline Price with_epilogue(Price product, const KernelWork& alone, const KernelWork& work,
                           const Gpu& gpu) {
  const double bytes = std::max(0.0, work.bytes().value - alone.bytes().value);
  const Microseconds moves{bytes / terms::dram_bytes_per_us(gpu)};
  for (Microseconds Price::*part : {&Price::time, &Price::low, &Price::high, &Price::memory}) {
    product.*part += moves;
  }
  return product;
}

}  // namespace perfmodel::kernels
