// Names of models and short names of GPUs in the place of files and full names.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "samples.hpp"

namespace perfmodel::test_support {
namespace named_models_test {

using ::testing::HasSubstr;

struct NamedQuestion {
  Words by_name;
  std::string family, preset;  // as `build` takes them
  const char* figure;
};

TEST(NamedModels, AnswerAsTheirFilesDo) {
  const NamedQuestion questions[] = {
      {{"predict", "gpt2", "--gpu", "h100"}, "gpt", "gpt2", "e2e_us"},
      {{"predict", "gpt2", "--gpu", "h100", "--batch", "2", "--precision", "bf16"},
       "gpt",
       "gpt2",
       "e2e_us"},
      {{"predict", "resnet18", "--gpu", "t4"}, "resnet", "resnet18", "e2e_us"},
      {{"predict", "dlrm:default", "--gpu", "v100"}, "dlrm", "default", "e2e_us"},
      {{"memory", "bert-base", "--gpu", "a10g"}, "bert", "bert-base", "needed_bytes"},
      {{"memory", "t5-small", "--gpu", "4090"}, "t5", "t5-small", "needed_bytes"},
      {{"memory", "vgg16", "--gpu", "l4"}, "vgg", "vgg16", "needed_bytes"},
  };
  for (const auto& [by_name, family, preset, figure] : questions) {
    Words by_file = by_name, recipe = {family, "--preset", preset};
    const auto batch = std::ranges::find(by_name, "--batch");
    if (batch != by_name.end()) recipe.insert(recipe.end(), batch, batch + 2);
    by_file[1] = built(family + ".json.gz", recipe);
    const Json named = json_of(by_name), read = json_of(by_file);
    ASSERT_TRUE(named[figure].is_number()) << shown(by_name);
    EXPECT_EQ(named[figure], read[figure]) << shown(by_name);
    EXPECT_TRUE(warns(named, fmt::format("`build {}` makes, batch ", fmt::join(recipe, " "))))
        << named["warnings"];
  }
}

TEST(NamedModels, DecodersOfLayoutsAndConfigurationsAreBuilt) {
  const Json named = json_of({"memory", "llama2-7b", "--gpu", "a100 80gb"});
  EXPECT_TRUE(warns(named, "llama2-7b is built with batch 1 of 4096 tokens")) << named["warnings"];
  EXPECT_TRUE(warns(named, "a100-sxm-80gb is taken, the usual one"));
  const Json next = json_of({"predict", "qwen3-next-80b-a3b", "--gpu", "h200"});
  EXPECT_TRUE(warns(next, "qwen3-next-80b-a3b is built with batch 1 of 4096 tokens"));
  EXPECT_GT(next["gpu_active_us"], 0);
  EXPECT_FALSE(warns(next, "--attention prices scores of all tokens"));
  const std::string config = written("config.json", R"({"model_type": "gpt2", "n_layer": 2,
    "n_embd": 64, "n_head": 2, "n_positions": 128, "vocab_size": 1000,
    "activation_function": "gelu_new"})");
  const Json configured = json_of({"predict", config, "--gpu", "t4"});
  EXPECT_GT(configured["e2e_us"], 0);
  EXPECT_TRUE(warns(configured, "config.json is built with batch 1 of 128 tokens"));
}

// A graph of written scores does not say which tokens a window hides.
TEST(NamedModels, WindowsAreSaidToBePricedWhole) {
  const std::string config = written("config.json", R"({"model_type": "phi3",
    "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 2, "num_key_value_heads": 2,
    "intermediate_size": 128, "vocab_size": 1000, "max_position_embeddings": 256,
    "sliding_window": 63, "tie_word_embeddings": false})");
  const Json cut =
      json_of({"predict", config, "--gpu", "h100", "--precision", "bf16", "--attention", "flash"});
  EXPECT_TRUE(warns(cut, "look back 64 tokens alone: --attention prices scores of all tokens"))
      << cut["warnings"];
}

TEST(NamedModels, UnknownWordsSayWhatIsTaken) {
  expect_error({"predict", "gpt22", "--gpu", "t4"}, 1,
               "gpt22: expected a readable file or a model that `build` or `layout` knows, found "
               "none");
  for (const char* word : {"mlperf", "default", "ddp", "mnist", "tbd", "v100-8"}) {
    expect_error({"predict", word, "--gpu", "t4"}, 1, "expected a readable file or a model");
  }
  expect_error({"predict", "gpt2", "rank1.json", "--gpu", "t4"}, 1,
               "rank1.json: expected models alone or files alone, found both");
  expect_error({"predict", "gpt22.json", "--gpu", "t4"}, 1,
               "gpt22.json: expected a readable file, found none");
  expect_error({"predict", "gpt2", "--gpu", "titan x"}, 1,
               "which fits titan-x-maxwell, titan-x-pascal");
}

}  // namespace named_models_test
}  // namespace perfmodel::test_support
