// Products with hashed weights: bytes by hand, order of the schemes, and the paper's factors.
#include "price/kernels/hashed_product.hpp"

#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>

#include "price/kernel_work.hpp"
#include "price/terms.hpp"

namespace perfmodel {
namespace hashed_product_test {

using Scheme = HashedProductShape::Scheme;

Gpu a100() {
  return find_gpu("a100-sxm-40gb", std::filesystem::path(PERFMODEL_SOURCE_DIR) / "data" / "gpus")
      .value();
}

HashedProductShape shape(Scheme scheme, std::int64_t m, std::int64_t side, std::int64_t elements) {
  return {.scheme = scheme, .m = m, .n = side, .k = side, .elements = elements};
}

double us(const HashedProductShape& of, DType dtype = DType::kFloat32) {
  return KernelModels::heuristic()
      .price(hashed_product_work(of, dtype, dtype != DType::kFloat32), a100())
      .time.count();
}
double stored_us(const HashedProductShape& of, DType dtype = DType::kFloat32) {
  return KernelModels::heuristic()
      .price(kernels::stored_product(of, dtype, dtype != DType::kFloat32), a100())
      .time.count();
}

// 1,024 rows of x: 16 rows of blocks. A weight of 1,024 x 1,024: 512 tiles of 8,192 bytes, or as
// many sectors of 32 bytes as elements.
TEST(HashedProduct, LookupsByHand) {
  const Gpu gpu = a100();
  const auto tiles = kernels::hashed_lookups(shape(Scheme::kTiles, 1024, 1024, 1 << 16), 4, gpu);
  EXPECT_DOUBLE_EQ(tiles.hashes, 16 * 512);
  EXPECT_DOUBLE_EQ(tiles.bytes, 16 * 512 * (8192 + 28));
  EXPECT_DOUBLE_EQ(tiles.hit_rate, 1);
  EXPECT_DOUBLE_EQ(tiles.dram_bytes, 4 << 16);  // the array once
  const auto single =
      kernels::hashed_lookups(shape(Scheme::kElements, 1024, 1024, 1 << 16), 4, gpu);
  EXPECT_DOUBLE_EQ(single.bytes, 16.0 * 1024 * 1024 * 32);
  // The ratio of the sectors that hold an element's 4 bytes.
  EXPECT_DOUBLE_EQ(single.bytes / tiles.bytes, 32.0 / (4 + 28.0 / 2048));
  const KernelWork work =
      hashed_product_work(shape(Scheme::kTiles, 1024, 1024, 1 << 16), DType::kFloat32, false);
  EXPECT_DOUBLE_EQ(work.bytes_read.value, 4.0 * (1024 * 1024 + (1 << 16)));
  EXPECT_DOUBLE_EQ(work.bytes_written.value, 4.0 * 1024 * 1024);
}

TEST(HashedProduct, LargerArraysAreNeverFaster) {
  for (const Scheme scheme : {Scheme::kTiles, Scheme::kElements}) {
    double before = 0;
    for (std::int64_t elements = 1 << 16; elements <= 128 << 20; elements *= 2) {
      const double now = us(shape(scheme, 1024, 10240, elements));
      EXPECT_GE(now, before) << elements;
      before = now;
    }
  }
}

TEST(HashedProduct, NeverFasterThanAStoredWeightWhereSumsBound) {
  for (const std::int64_t elements : {1 << 16, 1 << 20, 1 << 24}) {
    const auto tiles = shape(Scheme::kTiles, 4096, 4096, elements);
    EXPECT_GE(us(tiles), stored_us(tiles));
    EXPECT_GE(us(shape(Scheme::kElements, 4096, 4096, elements)), us(tiles));
  }
  // Few rows on matrix units: the weight's way from DRAM bounds a stored product, the array comes
  // from L2.
  const auto few = shape(Scheme::kTiles, 32, 10240, 1 << 20);
  EXPECT_LT(us(few, DType::kBFloat16), stored_us(few, DType::kBFloat16));
}

// ROAST's claim: 25 times faster training and 50 times faster inference than HashedNet. If both are
// fused kernels, only the sectors can be gained: 16 of HashedNet's to one of ROAST's in bf16.
// HashedNet as framework ops writes the weight first, element by element: then the factor grows as
// the product shrinks, and 25 and 50 hold for few rows.
TEST(HashedProduct, FactorsOverHashedNetTermByTerm) {
  for (const std::int64_t elements : {1 << 20, 64 << 20}) {
    for (const std::int64_t m : {1, 32, 512}) {
      const auto tiles = shape(Scheme::kTiles, m, 10240, elements);
      const auto single = shape(Scheme::kElements, m, 10240, elements);
      const double roast = us(tiles, DType::kBFloat16), fused = us(single, DType::kBFloat16);
      const double gather =
          KernelModels::heuristic()
              .price(gather_work(10240 * 10240, 1, DType::kBFloat16, elements), a100())
              .time.count();
      const double as_ops = gather + stored_us(tiles, DType::kBFloat16);
      std::printf(
          "m %3d, array of %3d Mi: ROAST %6.0f us; HashedNet fused %6.0f (%.1f times), as ops "
          "%6.0f "
          "(%.1f times), of which the gather %6.0f\n",
          static_cast<int>(m), static_cast<int>(elements >> 20), roast, fused, fused / roast,
          as_ops, as_ops / roast, gather);
      EXPECT_GT(fused, roast);
      EXPECT_LE(fused / roast, 16);
    }
  }
}

}  // namespace hashed_product_test
}  // namespace perfmodel
