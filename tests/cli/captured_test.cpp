// Commands that are given a graph as it was captured from its Python code.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "samples.hpp"

namespace perfmodel::test_support {
namespace captured_test {

using testing::HasSubstr;
using testing::StartsWith;

// Three tables with sparse gradients, one of whose facts no capture knows.
std::string captured(const std::string& name = "dlrm_sparse_adam") {
  return (fs::path(PERFMODEL_SOURCE_DIR) / "tests/graph/captured" / (name + ".json.gz")).string();
}

std::string retargeted(const std::string& vendor, const std::string& name = "dlrm_sparse_adam") {
  const std::string file = scratch_file(name + "_" + vendor + ".json.gz");
  output_of({"rewrite", captured(name), "--retarget", vendor, "-o", file});
  return file;
}

constexpr const char* kAssumption = "captured: 32 lookups in a table of 50 rows are taken for";

TEST(CapturedGraph, EveryCommandTakesItAndSaysFirstWhatItAssumed) {
  const std::vector<Words> commands = {
      {"predict", captured(), "--gpu", "a100-sxm-80gb"},
      {"predict", captured(), "--gpu", "mi300x", "--batch", "16"},
      {"memory", captured()},
      {"memory", captured(), "--gpu", "t4"},
      {"whatif", captured(), "--gpu", "t4", "--batch", "8,16"},
      {"optimize", captured(), "--gpu", "t4", "--allow", "optimizer"},
      {"analyze", captured(), "--gpu", "t4"},
  };
  for (const Words& command : commands) {
    SCOPED_TRACE(shown(command));
    const Json document = json_of(command);
    ASSERT_GE(document["warnings"].size(), 2U);
    EXPECT_THAT(document["warnings"][0].get<std::string>(), StartsWith(kAssumption));
    EXPECT_TRUE(warns(document, "--retarget"));
  }
  const std::string page = scratch_file("captured.html");
  output_of({"report", captured(), "--gpu", "t4", "-o", page});
  EXPECT_THAT(read(page), HasSubstr("32 lookups in a table of 50 rows"));
}

TEST(CapturedGraph, IsPredictedAsTheFileThatRetargetWrites) {
  for (const auto& [gpu, vendor] : {std::pair{"h100-sxm-80gb", "nvidia"}, {"mi300x", "amd"}}) {
    for (const Words& more : {Words{}, Words{"--batch", "4"}}) {
      SCOPED_TRACE(gpu);
      const Json asked = json_of(with({"predict", captured("resnet"), "--gpu", gpu}, more));
      const Json file =
          json_of(with({"predict", retargeted(vendor, "resnet"), "--gpu", gpu}, more));
      EXPECT_EQ(asked["e2e_us"], file["e2e_us"]);
      EXPECT_EQ(asked["gpu_active_us"], file["gpu_active_us"]);
    }
  }
}

TEST(CapturedGraph, SaysStillWhatItAssumedOnceItIsRetargeted) {
  const Json document = json_of({"predict", retargeted("nvidia"), "--gpu", "t4"});
  EXPECT_THAT(document["warnings"][0].get<std::string>(), StartsWith(kAssumption));
}

TEST(CapturedGraph, RewriteIsToldTheVendorFirst) {
  const std::string file = scratch_file("captured_small.json");
  expect_error(
      {"rewrite", captured("gpt"), "--precision", "bf16", "-o", file}, 1,
      "gpt.json.gz: expected --retarget nvidia (or amd) as the first rewrite of a captured "
      "graph, found --precision bf16");
  output_of({"rewrite", captured("gpt"), "--retarget", "amd", "--precision", "bf16", "-o", file});
  EXPECT_GT(json_of({"predict", file, "--gpu", "mi300x"})["e2e_us"].get<double>(), 0);
}

TEST(CapturedGraph, AFlagMayRetargetItInAnotherWay) {
  const Words words = {"predict",    captured("gpt"), "--gpu",      "t4",
                       "--retarget", "nvidia",        "--sequence", "8"};
  EXPECT_EQ(json_of(words)["rewrites"], (Json{"--retarget nvidia", "--sequence 8"}));
}

TEST(CapturedGraph, GpusOfBothVendorsAreAskedTogether) {
  const Json document =
      json_of({"whatif", captured("gpt"), "--gpus", "t4,mi300x", "--batch", "same"});
  EXPECT_TRUE(warns(document, "calls the libraries of nvidia on the GPUs of the other vendor too"));
  expect_error({"predict", captured("gpt"), "--gpu", "t4,mi300x", "--world", "2"}, 1,
               "GPUs of one vendor for a captured graph");
}

TEST(CapturedGraph, ASweepRetargetsItForEveryVendor) {
  const std::string spec =
      written("captured_sweep.json",
              R"({"schema": "perfmodel-sweep", "version": 1, "graphs": [{"file": ")" +
                  captured("resnet") + R"("}], "gpus": ["t4", "mi300x", "a10"]})");
  const std::string rows = scratch_file("captured_sweep.csv");
  output_of({"sweep", spec, "-o", rows});
  const std::string table = read(rows);
  for (const auto& [gpu, vendor] : {std::pair{"t4", "nvidia"}, {"mi300x", "amd"}}) {
    const Json file = json_of({"predict", retargeted(vendor, "resnet"), "--gpu", gpu});
    const double us = file["e2e_us"].get<double>();
    EXPECT_THAT(table, HasSubstr(std::to_string(static_cast<std::int64_t>(us)))) << gpu;
  }
}

}  // namespace captured_test
}  // namespace perfmodel::test_support
