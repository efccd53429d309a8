// `perfpredict replay`: figures, jobs of several ranks, Chakra files.
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "samples.hpp"

namespace perfmodel::test_support {
namespace replay_test {

TEST(ReplayCommand, EverySampleTraceHasTheContractedKeys) {
  std::size_t checked = 0;
  for (const auto& [name, figures] : expected_samples().items()) {
    if (figures["kind"] != "kineto" || figures["iterations"].empty()) continue;
    SCOPED_TRACE(name);
    Json made = json_of({"replay", sample(name)});
    EXPECT_EQ(made["schema"], "perfmodel-replay");
    ASSERT_EQ(made["iterations"].size(), figures["iterations"].size());
    for (std::size_t i = 0; i < made["iterations"].size(); ++i) {
      Json& iteration = made["iterations"][i];
      EXPECT_EQ(iteration["name"], figures["iterations"][i]["name"]);
      EXPECT_NEAR(iteration["measured_us"], figures["iterations"][i]["wall_us"], 0.01);
      EXPECT_NEAR(iteration["replayed_us"].get<double>(),
                  iteration["measured_us"].get<double>() * (1 + iteration["error"].get<double>()),
                  0.01);
      EXPECT_TRUE(iteration["data_loading_us"].is_number());
    }
    EXPECT_TRUE(made["mean_abs_error"].is_number());
    EXPECT_TRUE(made["warnings"].is_array());
    EXPECT_FALSE(made.contains("job"));
    ASSERT_EQ(made["ranks"].size(), 1U);
    Json& rank = made["ranks"][0];
    EXPECT_EQ(rank["iterations"], made["iterations"]);
    EXPECT_EQ(rank["trace"], name);
    double path = 0;
    for (const Json& step : rank["critical_path"]) {
      for (const char* key : {"op", "term", "time_us", "count", "own_us", "slack_us"}) {
        EXPECT_TRUE(step.contains(key)) << key;
      }
      path += step["time_us"].get<double>();
    }
    EXPECT_NEAR(path, made["iterations"].back()["replayed_us"], 0.1);
    EXPECT_NEAR(sum_of(rank["critical_path_shares"], "time_us"), path, 0.1);
    ++checked;
  }
  EXPECT_GT(checked, 10U);
}

TEST(ReplayCommand, SeveralRanksAreAJob) {
  const std::string early = rank_trace(0, 1000), late = rank_trace(1, 1500);
  Json made = json_of({"replay", early, late});
  ASSERT_EQ(made["iterations"].size(), 2U);
  EXPECT_EQ(made["iterations"][1]["rank"], 1);
  EXPECT_LT(made["mean_abs_error"], 1e-5);
  EXPECT_EQ(made["collectives"]["matched"], 1);
  EXPECT_EQ(made["collectives"]["unmatched"], 0);
  EXPECT_NEAR(made["job"]["step_us"], 1716, 0.01);
  EXPECT_EQ(made["job"]["straggler"], 1);
  EXPECT_NEAR(made["job"]["straggler_saving_us"], 250, 0.01);
  EXPECT_NEAR(made["ranks"][0]["communication"]["waiting_us"], 500, 0.01);
  EXPECT_NEAR(made["ranks"][1]["communication"]["caused_us"], 500, 0.01);
  const std::string text = run({"replay", early, late}).out;
  EXPECT_NE(text.find("straggler     rank 1"), std::string::npos) << text;
  EXPECT_NE(text.find("0.500"), std::string::npos) << text;
}

TEST(ReplayCommand, WhatIfsAreCalledChangesNotErrors) {
  const std::string trace = rank_trace(0, 1000, 1);
  // Collectives do not scale; the host does: 1010 more before the kernel, 4 more after it.
  const Json same = json_of({"replay", trace, "--scale-kernels", "3"});
  EXPECT_NEAR(same["iterations"][0]["replayed_us"], 1716, 0.01);
  EXPECT_EQ(same["scale_kernels"], 3);
  const Json slow = json_of({"replay", trace, "--scale-host", "2"});
  EXPECT_NEAR(slow["iterations"][0]["replayed_us"], 1716 + 1010 + 4, 0.01);
  const std::string text = run({"replay", trace, "--scale-host", "2"}).out;
  EXPECT_NE(text.find("2.730 ms median, 1.716 ms as recorded (+59.09 %)"), std::string::npos)
      << text;
  EXPECT_NE(text.find("× 2"), std::string::npos) << text;
  EXPECT_NE(text.find("replay error  0.00 % mean"), std::string::npos) << text;
  EXPECT_NEAR(slow["iterations"][0]["unscaled_us"], 1716, 0.01);
  EXPECT_NEAR(slow["iterations"][0]["change"], 1014. / 1716, 1e-5);
  EXPECT_NEAR(slow["iterations"][0]["error"], 0, 1e-5);
  EXPECT_NE(run({"replay", trace}).out.find("replay error"), std::string::npos);
}

TEST(ReplayCommand, WindowsAndMistakes) {
  const std::string trace = sample("kineto_plain_2023.json");
  const Json all = json_of({"replay", trace});
  const Json second = json_of({"replay", trace, "--iterations", "1:2"});
  ASSERT_EQ(second["iterations"].size(), 1U);
  EXPECT_EQ(second["iterations"][0], all["iterations"][1]);
  expect_error({"replay"}, 2, "TRACE");
  expect_error({"replay", trace, "--scale-kernels", "-1"}, 2, "--scale-kernels");
  expect_error({"replay", trace, "--scale-host", "nan"}, 2, "--scale-host");
  expect_error({"replay", trace, "--iterations", "2:1"}, 2, "A:B");
  expect_error({"replay", trace, "--speed", "2"}, 2, "--speed");
  expect_error({"replay", trace, "--iterations", "0:9"}, 1, "expected iterations within 0:2");
  expect_error({"replay", sample("et_plain_2023.json")}, 1, "found an execution graph");
  expect_error({"replay", "no-such.json"}, 1, "no-such.json: expected a readable file");
  const std::string rank = rank_trace(0, 1000);
  expect_error({"replay", rank, rank}, 1, "found this one a second time");
  expect_error({"replay", rank, rank_trace(1, 1500, 4)}, 1, "a world of 4 ranks");
  const std::string whole = read(rank), broken = scratch_file("replay_broken.json");
  std::ofstream(broken) << whole.substr(0, whole.rfind("cudaStreamSynchronize"));
  expect_error({"replay", broken}, 1, "expected");
  EXPECT_TRUE(warns(json_of({"replay", broken, "--salvage"}), "4 complete events were kept"));
}

TEST(ReplayCommand, DeviceBoundStepsComeBackFromChakraFilesAsPredicted) {
  const std::string graph = scratch_file("gpt.json");
  run({"build", "gpt", "--layers", "2", "--hidden", "256", "--heads", "4", "--feed-forward", "1024",
       "--vocabulary", "5000", "--batch", "16", "--sequence", "256", "-o", graph});
  for (const std::string strategy : {"ddp", "fsdp"}) {
    SCOPED_TRACE(strategy);
    const std::string prefix = scratch_file("job_" + strategy);
    const Json p = json_of({"predict", graph, "--gpu", "p4", "--world", "4", "--strategy", strategy,
                            "--topology", "pcie", "--chakra", prefix});
    EXPECT_GT(p["gpu_active_us"], 0.95 * p["e2e_us"].get<double>());
    Words words = {"replay"};
    for (int rank = 0; rank < 4; ++rank) {
      words.push_back(prefix + "." + std::to_string(rank) + ".et");
    }
    EXPECT_FALSE(fs::exists(prefix + ".4.et"));
    const Json again = json_of(words);
    ASSERT_EQ(again["iterations"].size(), 4U);
    for (const Json& rank : again["iterations"]) {
      EXPECT_NEAR(rank["replayed_us"].get<double>() / p["e2e_us"].get<double>(), 1, 0.01);
    }
  }
}

TEST(ReplayCommand, ChakraFilesNeedTheSizesOfCollectives) {
  const std::string trace = rank_trace(0, 1000, 1);
  expect_error({"replay", trace, "--chakra", scratch_file("sizes")}, 1,
               "expected the sizes of all collectives for a Chakra trace, found none of 1");
  EXPECT_FALSE(fs::exists(scratch() / "sizes.0.et"));
  expect_error({"replay", trace, "--graph", sample("et_plain_2023.json")}, 1,
               "expected the collectives of et_plain_2023.json");
}

}  // namespace replay_test
}  // namespace perfmodel::test_support
