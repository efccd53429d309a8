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
  EXPECT_EQ(whole(padded.member("padding")->list()[0]), 2);
  const Item cut = value_of(
      "filter", {std::int64_t{8}, std::int64_t{5}, std::int64_t{3}, std::int64_t{2}, false});
  EXPECT_EQ(whole(cut.member("padding")->list()[0]), 0);
  EXPECT_EQ(whole(cut.member("stride")->list()[1]), 2);
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

TEST(ModuleText, NamesThatAllFunctionsSeeHaveAValueOrNone) {
  ModuleRun run({{"positions", std::int64_t{512}}}, {});
  EXPECT_EQ(whole(*run.get("positions")), 512);
  EXPECT_EQ(run.get("no_such_name"), nullptr);
  const Item* before = run.get("positions");
  for (int i = 0; i < 100; ++i)
    run.set(std::string_view("name_" + std::to_string(i)), Item(i > 50));
  EXPECT_EQ(run.get("positions"), before);  // texts hold on to values while others come
  EXPECT_TRUE(*run.get("name_99")->get<bool>());
  run.set("positions", std::int64_t{1});
  EXPECT_EQ(whole(*run.get("positions")), 1);
}

TEST(ModuleText, MembersAreFoundByName) {
  const Item record(Item::Record{{"rows", std::int64_t{5}}, {"columns", std::int64_t{7}}});
  EXPECT_EQ(whole(*record.member("columns")), 7);
  EXPECT_EQ(record.member("rank"), nullptr);
  EXPECT_EQ(Item(std::int64_t{5}).member("rows"), nullptr);
}

TEST(ModuleText, ACallNamesATextAFunctionOrAnOp) {
  EXPECT_NE(callee_of("split_heads").text, nullptr);
  EXPECT_NE(callee_of("range").written, nullptr);
  const Callee op = callee_of("aten::relu");
  EXPECT_TRUE(op.text == nullptr && op.written == nullptr);
}

// "[... for name in list]" has a variable of its own; other variables come one after the other.
TEST(ModuleText, VariablesHaveSlots) {
  const Definition& owners = *module_definitions().find("torchrec.by_owner");
  EXPECT_TRUE(owners.has_variables);
  EXPECT_EQ(owners.num_slots, 6);  // pieces, owners, all, at, owner, mine
  const Definition& ranks = *module_definitions().find("torchrec.by_column_and_rank");
  EXPECT_EQ(ranks.num_slots, 3);  // shards, i, shard
  const Definition& parameters = *module_definitions().find("torchrec.parameters");
  EXPECT_FALSE(parameters.has_variables);
  EXPECT_EQ(parameters.num_slots, 2);  // table and group in brackets; all functions see the rest
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
