#pragma once

#include <cstdint>
#include <span>

namespace kernels_bench {

/// A linear layer over `rows` samples or tokens.
struct Layer {
  std::int64_t rows, in, out;
};

/// The DLRMs of Lin et al. (HiPC 2022), batches 512 to 4096, and transformer blocks with hidden
/// sizes 768 to 8192 (projections and a feed-forward part of four times the width).
std::span<const Layer> workload_layers();

}  // namespace kernels_bench
