// `perfpredict memory`: its document, the largest batch, ways to fit, and what is refused.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <sstream>
#include <string>

#include "program.hpp"

namespace perfmodel::test_support {
namespace memory_test {

using ::testing::HasSubstr;
using ::testing::Not;

const std::string& two_layers_of_gpt2() {
  static const std::string file =
      built("memory_gpt.json",
            {"gpt", "--layers", "2", "--batch", "4", "--sequence", "128", "--optimizer", "adamw"});
  return file;
}

Json memory_of(const Words& words) {
  return json_of(with({"memory", two_layers_of_gpt2()}, words));
}

TEST(MemoryCommand, TheDocumentAddsUp) {
  const Json json = memory_of({"--gpu", "t4", "--max-batch"});
  EXPECT_EQ(json["schema"], "perfmodel-memory");
  double sum = 0;
  for (const char* purpose : {"weights", "gradients", "optimizer", "activations", "temporaries",
                              "workspace", "communication", "reserve"}) {
    ASSERT_TRUE(json["by_purpose"].contains(purpose)) << purpose;
    sum += json["by_purpose"][purpose].get<double>();
  }
  EXPECT_NEAR(sum, json["needed_bytes"].get<double>(), 8);
  EXPECT_LE(json["low_bytes"], json["needed_bytes"]);
  EXPECT_GE(json["high_bytes"], json["needed_bytes"]);
  EXPECT_GE(json["peak_reserved_bytes"], json["peak_allocated_bytes"]);
  EXPECT_EQ(json["fits"], true);
  EXPECT_GT(json["activation_bytes"], 0);
  EXPECT_GT(json["bytes_per_sample"], 0);
  EXPECT_EQ(json["largest"].size(), 10U);
  EXPECT_TRUE(json["warnings"].empty());
  // The largest batch fits, one sample more does not.
  const int most = json["max_batch"];
  EXPECT_EQ(memory_of({"--gpu", "t4", "--batch", std::to_string(most)})["fits"], true);
  EXPECT_EQ(memory_of({"--gpu", "t4", "--batch", std::to_string(most + 1)})["fits"], false);
}

TEST(MemoryCommand, WhatDoesNotFitGetsWaysThatDo) {
  const Json json = memory_of({"--gpu", "t4", "--batch", "160"});
  EXPECT_EQ(json["fits"], false);
  EXPECT_LT(json["headroom_bytes"], 0);
  ASSERT_FALSE(json["ways"].empty());
  const Outcome text = run({"memory", two_layers_of_gpt2(), "--gpu", "t4", "--batch", "160"});
  EXPECT_THAT(text.out, HasSubstr("does not fit by "));
  EXPECT_THAT(text.out, HasSubstr("ways to fit"));
  EXPECT_THAT(text.out, Not(HasSubstr("bf16")));  // a T4 has fp16 alone
}

TEST(MemoryCommand, TensorsWithoutStoragesAreNamedAndGiveARange) {
  Json graph;
  std::ifstream(two_layers_of_gpt2()) >> graph;
  double most = 0;
  for (Json& node : graph["nodes"]) {
    if (node["name"] != "aten::addmm") continue;
    for (Json& value : node["outputs"]["values"]) {
      if (!value.is_array() || value.size() != 6) continue;
      value[1] = 0;
      most += value[3].get<double>() * value[4].get<double>();
    }
  }
  ASSERT_GT(most, 0);
  const std::string file = scratch_file("without_storages.json");
  std::ofstream(file) << graph;
  const Json json = Json::parse(run({"memory", file, "--json"}).out);
  ASSERT_EQ(json["warnings"].size(), 1U);
  EXPECT_THAT(json["warnings"][0].get<std::string>(),
              HasSubstr("tensors of aten::addmm have no storage or no size in the graph"));
  EXPECT_GE(json["high_bytes"].get<double>() - json["needed_bytes"].get<double>(), most);
}

// Adam in fp32: 16 bytes per parameter; what is divided by eight goes.
TEST(MemoryCommand, RanksDivideWhatTheirStageSays) {
  const auto static_bytes = [](const Words& flags) {
    const Json purposes = memory_of(flags)["own_peaks"];
    return std::array{purposes["weights"].get<double>(), purposes["gradients"].get<double>(),
                      purposes["optimizer"].get<double>()};
  };
  const auto own = static_bytes({});
  for (int stage = 0; stage <= 3; ++stage) {
    const auto of_rank = static_bytes({"--world", "8", "--zero", std::to_string(stage)});
    for (int what = 0; what < 3; ++what) {
      const double share = stage >= 3 - what ? 8 : 1;
      EXPECT_NEAR(of_rank[what], own[what] / share, 1e5) << stage << " " << what;
    }
  }
  const Json fsdp = memory_of({"--world", "8", "--strategy", "fsdp"});
  EXPECT_EQ(fsdp["zero"], 3);
  EXPECT_GT(fsdp["by_purpose"]["communication"], 0);
  const Json ddp = memory_of({"--world", "8", "--strategy", "ddp"});
  EXPECT_EQ(ddp["zero"], 0);
  EXPECT_EQ(ddp["world"], 8);
  EXPECT_GT(ddp["by_purpose"]["communication"], 0);
  // NCCL's buffers are in the range alone.
  const Json one = memory_of({"--gpu", "t4"}), eight = memory_of({"--gpu", "t4", "--world", "8"});
  EXPECT_EQ(one["needed_bytes"], eight["needed_bytes"]);
  EXPECT_GT(eight["high_bytes"].get<double>() - one["high_bytes"].get<double>(), 1e8);
  const Outcome text = run({"memory", two_layers_of_gpt2(), "--world", "8", "--zero", "1"});
  EXPECT_THAT(text.out, HasSubstr("one of 8, that divide the optimizer state"));
}

// One more sample needs less than the allocator would keep on an endless device.
TEST(MemoryCommand, OneSampleMoreNeedsLittleMore) {
  const Json json = memory_of({"--gpu", "t4", "--max-batch"});
  const int most = json["max_batch"];
  const Json next = memory_of({"--gpu", "t4", "--batch", std::to_string(most + 1)});
  EXPECT_GT(next["needed_bytes"], next["device_bytes"]);
  EXPECT_LT(next["needed_bytes"].get<double>(), 1.05 * next["device_bytes"].get<double>());
}

TEST(MemoryCommand, TimelineIsATableAndAChart) {
  const std::string csv = scratch_file("step.csv"), svg = scratch_file("step.svg");
  const Json json = memory_of({"--gpu", "t4", "--timeline", csv});
  std::istringstream rows(read(csv));
  std::string row, head;
  std::getline(rows, head);
  EXPECT_EQ(head,
            "node,op,start_us,weights,gradients,optimizer,activations,temporaries,workspace,"
            "communication,reserve");
  double peak = 0, before = 0;
  while (std::getline(rows, row)) {
    std::istringstream cells(row);
    std::string cell;
    for (int skipped = 0; skipped < 2; ++skipped) std::getline(cells, cell, ',');
    std::getline(cells, cell, ',');
    EXPECT_GE(std::stod(cell), before);
    before = std::stod(cell);
    double sum = 0;
    for (int purpose = 0; purpose < 7; ++purpose) {  // not the reserve
      std::getline(cells, cell, ',');
      sum += std::stod(cell);
    }
    peak = std::max(peak, sum);
  }
  double purposes = 0;
  for (const auto& [purpose, bytes] : json["by_purpose"].items()) {
    if (purpose != "reserve") purposes += bytes.get<double>();
  }
  EXPECT_NEAR(peak, purposes, 8);
  memory_of({"--gpu", "t4", "--timeline", svg});
  const std::string chart = read(svg);
  for (const char* part : {"<polygon", "weights, all the step", "activations", "gradients"}) {
    EXPECT_THAT(chart, HasSubstr(part));
  }
  expect_error({"memory", two_layers_of_gpt2(), "--timeline", scratch_file("step.txt")}, 1,
               "expected a name that ends in .svg or .csv, found");
}

TEST(MemoryCommand, RefusesBadUsage) {
  const auto refusal = [](Words words) {
    words.insert(words.begin(), {"memory", two_layers_of_gpt2()});
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.status, 2);
    return outcome.err;
  };
  EXPECT_THAT(refusal({"--zero", "1"}), HasSubstr("--world"));
  EXPECT_THAT(refusal({"--world", "8", "--zero", "4"}), HasSubstr("--zero"));
  EXPECT_THAT(refusal({"--world", "8", "--zero", "1", "--strategy", "ddp"}), HasSubstr("--zero"));
  EXPECT_THAT(refusal({"--world", "0"}), HasSubstr("--world"));
  EXPECT_THAT(refusal({"--grad-dtype", "int8"}), HasSubstr("expected fp32, bf16 or fp16"));
}

TEST(MemoryCommand, RefusesWhatItCannotSay) {
  const auto refusal = [](Words words) {
    words.insert(words.begin(), {"memory", two_layers_of_gpt2()});
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.status, 1);
    EXPECT_EQ(outcome.out, "");
    return outcome.err;
  };
  EXPECT_THAT(refusal({"--max-batch"}), HasSubstr("expected --gpu with --max-batch, found none"));
  EXPECT_THAT(refusal({"--gpu", "t400"}), HasSubstr("expected the name of a known GPU"));
  EXPECT_THAT(refusal({"--in-place", "gelu"}), HasSubstr("expected aten::gelu"));
  EXPECT_THAT(refusal({"--recompute", "scoring"}), HasSubstr("recompute"));
  EXPECT_THAT(refusal({"--optimizer", "sgd/8bit"}), HasSubstr("expected Adam or AdamW, found SGD"));
  EXPECT_THAT(refusal({"--data-parallel", "2", "--grad-dtype", "bf16"}),
              HasSubstr("data-parallel and tensor-parallel come after this"));
  EXPECT_THAT(refusal({"--offload-activations"}), HasSubstr("expected more activations than"));
  EXPECT_THAT(refusal({"--batch", "64", "--offload-activations", "--recompute", "full"}),
              HasSubstr("offload-activations comes after this"));
}

}  // namespace memory_test
}  // namespace perfmodel::test_support
