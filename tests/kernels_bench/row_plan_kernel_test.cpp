#include "kernel_support.hpp"
#include "kernels_bench/kernels/team.hpp"

namespace kernels_bench {
namespace row_plan_kernel_test {

TEST(RowPlan, ShortRowsAreSharedByLanes) {
  const auto plan = kernels::plan_rows(64, 4);  // 16 vectors of 16 bytes
  EXPECT_TRUE(plan.widest && plan.cached && !plan.whole_block);
  EXPECT_EQ(plan.lanes, 16);
  EXPECT_EQ(kernels::plan_rows(1, 4).lanes, 1);
  EXPECT_FALSE(kernels::plan_rows(63, 4).widest);
  EXPECT_EQ(kernels::plan_rows(63, 4).lanes, 32);
}

TEST(RowPlan, ABlockHoldsWhatLanesCannot) {
  EXPECT_FALSE(kernels::plan_rows(512, 4).whole_block);  // 128 vectors = 32 lanes * 4
  const auto plan = kernels::plan_rows(516, 4);
  EXPECT_TRUE(plan.whole_block && plan.cached);
  EXPECT_EQ(plan.threads, 128);
  EXPECT_EQ(kernels::plan_rows(8192, 4).threads, 512);
  EXPECT_TRUE(kernels::plan_rows(8192, 4).cached);
  EXPECT_TRUE(kernels::plan_rows(16384, 2).cached);
}

TEST(RowPlan, LongRowsAreReadTwice) {
  const auto plan = kernels::plan_rows(8196, 4);
  EXPECT_TRUE(plan.whole_block && !plan.cached && plan.widest);
  EXPECT_EQ(plan.threads, 512);
  EXPECT_TRUE(kernels::plan_rows(4095, 4).cached);  // 512 threads * 8 single loads
  EXPECT_FALSE(kernels::plan_rows(4097, 4).cached);
}

}  // namespace row_plan_kernel_test
}  // namespace kernels_bench
