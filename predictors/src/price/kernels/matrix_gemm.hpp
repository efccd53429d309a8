#pragma once

#include "price/terms.hpp"
#include "tiled_time.hpp"

namespace perfmodel::kernels {

/// If k is split: the idle part of a partly filled last wave that counts, and the least k of a
/// part.
inline constexpr double kTailShare = 0.3, kLeastPartDepth = 128;

/// Measurements of such products on the GPU's architecture; null if there are none. TF32 is a
/// product of the 16-bit types; exact fp32 and fp64 matrix units are not. Types of 8 and 4 bits
/// without figures of their own take the next wider type's.
const MatrixGemm* measured_products(DType dtype, Scaling scaling, const Gpu& gpu);

/// Whether products of 8 or 4 bits with this scaling were measured themselves there.
bool has_own_products(DType dtype, Scaling scaling, const Gpu& gpu);

/// Energy of a FLOP of such products [pJ]; `set` is one of the architecture's.
double measured_picojoule(const MatrixGemm& set, DType dtype, const Architecture& architecture);

/// Products on matrix units, with the best of the library's tiles and splits of k:
///
///   blocks  = b ceil(m / tm) ceil(n / tn);  w = blocks s / SMs
///   waves   = 1 if w <= 1, else w + 0.3 (ceil(w) - w);  without splits ceil(w)
///   compute = waves (2 tm tn k / (s e P / SMs) + tm tn itemsize_out / B_store)
///   memory  = max(bytes / B_DRAM, blocks (tm + tn) k itemsize / B_L2)
///   t       = t_0 + max((compute^3 + memory^3)^(1/3), FLOP e_J / W)     s = 1
///   t       = 2 t_0 + s (8 b m n / B_L2) + max(...)                     s > 1, second kernel
///
/// P is the data sheet's peak, e the share of it that a tile's inner loop reaches. Results leave
/// after the sums are done and keep the SM meanwhile. Board power W bounds products of more than
/// half a millisecond, fully from one and a half: shorter ones run on energy that the board has
/// stored. Operands come from DRAM: in programs, whole layers went by since they were read.
///
/// `flop_gain` divides the time of the sums and of the traffic from L2. A tile of fewer results
/// than 256 x 128 reaches (tm tn / 2^15)^`tile_exponent` of e. All except the fixed time takes
/// 1 / `share` as long; the tile is the best one with it.
TiledTime matrix_gemm(const MatrixGemm& set, const GemmShape& shape, double item_size, DType dtype,
                      double dram_bytes, double flop_gain, const Gpu& gpu, double tile_exponent = 0,
                      double share = 1);

/// Share of the board's power limit that a kernel of this length feels, from 0 to 1.
double held_share(double us);

}  // namespace perfmodel::kernels
