#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "program.hpp"

namespace perfmodel::test_support {
namespace whatif_test {

using ::testing::HasSubstr;
using ::testing::Not;

// A DLRM as the command builds it.
std::string dlrm() {
  static const std::string file = built("dlrm.json", {"dlrm", "--preset", "ddp", "--batch", "512"});
  return file;
}

TEST(WhatIfCommand, CrossesRewritesAndGpus) {
  const auto outcome = run({"whatif", dlrm(), "--gpus", "a100-sxm-40gb,v100-sxm2-16gb", "--batch",
                            "1024,2048", "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const Json json = Json::parse(outcome.out);
  EXPECT_EQ(json["schema"], "perfmodel-whatif");
  ASSERT_EQ(json["rows"].size(), 6U);
  const Json& baseline = json["rows"][0];
  EXPECT_EQ(baseline["variant"], "as it is");
  EXPECT_EQ(baseline["batch"], 512);
  EXPECT_EQ(baseline["speed_up"], 1.0);
  EXPECT_TRUE(baseline["rewrites"]["batch"].is_null());
  EXPECT_EQ(json["rows"][1]["gpu"], "v100-sxm2-16gb");
  const Json& last = json["rows"][5];
  EXPECT_EQ(last["variant"], "batch 2048");
  EXPECT_EQ(last["rewrites"]["batch"], "2048");
  EXPECT_EQ(last["batch"], 2048);
  // Throughput over the baseline's, whatever the batch.
  const double by_hand =
      last["samples_per_s"].get<double>() / baseline["samples_per_s"].get<double>();
  EXPECT_NEAR(last["speed_up"].get<double>(), by_hand, 1e-3 * by_hand);
}

// samples/s means the whole job: with 8 GPUs eight times the batch per step.
TEST(WhatIfCommand, SamplesAreThoseOfTheWholeJob) {
  const Words words = {"whatif", dlrm(), "--gpu", "a100-sxm-40gb", "--data-parallel", "8"};
  Words with_json = words;
  with_json.emplace_back("--json");
  const Json rows = Json::parse(run(with_json).out)["rows"];
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0]["gpus"], 1);
  EXPECT_EQ(rows[0]["samples_per_s"], rows[0]["samples_per_s_per_gpu"]);
  EXPECT_EQ(rows[1]["gpus"], 8);
  EXPECT_EQ(rows[1]["batch"], 512);
  const double per_gpu = 512e6 / rows[1]["e2e_us"].get<double>();
  EXPECT_NEAR(rows[1]["samples_per_s_per_gpu"].get<double>(), per_gpu, 1e-3 * per_gpu);
  EXPECT_NEAR(rows[1]["samples_per_s"].get<double>(), 8 * per_gpu, 8e-3 * per_gpu);
  EXPECT_NEAR(rows[1]["speed_up"].get<double>(),
              rows[1]["samples_per_s"].get<double>() / rows[0]["samples_per_s"].get<double>(),
              1e-2);
  EXPECT_THAT(run(words).out, HasSubstr("samples/s  per GPU"));
  // A column of its own only where it differs.
  EXPECT_THAT(run({"whatif", dlrm(), "--gpu", "t4"}).out, Not(HasSubstr("per GPU")));
}

TEST(WhatIfCommand, StepsThatCannotFitAreMarked) {
  const std::string large = scratch_file("large_dlrm.json");
  ASSERT_EQ(run({"build", "dlrm", "--preset", "mlperf", "-o", large}).status, 0);
  const Outcome text = run({"whatif", large, "--gpus", "t4,a100-sxm-40gb"});
  EXPECT_THAT(text.out, HasSubstr("% [1]\n"));
  EXPECT_THAT(text.out, HasSubstr("[2] the step does not fit into a100-sxm-40gb by "));
  const Json rows = Json::parse(run({"whatif", large, "--gpu", "t4", "--json"}).out)["rows"];
  EXPECT_EQ(rows[0]["memory"]["static_fits"], false);
  EXPECT_EQ(rows[0]["memory"]["fits"], false);
  EXPECT_GT(rows[0]["memory"]["by_purpose"]["tables"].get<double>(), 90e9);
  ASSERT_EQ(rows[0]["warnings"].size(), 1U);
  const Json small = Json::parse(run({"whatif", dlrm(), "--gpu", "t4", "--json"}).out)["rows"];
  EXPECT_EQ(small[0]["memory"]["fits"], true);
  EXPECT_EQ(small[0]["warnings"].size(), 0U);
}

TEST(WhatIfCommand, SaysWhereHostsDiffer) {
  const Words one_host = {"whatif", dlrm(), "--gpus", "a100-sxm-40gb,v100-sxm2-32gb"};
  EXPECT_THAT(run(one_host).out, Not(HasSubstr("different machines")));
  Words measured = one_host;
  measured.insert(measured.end(), {"--overheads", "measured"});
  EXPECT_THAT(run(measured).out, HasSubstr("overheads of different machines (a100-sxm-40gb.json, "
                                           "v100-sxm2-32gb.json)"));
}

TEST(WhatIfCommand, TheBaselineIsWhatPredictSays) {
  const auto asked = run({"whatif", dlrm(), "--gpu", "a100-sxm-40gb", "--json"});
  const auto predicted = run({"predict", dlrm(), "--gpu", "a100-sxm-40gb", "--json"});
  ASSERT_EQ(asked.status, 0) << asked.err;
  EXPECT_EQ(Json::parse(asked.out)["rows"][0]["e2e_us"], Json::parse(predicted.out)["e2e_us"]);
}

TEST(WhatIfCommand, SameLeavesAPropertyAlone) {
  const auto outcome =
      run({"whatif", dlrm(), "--gpu", "a100-sxm-40gb", "--batch", "same,64", "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const Json json = Json::parse(outcome.out);
  ASSERT_EQ(json["rows"].size(), 2U);  // the graph as it is appears once
  EXPECT_EQ(json["rows"][1]["variant"], "batch 64");
}

TEST(WhatIfCommand, WritesCsvAndPlots) {
  const std::string csv = scratch_file("rows.csv"), svg = scratch_file("plot.svg");
  const auto outcome = run({"whatif", dlrm(), "--gpus", "a100-sxm-40gb,t4", "--batch",
                            "1024,2048,4096", "--csv", csv, "--plot", svg});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("speed-up"));
  std::istringstream lines(read(csv));
  std::string line;
  std::getline(lines, line);
  EXPECT_EQ(
      line,
      "variant,batch,gpu,e2e_us,samples_per_s,speed_up,gpu_active_us,cpu_us,bound,bound_share,"
      "kernels,samples_per_s_per_gpu,static_bytes,device_bytes,e2e_low_us,e2e_high_us,"
      "energy_j,needed_bytes,usd_per_million,kwh_per_million,error");
  int rows = 0;
  while (std::getline(lines, line)) ++rows;
  EXPECT_EQ(rows, 8);
  const std::string plot = read(svg);
  EXPECT_THAT(plot, HasSubstr("Throughput over batch"));
  EXPECT_THAT(plot, HasSubstr("<polyline"));
  const auto bars = run({"whatif", dlrm(), "--gpus", "a100-sxm-40gb,t4", "--plot", svg});
  ASSERT_EQ(bars.status, 0) << bars.err;
  EXPECT_THAT(read(svg), HasSubstr("Throughput of each variant"));
}

TEST(WhatIfCommand, RefusalsAreNumberedOnceBelowTheTable) {
  const auto outcome = run({"whatif", dlrm(), "--gpus", "a100-sxm-40gb,t4", "--batch", "same,1024",
                            "--sequence", "same,7", "--retarget", "same,nvidia"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("refused [1]"));
  EXPECT_THAT(outcome.out, HasSubstr("refused [2]"));
  EXPECT_THAT(outcome.out, Not(HasSubstr("refused [3]")));
  EXPECT_THAT(outcome.out, HasSubstr("\n  [1] --"));
  EXPECT_THAT(outcome.out, HasSubstr("\n  [2] --"));
  EXPECT_THAT(outcome.out, Not(HasSubstr("\n  [3] --")));
  // A column per rewrite.
  EXPECT_THAT(outcome.out, HasSubstr("sequence  retarget  GPU"));
}

TEST(WhatIfCommand, RanksGpusByMoney) {
  const std::string prices = scratch_file("prices.json");
  std::ofstream(prices) << R"({"a100-sxm-40gb": 9.5, "t4": 0.01})";
  const Words words = {"whatif", dlrm(), "--gpus", "a100-sxm-40gb,t4", "--usd-per-gpu-hour"};
  Words asked = words;
  asked.insert(asked.end(), {prices, "--json"});
  const Json json = Json::parse(run(asked).out);
  EXPECT_EQ(json["cheapest_first"], Json({1, 0}));
  const Json& row = json["rows"][0];
  // Steps of 512 samples, a million of them, hours of $ 9.5.
  const double dollars = 1e6 / 512 * row["e2e_us"].get<double>() * 1e-6 / 3600 * 9.5;
  EXPECT_NEAR(row["usd_per_million"].get<double>(), dollars, 1e-3 * dollars);
  const double kwh = 1e6 / 512 * row["energy_j"].get<double>() / 3.6e6;
  EXPECT_NEAR(row["kwh_per_million"].get<double>(), kwh, 1e-3 * kwh);
  asked.pop_back();
  const std::string text = run(asked).out;
  EXPECT_LT(text.find("  t4 "), text.find("  a100-sxm-40gb "));
  EXPECT_THAT(text, HasSubstr("$ per M"));
  // One price for all leaves the faster one first.
  asked.back() = "2";
  EXPECT_LT(run(asked).out.find("  a100-sxm-40gb "), run(asked).out.find("  t4 "));
  asked.back() = "0";
  expect_error(asked, 1, "expected a price above 0, found 0");
  std::ofstream(prices) << R"({"t4": 0.01})";
  asked.back() = prices;
  expect_error(asked, 1, "a100-sxm-40gb");
}

TEST(WhatIfCommand, MistakesAreOneLine) {
  expect_error({"whatif", dlrm()}, 2, "--gpu");
  expect_error({"whatif", dlrm(), "--gpu", "a100-sxm-40", "--batch", "8"}, 1, "a100-sxm-40gb");
  expect_error({"whatif", dlrm(), "--gpu", "t4", "--batch", "none"}, 2, "--batch");
  expect_error({"whatif", dlrm(), "--gpu", "t4", "--batch", "8", "--batch", "16"}, 2,
               "found twice");
  expect_error({"whatif", "nowhere.json", "--gpu", "t4"}, 1, "nowhere.json");
  // Every variant refused: nothing is written.
  const std::string csv = scratch_file("refused_variants.csv");
  expect_error({"whatif", dlrm(), "--gpu", "t4", "--sequence", "7", "--csv", csv}, 1, "sequence");
  EXPECT_FALSE(fs::exists(csv));
}

}  // namespace whatif_test
}  // namespace perfmodel::test_support
