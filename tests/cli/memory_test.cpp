// `perfpredict memory`: its document, the largest batch, ways to fit, and what is refused.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "program.hpp"

namespace perfmodel::test_support {
namespace memory_test {

using ::testing::HasSubstr;
using ::testing::Not;

std::string scratch_file(const char* name) { return (scratch() / name).string(); }

const std::string& two_layers_of_gpt2() {
  static const std::string file = [] {
    const std::string made = scratch_file("memory_gpt.json");
    const Outcome outcome = run({"build", "gpt", "--layers", "2", "--batch", "4", "--sequence",
                                 "128", "--optimizer", "adamw", "-o", made});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return made;
  }();
  return file;
}

Json memory_of(Words words) {
  words.insert(words.begin(), {"memory", two_layers_of_gpt2(), "--json"});
  const Outcome outcome = run(words);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  return Json::parse(outcome.out);
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
}

}  // namespace memory_test
}  // namespace perfmodel::test_support
