// Texts of models (builders/models/*.txt): their language and their presets.

#include <gtest/gtest.h>

#include "builders/models/module_run.hpp"
#include "perfmodel/graph/build_model.hpp"
#include "perfmodel/graph/build_transformers.hpp"

namespace perfmodel {
namespace {

Item value_of(std::string_view function, std::vector<Item> given = {}) {
  return ModuleRun({}, {}).call(function, std::move(given));
}

std::int64_t whole(const Item& item) { return *item.get<std::int64_t>(); }

// Functions are read when they are first asked for: a mistake in any of them is found here.
TEST(ModuleText, EveryFunctionCanBeRead) {
  const Definitions& texts = module_definitions();
  EXPECT_GT(texts.names.size(), 200);
  for (const std::string_view name : texts.names) {
    EXPECT_FALSE(texts.find(name)->body.parts.empty()) << name;
  }
}

TEST(ModuleText, LoopsListsAndSumsFollowPython) {
  // Two convolutions and a pooling per stage; channels double up to 512.
  const Item features = value_of("vgg.stages", {Item(Shape{2, 1})});
  ASSERT_EQ(features.list().size(), 5);
  EXPECT_EQ(whole(features.list()[0].list()[0]), 64);
  EXPECT_EQ(whole(features.list()[2].list()[0]), 0);
  EXPECT_EQ(whole(features.list()[3].list()[0]), 128);
}

TEST(ModuleText, ParametersHaveDefaultsAndRecordsMembers) {
  const Item padded = value_of("filter", {std::int64_t{8}, std::int64_t{5}, std::int64_t{3}});
  EXPECT_EQ(whole(padded.record()->at("padding").list()[0]), 2);
  const Item cut = value_of(
      "filter", {std::int64_t{8}, std::int64_t{5}, std::int64_t{3}, std::int64_t{2}, false});
  EXPECT_EQ(whole(cut.record()->at("padding").list()[0]), 0);
  EXPECT_EQ(whole(cut.record()->at("stride").list()[1]), 2);
}

TEST(ModuleText, ChoicesCompareWords) {
  EXPECT_EQ(whole(value_of("gate_count", {std::string("lstm")})), 4);
  EXPECT_EQ(whole(value_of("gate_count", {std::string("gru")})), 3);
}

TEST(ModuleText, RefusesWithTheValuesOfItsMessage) {
  ModuleRun run({{"positions", std::int64_t{512}}}, {});
  try {
    run.call("check_positions", {std::int64_t{513}});
    FAIL() << "nothing was refused";
  } catch (const Refusal& refusal) {
    EXPECT_EQ(refusal.message, "sequence: expected at most the 512 positions, found 513");
  }
}

TEST(ModuleText, OpsAreWrittenWithTheirShapes) {
  ModuleRun run({}, {});
  const TensorRef x = run.step().graph().new_tensor(DType::kFloat32, {2, 6, 8});
  const TensorRef heads = *run.call("split_heads", {x, std::int64_t{4}, true}).get<TensorRef>();
  EXPECT_EQ(run.step().graph().shape(heads), (Shape{2, 4, 6, 2}));
}

TEST(ModuleText, AListThatGrowsLeavesItsCopiesAlone) {
  Item list(Shape{1});
  Item copy = list;
  EXPECT_FALSE(list.append(Shape{2}));
  EXPECT_EQ(copy.list().size(), 1);
  copy = {};
  EXPECT_TRUE(list.append(Shape{2}));
  EXPECT_EQ(list.list().size(), 2);
}

TEST(ModuleText, ALoopBeyondTheLimitOfNodesIsRefused) {
  ResnetConfig config = resnet_preset("resnet18").value();
  config.blocks[0] = std::int64_t{1} << 40;
  const auto made = build_resnet(config);
  ASSERT_FALSE(made.has_value());
  EXPECT_EQ(made.error().code, ErrorCode::kImpossible);
  EXPECT_NE(made.error().message.find("expected a graph of at most"), std::string::npos);
}

TEST(ModuleText, APresetIsOneRow) {
  const BertConfig large = bert_preset("bert-large").value();
  EXPECT_EQ(large.layers, 24);
  EXPECT_EQ(large.feed_forward, 4096);
  EXPECT_EQ(large.name, "bert-large");
  EXPECT_EQ(module_definitions().with_prefix("mlp.preset."),
            (std::vector<std::string_view>{"linear", "mnist"}));
  EXPECT_EQ(mlp_preset("nonsense").error().message,
            "expected an MLP preset (linear, mnist), found \"nonsense\"");
}

}  // namespace
}  // namespace perfmodel
