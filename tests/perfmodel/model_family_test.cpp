#include "builders/model_family.hpp"

#include <gtest/gtest.h>

#include <set>

namespace perfmodel {
namespace {

template <class Config>
const ConfigField<Config>& field_named(std::span<const ConfigField<Config>> fields,
                                       std::string_view name) {
  for (const ConfigField<Config>& field : fields) {
    if (field.name == name) return field;
  }
  ADD_FAILURE() << "no field " << name;
  return fields.front();
}

TEST(ModelFamilies, PresetsBelongToOneFamily) {
  EXPECT_EQ(family_of_preset("gpt2"), "gpt");
  EXPECT_EQ(family_of_preset("t5-small"), "t5");
  EXPECT_EQ(family_of_preset("v100-8"), "torchrec");
  EXPECT_EQ(family_of_preset("torch-encoder"), "");
}

template <class Config>
void expect_fields_that_differ(const ModelFamily<Config>& family) {
  std::set<std::string_view> names;
  for (const auto& field : family.fields) {
    EXPECT_TRUE(names.insert(field.name).second) << family.name << " " << field.name;
    EXPECT_FALSE(field.help.empty()) << family.name << " " << field.name;
  }
  if (!family.first_preset.empty()) {
    EXPECT_TRUE(family.preset(family.first_preset).has_value()) << family.name;
  }
}

TEST(ModelFamilies, FieldsDifferAndFirstPresetsAreThere) {
  std::apply([](const auto&... family) { (expect_fields_that_differ(family), ...); },
             builder_families());
}

TEST(ModelFamilies, ANameChoosesAMember) {
  const auto& field = field_named<BertConfig>(bert_family().fields, "head");
  const auto& choice = std::get<ConfigChoice<BertConfig>>(field.member);
  EXPECT_EQ(choice.names.front(), "causal-lm");
  BertConfig config;
  choice.choose(config, "pooler");
  EXPECT_EQ(config.head, BertConfig::Head::kPooler);
}

TEST(ModelFamilies, AFieldOfAPart) {
  const auto& field = field_named<LlamaConfig>(llama_family().fields, "top_k");
  LlamaConfig config;
  std::get<std::int64_t& (*)(LlamaConfig&)>(field.member)(config) = 4;
  EXPECT_EQ(config.experts.top_k, 4);
}

TEST(ModelFamilies, ACrossNetworkHasThreeLayersUnlessThePresetHasSome) {
  const auto& field = field_named<DlrmConfig>(dlrm_family().fields, "interaction");
  const auto& choice = std::get<ConfigChoice<DlrmConfig>>(field.member);
  DlrmConfig config;
  choice.choose(config, "dcnv2");
  EXPECT_EQ(config.cross.layers, 3);
  EXPECT_FALSE(config.interaction_dot);
  choice.choose(config, "dot");
  EXPECT_EQ(config.cross.layers, 0);
  EXPECT_TRUE(config.interaction_dot);
}

TEST(ModelFamilies, FactsOfAnMlp) {
  const ModelFacts facts = mlp_family().facts({.widths = {8, 4, 2}, .batch = 16});
  ASSERT_EQ(facts.lines.size(), 2U);
  EXPECT_EQ(facts.lines[1].second, "8-4-2");
  EXPECT_EQ(facts.keys.dump(), R"({"batch":16,"layers":2})");
}

TEST(ModelFamilies, FactsOfExperts) {
  GptConfig config;
  config.feed_forward = 64;
  config.experts.experts = 8;
  const ModelFacts facts = gpt_family().facts(config);
  EXPECT_EQ(facts.lines.back().second, "8 of width 64, 2 per token");
  EXPECT_EQ(facts.keys["expert_hidden"], 64);
  EXPECT_EQ(facts.keys["activation"], "gelu_new");
}

}  // namespace
}  // namespace perfmodel
