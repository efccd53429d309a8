#include "hashed_product.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

#include "models.hpp"
#include "price/kernel_work.hpp"
#include "price/terms.hpp"
#include "price/tiles/tile_time.hpp"

namespace perfmodel::kernels {
namespace {

constexpr double kHashedSector = 32;
constexpr double kBlockRows = 64, kBlockColumns = 64, kRowsSideBySide = 4;
constexpr double kOpsPerHash = 20, kIntegerLanesPerSm = 64;

double blocks_of(std::int64_t size, double block) {
  return std::ceil(static_cast<double>(size) / block);
}

/// The computed product: m x n, with the sum over k.
GemmShape product_of(const HashedProductShape& s) {
  if (s.is_weight_gradient) return {.m = s.n, .n = s.k, .k = s.m};
  return {.m = s.m, .n = s.n, .k = s.k};
}

/// Compute term of the kernel's own tiles; nothing where no schedule says it.
std::optional<double> tiles_us(const GemmShape& product, const KernelWork& work, const Gpu& gpu) {
  const bool half = work.dtype == DType::kFloat16 || work.dtype == DType::kBFloat16;
  if (gpu.vendor != "nvidia" || half != work.matrix_units) return std::nullopt;
  if (!half && work.dtype != DType::kFloat32) return std::nullopt;
  const tiles::TileSchedule tile = half ? tiles::mma_tile({64, 64}, 32, {32, 32}, 32)
                                        : tiles::simt_tile({2, 2}, {1, 1}, {4, 8}, {8, 4}, 8);
  const tiles::TileTime time = tiles::tile_time(tile, product, {}, gpu);
  return std::max(1.0, time.waves) * blocks_of(product.k, tile.block_k) * time.compute_us;
}

}  // namespace

HashedLookups hashed_lookups(const HashedProductShape& s, double item_size, const Gpu& gpu) {
  const double elements = static_cast<double>(s.elements);
  const double passes = s.is_weight_gradient ? 1 : blocks_of(s.m, kBlockRows);
  HashedLookups lookups;
  if (s.scheme == HashedProductShape::Scheme::kElements) {
    lookups.hashes = passes * static_cast<double>(s.k) * static_cast<double>(s.n);
    lookups.bytes = lookups.hashes * kHashedSector;
  } else {
    const double tile = static_cast<double>(s.tile_k * s.tile_n) * item_size;
    lookups.hashes = passes * blocks_of(s.k, static_cast<double>(s.tile_k)) *
                     blocks_of(s.n, static_cast<double>(s.tile_n));
    lookups.bytes = lookups.hashes * (tile + kHashedSector - item_size);
  }
  lookups.hit_rate =
      std::min(1.0, terms::kConstants.l2_usable * terms::cache_bytes(gpu) / (elements * item_size));
  const double touched =
      std::min(static_cast<double>(s.k) * static_cast<double>(s.n), elements) * item_size;
  lookups.dram_bytes =
      std::max(touched, (1 - lookups.hit_rate) * lookups.bytes / std::min(passes, kRowsSideBySide));
  return lookups;
}

KernelWork stored_product(const HashedProductShape& shape, DType dtype, bool matrix_units) {
  return gemm_work(product_of(shape), dtype, matrix_units);
}

Price hashed_product_price(const HashedProductShape& shape, const KernelWork& work,
                           const Gpu& gpu) {
  const double item = static_cast<double>(size_in_bytes(work.dtype));
  const GemmShape product = product_of(shape);
  const HashedLookups lookups = hashed_lookups(shape, item, gpu);
  KernelWork stored = stored_product(shape, work.dtype, work.matrix_units);
  stored.bytes_read = work.bytes_read;
  stored.bytes_written = work.bytes_written;
  const Price base = gemm_model().price(stored, gpu);

  const double hash =
      lookups.hashes * kOpsPerHash / (kIntegerLanesPerSm * terms::sm_clocks_per_us(gpu));
  const double compute =
      std::max({base.compute.count(), tiles_us(product, work, gpu).value_or(0), hash});

  const double m = static_cast<double>(product.m), n = static_cast<double>(product.n),
               k = static_cast<double>(product.k);
  const double rows = blocks_of(product.m, kBlockRows),
               columns = blocks_of(product.n, kBlockColumns);
  const double of_operands = shape.is_weight_gradient
                                 ? columns * m * k + rows * n * k  // both stored
                                 : columns * m * k;
  const double lookups_at_l2 = (shape.is_weight_gradient ? 2 : 1) * lookups.bytes;
  const double l2 = (of_operands * item + lookups_at_l2) / terms::l2_bytes_per_us(gpu);
  const double touched = std::min(static_cast<double>(shape.k) * static_cast<double>(shape.n),
                                  static_cast<double>(shape.elements)) *
                         item;
  const double dram =
      (work.bytes().value - touched + lookups.dram_bytes) / terms::dram_bytes_per_us(gpu);
  const double one_by_one = shape.is_weight_gradient
                                ? static_cast<double>(shape.k) * static_cast<double>(shape.n) /
                                      static_cast<double>(shape.elements) / terms::clock_mhz(gpu)
                                : 0;
  const double memory = std::max({base.memory.count(), l2, dram, one_by_one});

  Price price =
      terms::make_price(compute, memory, base.latency.count(), "hashed-product-heuristic", 0.5);
  price.in_range = false;
  return price;
}

Price beside_stored(Price hashed, const Price& stored, const Price& better_stored) {
  const double added = hashed.time.count() - stored.time.count();
  const double better = better_stored.time.count();
  const double time =
      added >= 0 ? better + added : better * hashed.time.count() / stored.time.count();
  const double factor = time / hashed.time.count();
  for (Microseconds* part : {&hashed.time, &hashed.low, &hashed.high, &hashed.compute,
                             &hashed.memory, &hashed.latency}) {
    *part *= factor;
  }
  return hashed;
}

}  // namespace perfmodel::kernels
