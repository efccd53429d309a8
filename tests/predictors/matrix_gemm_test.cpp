#include "price/kernels/matrix_gemm.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "perfmodel/predictors/gpu.hpp"
#include "price/kernel_work.hpp"

namespace perfmodel {
namespace matrix_gemm_test {

Gpu known(const char* name) {
  const auto gpu = find_gpu(name, std::filesystem::path(PERFMODEL_SOURCE_DIR) / "data" / "gpus");
  EXPECT_TRUE(gpu.has_value()) << to_string(gpu.error());
  return *gpu;
}

Price price(const Gpu& gpu, const GemmShape& shape, DType dtype = DType::kBFloat16) {
  return KernelModels::heuristic().price(gemm_work(shape, dtype, true), gpu);
}
double time(const Gpu& gpu, const GemmShape& shape, DType dtype = DType::kBFloat16) {
  return price(gpu, shape, dtype).time.count();
}

TEST(MatrixGemm, IsTheFormulaAsWrittenDownElsewhere) {
  // By another implementation of the same equations, in numpy.
  struct Case {
    const char* gpu;
    DType dtype;
    GemmShape shape;
    double us;
  };
  const Case cases[] = {
      {"a100-sxm-80gb", DType::kBFloat16, {1, 16, 4096, 4096}, 29.0644},
      {"a100-sxm-80gb", DType::kBFloat16, {1, 257, 1024, 12288}, 50.8607},
      {"a100-sxm-80gb", DType::kFloat16, {1, 8192, 8192, 8192}, 4572.8052},
      {"a100-sxm-80gb", DType::kBFloat16, {64, 512, 128, 512}, 40.0685},
      {"h100-sxm-80gb", DType::kBFloat16, {1, 257, 1024, 12288}, 19.4850},
      {"h100-sxm-80gb", DType::kBFloat16, {1, 8192, 8192, 8192}, 1461.8084},
      {"h100-sxm-80gb", DType::kBFloat16, {1, 16384, 8192, 28672}, 10310.5715},
      {"h100-sxm-80gb", DType::kFloat8, {1, 257, 1024, 12288}, 32.1962},
      {"h100-sxm-80gb", DType::kFloat8, {1, 8192, 8192, 8192}, 887.9361},
  };
  for (const Case& c : cases) {
    EXPECT_NEAR(time(known(c.gpu), c.shape, c.dtype), c.us, 2e-4 * c.us) << c.gpu << " " << c.us;
  }
}

TEST(MatrixGemm, LongProductsAreBoundByPower) {
  Gpu gpu = known("h100-sxm-80gb");
  const GemmShape large{1, 16384, 16384, 16384}, small{1, 2048, 2048, 2048};
  const double free_large = [&] {
    Gpu endless = gpu;
    endless.tdp_w = 1e5;
    return time(endless, large);
  }();
  const double at_700 = time(gpu, large), small_at_700 = time(gpu, small);
  EXPECT_GT(at_700, 1.05 * free_large);
  gpu.tdp_w = 350;
  EXPECT_NEAR(time(gpu, large), 2 * at_700, 0.01 * at_700);
  EXPECT_DOUBLE_EQ(time(gpu, small), small_at_700);  // a burst
}

TEST(MatrixGemm, OddSizesFallBackToOldKernelsOnNvidiaOnly) {
  const GemmShape even{96, 3136, 3136, 64}, odd{96, 3137, 3137, 64};
  const Gpu h100 = known("h100-sxm-80gb"), mi300x = known("mi300x");
  EXPECT_GT(time(h100, odd), 2 * time(h100, even));
  EXPECT_LT(time(mi300x, odd), 1.2 * time(mi300x, even));
  EXPECT_NEAR(time(h100, odd), 1902, 250);  // measured in an eager program
}

TEST(MatrixGemm, AlignmentIsThatOfRowsAsTheyLieInMemory) {
  const Gpu h100 = known("h100-sxm-80gb");
  const GemmShape even{1, 4096, 4096, 4096};
  GemmShape odd_m{1, 4095, 4096, 4096}, odd_k{1, 4096, 4096, 4095};
  EXPECT_LT(time(h100, odd_m), 1.01 * time(h100, even));  // rows of A are k long
  odd_m.a_transposed = true;
  EXPECT_GT(time(h100, odd_m), 2 * time(h100, even));
  EXPECT_GT(time(h100, odd_k), 2 * time(h100, even));
  odd_k.a_transposed = true;  // B's are n long
  EXPECT_LT(time(h100, odd_k), 1.01 * time(h100, even));
}

// The kernels for Turing that compute them have a rate, which a slow matrix unit does not reach.
TEST(MatrixGemm, UnalignedProductsAreSlowerByTheOwnPeak) {
  const GemmShape even{1, 4096, 4096, 4096}, odd{1, 4096, 4097, 4096};
  const auto slowdown = [&](const char* name) {
    return time(known(name), odd, DType::kFloat16) / time(known(name), even, DType::kFloat16);
  };
  EXPECT_NEAR(slowdown("a100-sxm-80gb"), 1 / (2 * 0.43 * 0.43), 0.3);
  EXPECT_GT(slowdown("h100-sxm-80gb"), 1.7 * slowdown("a100-sxm-80gb"));
  EXPECT_LT(slowdown("rtx-a4000"), 1.5);  // 1024 FLOP per clock and SM
  EXPECT_LT(slowdown("a10g"), 1.12);      // 512
  EXPECT_LT(slowdown("rtx-3070"), 1.12);
  EXPECT_LT(time(known("a10g"), odd, DType::kFloat16), time(known("t4"), odd, DType::kFloat16));
}

TEST(MatrixGemm, Tf32OfAmpereKnowsNoOtherKernels) {
  const Gpu a100 = known("a100-sxm-80gb");
  GemmShape shape{1, 4096, 4096, 4096};
  const double along = time(a100, shape, DType::kFloat32);
  shape.a_transposed = true;
  EXPECT_DOUBLE_EQ(time(a100, shape, DType::kFloat32), along);
  shape.n = 4097;
  EXPECT_LT(time(a100, shape, DType::kFloat32), 1.12 * along);
}

TEST(MatrixGemm, Tf32RunsSlowerInSmallTilesAndAcrossBothOperands) {
  const Gpu h100 = known("h100-sxm-80gb");
  GemmShape shape{1, 4096, 1024, 1024};
  const double along = time(h100, shape, DType::kFloat32);
  EXPECT_NEAR(along, 28.613, 0.01);  // numpy, as above
  shape.a_transposed = true;
  EXPECT_NEAR(time(h100, shape, DType::kFloat32), 42.149, 0.01);
  shape.b_transposed = true;  // B is stored along k
  EXPECT_DOUBLE_EQ(time(h100, shape, DType::kFloat32), along);
}

TEST(MatrixGemm, Tf32OfAnA100IsNearPublishedRates) {
  // 2 x 10240^3 at about 135 TFLOP/s of 156 (cuBLAS figures of NVIDIA's own documents): 16 ms; the
  // limit of power leaves 120.
  EXPECT_NEAR(time(known("a100-sxm-80gb"), {1, 10240, 10240, 10240}, DType::kFloat32), 16'000,
              2'000);
}

TEST(MatrixGemm, NeverFallsWithDepth) {
  for (const char* name : {"a100-sxm-80gb", "h100-sxm-80gb", "rtx-4090", "v100-sxm2-32gb"}) {
    const Gpu gpu = known(name);
    for (const DType dtype : {DType::kFloat16, DType::kFloat32}) {
      for (const std::int64_t side : {64, 512, 4096}) {
        double last = 0;
        for (std::int64_t k = 64; k <= 1 << 18; k += std::max<std::int64_t>(8, k / 16 / 8 * 8)) {
          const double us = time(gpu, {1, side, side, k}, dtype);
          EXPECT_GE(us, last * (1 - 1e-9)) << name << " " << side << " " << k;
          last = us;
        }
      }
    }
  }
}

TEST(MatrixGemm, TellsWhatWasMeasured) {
  const GemmShape shape{1, 1024, 1024, 1024};
  EXPECT_TRUE(price(known("h100-sxm-80gb"), shape).in_range);
  EXPECT_FALSE(price(known("h100-sxm-80gb"), shape, DType::kFloat32).in_range);
  EXPECT_FALSE(price(known("h100-sxm-80gb"), {64, 8, 64, 8}).in_range);  // tiny
  EXPECT_FALSE(price(known("v100-sxm2-32gb"), shape, DType::kFloat16).in_range);
  EXPECT_EQ(kernels::measured_products(DType::kFloat64, Scaling::kTensor, known("a100-sxm-80gb")),
            nullptr);
  EXPECT_EQ(kernels::measured_products(DType::kFloat32, Scaling::kTensor, known("mi300x")),
            nullptr);  // exact units
}

}  // namespace matrix_gemm_test
}  // namespace perfmodel
