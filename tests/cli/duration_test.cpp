#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "program.hpp"

namespace perfmodel::test_support {
namespace duration_test {

using Json = nlohmann::json;
using ::testing::HasSubstr;

TEST(DurationCli, RowsOfEveryGpuAndWorld) {
  const auto outcome = run({"duration", "resnet18", "--gpus", "t4,a100-sxm-40gb", "--worlds", "1,8",
                            "--samples", "1e6", "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const Json json = Json::parse(outcome.out);
  EXPECT_EQ(json["schema"], "perfmodel-duration");
  ASSERT_EQ(json["rows"].size(), 4U);
  const Json& row = json["rows"][3];
  EXPECT_EQ(row["gpu"], "a100-sxm-40gb");
  EXPECT_EQ(row["world"], 8);
  const Json& hours = row["duration_s"];
  EXPECT_NEAR(hours["p50"].get<double>(),
              row["steps"].get<double>() * row["step_us"].get<double>() / 1e6, 1e-2);
  EXPECT_LT(hours["p5"], hours["p50"]);
  EXPECT_LT(hours["p50"], hours["p95"]);
}

TEST(DurationCli, TextHasAColumnForTheLengthIfOneIsAskedFor) {
  const auto without = run({"duration", "resnet18", "--gpus", "t4"});
  ASSERT_EQ(without.status, 0) << without.err;
  EXPECT_THAT(without.out, HasSubstr("samples/s"));
  EXPECT_THAT(without.out, ::testing::Not(HasSubstr("hours")));
  EXPECT_THAT(run({"duration", "resnet18", "--gpus", "t4", "--samples", "1e6"}).out,
              HasSubstr("hours"));
}

TEST(DurationCli, BadQuestions) {
  EXPECT_EQ(run({"duration", "gpt2", "--gpus", "t4", "--tokens", "1e9"}).status, 2);
  EXPECT_EQ(run({"duration", "gpt2", "--gpus", "t4", "--worlds", "0"}).status, 2);
  const auto unknown = run({"duration", "resnet18", "--gpus", "t44"});
  EXPECT_EQ(unknown.status, 1);
  EXPECT_THAT(unknown.err, HasSubstr("t44"));
}

}  // namespace duration_test
}  // namespace perfmodel::test_support
