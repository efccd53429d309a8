// Energy of kernels, what a power limit makes of their times, and ranges of sums of them.
#include "perfmodel/predictors/detail/power.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "graph_fixture.hpp"
#include "perfmodel/predictors/detail/summed_range.hpp"
#include "price/kernel_work.hpp"

namespace perfmodel {
namespace power_test {

// 200 W, of which 40 are drawn whatever the work; 1 pJ per FLOP of half types, 10 of fp32 on vector
// units, 100 pJ per byte; 1 TB/s.
Gpu warm_gpu() {
  Gpu gpu = test_support::round_gpu();
  gpu.tdp_w = 200;
  gpu.architecture.idle_power_share = 0.2;
  gpu.architecture.fp32_picojoule_per_flop = 10;
  gpu.architecture.dram_picojoule_per_byte = 100;
  gpu.architecture.matrix_gemm->picojoule_per_flop = 1;
  gpu.architecture.matrix_gemm_fp8.reset();
  return gpu;
}

KernelWork work_of(double flop, double bytes, DType dtype = DType::kFloat16) {
  return {.family = KernelFamily::kGemm,
          .dtype = dtype,
          .matrix_units = true,
          .flop = {flop},
          .bytes_read = {bytes}};
}

Price burst_of(double us) {
  return {.time = Microseconds{us},
          .low = Microseconds{0.8 * us},
          .high = Microseconds{1.5 * us},
          .bound = Bound::kCompute};
}

TEST(Power, LeavesToWorkWhatIsNotIdle) {
  Gpu gpu = warm_gpu();
  EXPECT_DOUBLE_EQ(idle_power_w(gpu), 40);
  EXPECT_DOUBLE_EQ(work_power_w(gpu), 160);
  gpu.tdp_w = 70;
  EXPECT_DOUBLE_EQ(idle_power_w(gpu), 15);
  gpu.tdp_w = 0;
  EXPECT_EQ(work_power_w(gpu), 0);
}

TEST(Power, CountsArithmeticByTypeAndTrafficByByte) {
  const Gpu gpu = warm_gpu();
  const KernelEnergy half = kernel_energy(work_of(1e12, 1e9), gpu, Microseconds{5000});
  EXPECT_DOUBLE_EQ(half.flop_j, 1);
  EXPECT_DOUBLE_EQ(half.dram_j, 0.1);
  const auto flop_j = [&](DType dtype, bool matrix_units) {
    KernelWork work = work_of(1e12, 0, dtype);
    work.matrix_units = matrix_units;
    return kernel_energy(work, gpu, Microseconds{1e5}).flop_j;
  };
  EXPECT_DOUBLE_EQ(flop_j(DType::kFloat32, true), 2);  // TF32
  EXPECT_DOUBLE_EQ(flop_j(DType::kFloat32, false), 10);
  EXPECT_DOUBLE_EQ(flop_j(DType::kFloat16, false), 5);
  EXPECT_DOUBLE_EQ(flop_j(DType::kFloat64, false), 20);
  EXPECT_DOUBLE_EQ(flop_j(DType::kFloat8, true),
                   flop_j(DType::kBFloat16, true));  // no units for it
}

TEST(Power, CountsNoMoreBytesThanDramDelivers) {
  const Gpu gpu = warm_gpu();
  EXPECT_DOUBLE_EQ(kernel_energy(work_of(0, 1e9), gpu, Microseconds{100}).dram_j, 0.01);
}

TEST(Power, UsesOneFigureForProductsAndTheirPrice) {
  // A product of a few milliseconds is priced at the power limit: its arithmetic alone draws it.
  Gpu gpu = warm_gpu();
  gpu.tdp_w = 60;
  const KernelWork work = gemm_work({1, 8192, 8192, 8192}, DType::kFloat16, true);
  const Price price = KernelModels::heuristic().price(work, gpu);
  const double watt = kernel_energy(work, gpu, price.time).flop_j / price.time.count() * 1e6;
  EXPECT_NEAR(watt / work_power_w(gpu), 1, 0.01);
}

TEST(Sustained, TakesAsLongAsTheLimitFeedsTheWork) {
  // 0.16 J at 160 W: 1000 us.
  const Price made = sustained(burst_of(800), work_of(0.12e12, 0.4e9), warm_gpu());
  EXPECT_DOUBLE_EQ(made.time.count(), 1000);
  EXPECT_DOUBLE_EQ(made.low.count(), 640);  // the burst's
  EXPECT_DOUBLE_EQ(made.high.count(), 1500);
}

TEST(Sustained, IsNeverFasterThanABurstNorThanWithAHigherLimit) {
  for (const double flop : {1e9, 1e11, 4e11}) {
    double before = 1e300;
    for (const double tdp : {20., 60., 100., 200., 400., 1000.}) {
      Gpu gpu = warm_gpu();
      gpu.tdp_w = tdp;
      const double us = sustained(burst_of(800), work_of(flop, 1e8), gpu).time.count();
      EXPECT_GE(us, 800);
      EXPECT_LE(us, before);
      before = us;
    }
    EXPECT_EQ(before, 800);
  }
}

TEST(Sustained, LeavesArithmeticWhoseEnergyIsAnEstimate) {
  KernelWork vector = work_of(1e12, 1e8, DType::kFloat32);
  vector.matrix_units = false;
  EXPECT_FALSE(kernel_energy(vector, warm_gpu(), Microseconds{800}).measured);
  EXPECT_EQ(sustained(burst_of(800), vector, warm_gpu()).time.count(), 800);
  EXPECT_TRUE(kernel_energy(work_of(1e12, 1e8), warm_gpu(), Microseconds{800}).measured);
}

TEST(Sustained, LeavesMeasuredTimesAndBoardsWithoutALimit) {
  const KernelWork work = work_of(1e12, 1e8);
  Price measured = burst_of(800);
  measured.bound = Bound::kMeasured;
  EXPECT_EQ(sustained(measured, work, warm_gpu()).time.count(), 800);
  Gpu gpu = warm_gpu();
  gpu.tdp_w = 0;
  EXPECT_EQ(sustained(burst_of(800), work, gpu).time.count(), 800);
  EXPECT_EQ(kernel_energy(work, gpu, Microseconds{800}).sum_j(), 0);
}

// ---- sums --------------------------------------------------------------------------------------

Price price_of(double us, double low, double high) {
  return {.time = Microseconds{us}, .low = Microseconds{low}, .high = Microseconds{high}};
}

TEST(SummedRange, OfOneKernelIsItsOwn) {
  SummedRange sum;
  sum.add(KernelFamily::kGemm, price_of(100, 90, 120));
  EXPECT_DOUBLE_EQ(sum.range().time.count(), 100);
  EXPECT_DOUBLE_EQ(sum.range().low.count(), 90);
  EXPECT_DOUBLE_EQ(sum.range().high.count(), 120);
}

TEST(SummedRange, KernelsPricedAlikeHaveOneError) {
  SummedRange sum;
  for (int i = 0; i < 10; ++i) sum.add(KernelFamily::kGemm, price_of(100, 90, 120));
  EXPECT_NEAR(sum.range().low.count(), 900, 1e-9);
  EXPECT_NEAR(sum.range().high.count(), 1200, 1e-9);
  SummedRange counted;
  counted.add(KernelFamily::kGemm, price_of(100, 90, 120), Microseconds{0}, 10);
  EXPECT_NEAR(counted.range().high.count(), 1200, 1e-9);
}

TEST(SummedRange, ErrorsOfOtherFamiliesAreIndependent) {
  SummedRange sum;
  sum.add(KernelFamily::kGemm, price_of(100, 97, 130));
  sum.add(KernelFamily::kNorm, price_of(200, 196, 240));
  EXPECT_NEAR(sum.range().low.count(), 300 - 5, 1e-9);
  EXPECT_NEAR(sum.range().high.count(), 300 + 50, 1e-9);
}

TEST(SummedRange, ErrorsOfOneFamilyAreInPart) {
  SummedRange sum;
  sum.add(KernelFamily::kGemm, price_of(100, 97, 130));
  sum.add(KernelFamily::kGemm, price_of(200, 196, 240));
  const double rho = SummedRange::kCorrelation;
  EXPECT_NEAR(sum.range().high.count(), 300 + std::sqrt(rho * 70 * 70 + (1 - rho) * 2500), 1e-9);
  EXPECT_GT(sum.range().high.count(), 350);
  EXPECT_LT(sum.range().high.count(), 370);
}

TEST(SummedRange, TheLowEndIsABurstAndMeasuredTimesHaveNone) {
  SummedRange sum;
  sum.add(KernelFamily::kGemm, price_of(110, 90, 132), Microseconds{10});
  EXPECT_NEAR(sum.range().time.count(), 110, 1e-9);
  EXPECT_NEAR(sum.range().low.count(), 90, 1e-9);
  EXPECT_NEAR(sum.range().high.count(), 132, 1e-9);
  SummedRange measured;
  measured.add(KernelFamily::kGemm, price_of(110, 110, 110));
  EXPECT_EQ(measured.range().low.count(), 110);
  EXPECT_EQ(measured.range().high.count(), 110);
}

}  // namespace power_test
}  // namespace perfmodel
