#pragma once

#include "perfmodel/predictors/kernel.hpp"

namespace perfmodel::kernels {

/// Traffic of a hashed weight's lookups, without stored operands and results.
struct HashedLookups {
  double hashes = 0;      ///< computed
  double bytes = 0;       ///< between SMs and L2, in sectors of 32 bytes
  double hit_rate = 0;    ///< share of them that finds its sector in the cache
  double dram_bytes = 0;  ///< misses, at least each touched sector once
};

/// Blocks compute tiles of the result of 64 rows, so that forward and input gradient look up the
/// weight ceil(m / 64) times, the weight gradient adds to each element of it once. Item size s:
///
///   tiles     per tile one hash and one run of tile_k tile_n s bytes at any offset: 32 - s more
///   elements  per element one hash and one sector of 32 bytes
///
///   hit  = min(1, 0.9 cache / (elements s))
///   DRAM = max(min(k n, elements) s, (1 - hit) bytes / min(rows of blocks, 4))
///
/// since four rows of blocks run side by side and share their reads (the swizzle of ROAST's
/// kernel). `elements` is at least 1.
HashedLookups hashed_lookups(const HashedProductShape& shape, double item_size, const Gpu& gpu);

/// The same product with the weight stored as a matrix.
KernelWork stored_product(const HashedProductShape& shape, DType dtype, bool matrix_units);

/// t = t_0 + max(compute, memory):
///
///   compute = max(the stored product's, its tiles of 64 x 64 x 32 by 4 warps, 20 hashes / integer
///             rate)
///   memory  = max(bytes of x, y and the array / B_DRAM, (x through L2 + lookups) / B_L2)
///
/// and for the weight gradient, which adds its tiles to the array by atomics, the lookups twice (a
/// read and a write at L2) and the adds to one element one after the other, k n / elements clocks.
/// Sources: the public code of ROAST (its Triton product: tiles, group, warps); the integer rate is
/// 64 lanes per SM and clock. None of that code was timed; the kernels of kernels_bench, which do
/// not load ahead, take 2 to 10 times as long (docs/kernel_models.md): out of range, whatever the
/// GPU.
Price hashed_product_price(const HashedProductShape& shape, const KernelWork& work, const Gpu& gpu);

/// The price of a hashed product if another model knows the stored product better: the hash's extra
/// time is added to that price; if the hash saves time, the same share of it is kept. `in_range`
/// does not change.
Price beside_stored(Price hashed, const Price& stored, const Price& better_stored);

}  // namespace perfmodel::kernels
