#pragma once

#include "price/terms.hpp"
#include "tiled_time.hpp"

namespace perfmodel::kernels {

/// Time of C[b, m, n] = A B with the best of a few block tiles, as the libraries choose one:
///
///   q       = ceil(b ceil(m / tm) ceil(n / tn) s / SMs)          blocks of the busiest SM
///   compute = 2 tm tn (k / s) / (e P / SMs) max(q, 1 / r)
///   memory  = max(bytes / B_DRAM, blocks (tm + tn) k itemsize / B_L2)
///   t       = t_empty + t_io + max(compute, memory) + reduction(s)
///
/// e: share of the sustained peak P that a tile's inner loop reaches with enough blocks per SM; r:
/// share of that with one block alone on the SM; s: ways to split k when tiles do not fill the GPU.
/// The reduction writes and reads s partial results in fp32 and is a second kernel. `flop_gain`
/// divides the compute term (Winograd); `dram_bytes` is the compulsory traffic. `matrix_gemm`
/// explains `tile_exponent` and `share`: only measured products on matrix units use them.
TiledTime tiled_gemm(const GemmShape& shape, double item_size, DType dtype, bool matrix_units,
                     double dram_bytes, double flop_gain, const Gpu& gpu, double tile_exponent = 0,
                     double share = 1);

}  // namespace perfmodel::kernels
