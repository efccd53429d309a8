// Answers of `gpus`, `gemm` and `kernels`, without a command.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/gemm_answer.hpp"
#include "kernels/known_gpus.hpp"
#include "kernels/price_kernel_table.hpp"

namespace perfmodel {
namespace kernel_answers_test {

using ::testing::HasSubstr;

TEST(KnownGpus, OneHasItsFileAndWhatItsKernelsArePricedFrom) {
  const auto known = known_gpus("a100-sxm-40gb", true);
  ASSERT_TRUE(known) << to_string(known.error());
  ASSERT_EQ(known->size(), 1U);
  EXPECT_FALSE(known->front().kernels.empty());
  const OrderedJson json = gpu_json(known->front());
  EXPECT_EQ(json["name"], "a100-sxm-40gb");
  EXPECT_EQ(json["peak_tflop_per_s"]["fp16_matrix"], 312);
  EXPECT_EQ(json["peak_tflop_per_s"]["fp8_matrix"], nullptr);
  EXPECT_EQ(json["last_level_cache_mib"], nullptr);
}

TEST(KnownGpus, AllHaveDataSheetsAlone) {
  const auto known = known_gpus("", false);
  ASSERT_TRUE(known) << to_string(known.error());
  EXPECT_GT(known->size(), 10U);
  EXPECT_TRUE(known->front().kernels.empty());
  EXPECT_FALSE(known_gpus("no-such-gpu", false));
}

TEST(GemmAnswer, TheFastestScheduleComesFirst) {
  const auto answer = answer_gemm({.m = 512, .n = 512, .k = 512, .gpu = "a100-sxm-40gb"});
  ASSERT_TRUE(answer) << to_string(answer.error());
  ASSERT_GT(answer->ranked.size(), 1U);
  EXPECT_LE(answer->ranked[0].time.time_us, answer->ranked[1].time.time_us);
  EXPECT_EQ(answer->dtype, "float32");
  EXPECT_EQ(answer->library_us(), answer->library.time.count());
  const OrderedJson json = gemm_json(*answer, false);
  EXPECT_EQ(json["valid_schedules"], answer->valid);
  EXPECT_FALSE(json.contains("schedules"));
  const tiles::TileSchedule& best = answer->ranked.front().schedule;
  EXPECT_EQ(json["best"]["tile"]["k"], best.block_k);
  EXPECT_EQ(named_field(kTileFields, "tile").text(answer->ranked.front()), best.text());
  EXPECT_EQ(gemm_json(*answer, true)["schedules"].size(), answer->ranked.size());
}

TEST(GemmAnswer, AnUnknownSpaceIsRefused) {
  const auto answer =
      answer_gemm({.m = 1, .n = 1, .k = 1, .gpu = "a100-sxm-40gb", .space = "wmma"});
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, ErrorCode::kUnknownName);
  EXPECT_THAT(answer.error().message, HasSubstr("simt1, simt2, mma"));
}

TEST(KernelsQuestion, TheRooflineHoldsNoPowerUnlessAsked) {
  EXPECT_TRUE(KernelsQuestion{}.holds_power());
  EXPECT_FALSE(KernelsQuestion{.burst = true}.holds_power());
  EXPECT_FALSE(KernelsQuestion{.models = "roofline"}.holds_power());
  EXPECT_TRUE((KernelsQuestion{.models = "roofline", .sustained = true}.holds_power()));
}

TEST(KernelsDocument, NamesTheFileWithoutItsFolder) {
  const OrderedJson json =
      kernels_json({.queries = "folder/rows.csv"}, {.rows = 3, .ops = {"add"}});
  EXPECT_EQ(json["queries"], "rows.csv");
  EXPECT_EQ(json["rows"], 3);
  EXPECT_EQ(json["ops"], OrderedJson::array({"add"}));
}

}  // namespace kernel_answers_test
}  // namespace perfmodel
