// Known decoders and config.json files.
#include "perfmodel/detail/decoder_models.hpp"
#include "../scratch.hpp"
#include "builders/configured_decoder.hpp"
#include "core/decoder_table.hpp"
#include "layout/layer_kinds.hpp"
#include "perfmodel/graph/build_transformers.hpp"
#include "perfmodel/graph/model_size.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <tuple>

namespace perfmodel {
namespace decoder_models_test {

using testing::HasSubstr;

// The numbers of parameters that the models' pages give.
TEST(DecoderNames, HaveTheParametersOfTheirModels) {
  const std::pair<const char*, std::int64_t> known[] = {
      {"gpt2", 124439808},         {"gpt2-xl", 1557611200},     {"llama2-7b", 6738415616},
      {"llama3-8b", 8030261248},   {"llama3-70b", 70553706496}, {"llama3-405b", 405853388800},
      {"mistral-7b", 7241732096},  {"opt-1.3b", 1315758080},    {"opt-6.7b", 6658473984},
      {"smollm2-135m", 134515008}, {"smollm2-360m", 361821120}, {"smollm2-1.7b", 1711376384}};
  for (const auto& [name, parameters] : known) {
    const auto found = find_decoder(name);
    ASSERT_TRUE(found) << name;
    EXPECT_EQ(parameter_count(found->model), parameters) << name;
    EXPECT_GT(found->sequence, 0) << name;
  }
}

TEST(DecoderNames, AreFoundWithoutTheirPunctuationUnlessItMakesAnotherSize) {
  for (const char* name : {"Qwen3_30B_a3B", "llama31_405b", "Llama38B", "opt_1.3b"}) {
    EXPECT_TRUE(find_decoder(name)) << name;
  }
  for (const char* name :
       {"opt-13b", "opt13b", "OPT 13B", "qwen2-57b", "llama-27b", "./llama2-7b"}) {
    EXPECT_FALSE(find_decoder(name)) << name;
  }
}

// Norms of heads and norms after layers are left out: at most 0.01 %.
TEST(DecoderNames, HaveNearlyTheParametersOfModelsWithMoreNorms) {
  const std::pair<const char*, double> known[] = {
      {"qwen3-0.6b", 596049920}, {"qwen3-1.7b", 1720574976},   {"qwen3-4b", 4022468096},
      {"qwen3-8b", 8190735360},  {"qwen3-14b", 14768307200},   {"qwen3-32b", 32762123264},
      {"gemma-2b", 2506172416},  {"gemma-7b", 8537680896},     {"gemma2-2b", 2614341888},
      {"gemma2-9b", 9241705984}, {"gemma2-27b", 27227128320},  {"gemma3-1b", 999885952},
      {"gemma3-4b", 3880263168}, {"gemma3-12b", 11765788416},  {"gemma3-27b", 27009346304},
      {"phi3-mini", 3821079552}, {"phi3-medium", 13960238080}, {"phi4", 14659507200},
      {"phi4-mini", 3836021760}};
  for (const auto& [name, parameters] : known) {
    const auto found = find_decoder(name);
    ASSERT_TRUE(found) << name;
    EXPECT_NEAR(static_cast<double>(parameter_count(found->model)) / parameters, 1, 1e-4) << name;
  }
}

// Published in billions, without modules of further tokens: within 1.5 %, active ones within 1.7 B
// (with embeddings). Scout's 109 B include its vision, MiniMax says 230 for 228.7.
TEST(DecoderNames, HaveThePublishedBillions) {
  const std::tuple<const char*, double, double> known[] = {{"glm-4.5", 355, 32},
                                                           {"glm-4.5-air", 106, 12},
                                                           {"llama4-scout", 109, 17},
                                                           {"llama4-maverick", 400, 17},
                                                           {"minimax-m2", 230, 10},
                                                           {"qwen3-next-80b-a3b", 80, 3},
                                                           {"nemotron-h-8b", 8.1, 8.1},
                                                           {"nemotron-nano-9b-v2", 8.89, 8.89},
                                                           {"nemotron-nano-12b-v2", 12.31, 12.31}};
  for (const auto& [name, all, active] : known) {
    auto found = find_decoder(name);
    ASSERT_TRUE(found) << name;
    found->model.next_tokens = 0;
    EXPECT_NEAR(static_cast<double>(parameter_count(found->model)) / (1e9 * all), 1, 0.015) << name;
    EXPECT_NEAR(static_cast<double>(active_parameter_count(found->model)) / 1e9, active, 1.7)
        << name;
  }
}

// The model page of Qwen3-Next: 80 B, 79 B without embeddings, 3 B active. By hand: 36 DeltaNets
// with 2 x 2,048 numbers of queries and keys, 2 x 4,096 of values and gates, two scalars for each
// of 32 heads; 12 of attention with 16 heads of 256, as many gates and 2 heads of keys; 512 experts
// of 512 and a shared one.
TEST(DecoderNames, Qwen3NextByHand) {
  const DecoderModel model = find_decoder("qwen3-next-80b-a3b")->model;
  const double h = 2048, words = 151936 * h;
  const double delta = h * (2 * 2048 + 2 * 4096 + 2 * 32) + 128 + 4096 * h;
  const double attention = h * (2 * 4096 + 2 * 512) + 4096 * h;
  const double expert = 3 * h * 512, router = h * 512;
  const double norms_and_shared_gate = 3 * h;
  const double others = 36 * delta + 12 * attention + 48 * (router + norms_and_shared_gate) + h;
  const double all = others + 48 * 513 * expert, active = others + 48 * 11 * expert;
  EXPECT_EQ(static_cast<double>(parameter_count(model)), all + 2 * words);
  EXPECT_EQ(static_cast<double>(active_parameter_count(model)), active + 2 * words);
  EXPECT_NEAR(all / 79e9, 1, 0.002);
  EXPECT_NEAR(active / 3e9, 1, 0.1);
  // A third of attention's usual 12 h s / 2 per layer has other layers; heads are twice as wide.
  EXPECT_NEAR(model_flop_per_token(model, 4096), 6 * (active + words) + 12 * 6 * 4096.0 * 4096,
              1e-9 * 6 * active);
}

// 36 of 48 layers see half of a chunk of 8,192 tokens on average, 12 half of the sequence.
TEST(DecoderNames, Llama4ByHand) {
  for (const char* name : {"llama4-scout", "llama4-maverick"}) {
    const DecoderModel model = find_decoder(name)->model;
    const double h = 5120, words = 202048 * h, attention = 2 * h * h + 2 * h * 1024;
    const double one = 3 * h * 8192, experts = static_cast<double>(model.experts.experts);
    const bool is_mixed = experts == 128;
    const double with = 2 * one + h * experts, dense = is_mixed ? 3 * h * 16384 : with;
    const double active = 48 * (attention + 2 * h) + 24 * (with + dense) + h;
    EXPECT_EQ(static_cast<double>(active_parameter_count(model)), active + 2 * words) << name;
    EXPECT_EQ(static_cast<double>(parameter_count(model)),
              active + 2 * words + (is_mixed ? 24 : 48) * (experts - 1) * one)
        << name;
    for (const std::int64_t tokens : {4096, 8192, 32768}) {
      const double seen = 36 * std::min(8192.0, double(tokens)) + 12 * double(tokens);
      const double flop = 6 * (active + words) + 6 * h * seen;
      EXPECT_NEAR(model_flop_per_token(model, tokens), flop, 1e-9 * flop) << name << tokens;
    }
  }
}

TEST(DecoderNames, UnknownOnesNameTheNearest) {
  EXPECT_THAT(find_decoder("llama3-71b").error().message, HasSubstr("llama3-70b"));
  for (std::string_view name : decoder_names()) EXPECT_TRUE(find_decoder(name)) << name;
}

template <class Config>
void expect_sizes(const DecoderRow& row, const Result<Config>& preset) {
  ASSERT_TRUE(preset) << row.name;
  EXPECT_EQ(preset->name, row.name);
  EXPECT_EQ(preset->layers, row.layers) << row.name;
  EXPECT_EQ(preset->hidden, row.hidden) << row.name;
  EXPECT_EQ(preset->heads, row.heads) << row.name;
  EXPECT_EQ(preset->feed_forward, row.feed_forward) << row.name;
  EXPECT_EQ(preset->vocabulary, row.vocabulary) << row.name;
  EXPECT_EQ(preset->sequence, row.sequence) << row.name;
}

TEST(DecoderTable, ReachesEachCommandThatARowNames) {
  std::map<std::string_view, std::vector<std::string_view>> presets = {
      {"gpt", gpt_presets()}, {"llama", llama_presets()}, {"opt", opt_presets()}};
  std::vector<std::string_view> in_layout;
  std::size_t built = 0;
  for (const DecoderRow& row : decoder_rows()) {
    EXPECT_TRUE(row.layout || row.build > 0) << row.name;
    if (row.layout) {
      in_layout.push_back(row.name);
      const auto found = find_decoder(row.name);
      ASSERT_TRUE(found) << row.name;
      EXPECT_EQ(found->model.name, row.name);
      EXPECT_EQ(found->model.feed_forward, row.feed_forward) << row.name;
      EXPECT_EQ(found->sequence, row.sequence) << row.name;
    }
    if (row.build == 0) continue;
    ++built;
    const auto place = static_cast<std::size_t>(row.build);
    ASSERT_LE(place, presets[row.family].size()) << row.name;
    EXPECT_EQ(presets[row.family][place - 1], row.name);
    if (row.family == "gpt") expect_sizes(row, gpt_preset(row.name));
    if (row.family == "llama") expect_sizes(row, llama_preset(row.name));
    if (row.family == "opt") expect_sizes(row, opt_preset(row.name));
  }
  EXPECT_EQ(decoder_names(), in_layout);
  EXPECT_EQ(built, presets["gpt"].size() + presets["llama"].size() + presets["opt"].size());
}

class DecoderConfigFile : public testing::Test {
 protected:
  DecoderConfigFile() : folder_(test_support::scratch() / "decoder_config") {
    std::filesystem::create_directories(folder_);
  }
  ~DecoderConfigFile() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  Result<NamedDecoder> read(const std::string& text) const {
    std::ofstream(folder_ / "config.json") << text;
    return read_decoder_config(folder_ / "config.json");
  }

 private:
  std::filesystem::path folder_;
};

// As transformers writes it.
std::string llama_config(const std::string& more = "") {
  return R"({"architectures": ["LlamaForCausalLM"], "attention_bias": false, "hidden_act": "silu",
    "hidden_size": 4096, "intermediate_size": 14336, "max_position_embeddings": 8192,
    "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 32,
    "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_theta": 500000.0,
    "tie_word_embeddings": false, "torch_dtype": "bfloat16", "vocab_size": 128256)" +
         more + "}";
}

TEST_F(DecoderConfigFile, LlamaIsTheKnownOne) {
  const auto read_one = read(llama_config());
  ASSERT_TRUE(read_one) << to_string(read_one.error());
  const DecoderModel known = find_decoder("llama3-8b")->model;
  EXPECT_EQ(parameter_count(read_one->model), parameter_count(known));
  EXPECT_EQ(read_one->model.kv_heads, 8);
  EXPECT_TRUE(read_one->model.gated && read_one->model.rms_norm && !read_one->model.tied);
  EXPECT_EQ(read_one->sequence, 8192);
  EXPECT_TRUE(read_one->notes.empty());
}

TEST_F(DecoderConfigFile, Gpt2HasItsDefaultWidth) {
  const auto read_one = read(R"({"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12,
    "n_positions": 1024, "n_ctx": 1024, "n_inner": null, "vocab_size": 50257,
    "activation_function": "gelu_new"})");
  ASSERT_TRUE(read_one) << to_string(read_one.error());
  EXPECT_EQ(parameter_count(read_one->model), 124439808);
}

TEST_F(DecoderConfigFile, GemmasLayersLookBackAWindow) {
  const auto gemma2 = read(R"({"model_type": "gemma2", "hidden_size": 2304, "head_dim": 256,
    "intermediate_size": 9216, "num_hidden_layers": 26, "num_attention_heads": 8,
    "num_key_value_heads": 4, "max_position_embeddings": 8192, "vocab_size": 256000,
    "sliding_window": 4096, "query_pre_attn_scalar": 256, "attn_logit_softcapping": 50.0,
    "final_logit_softcapping": 30.0, "hidden_activation": "gelu_pytorch_tanh"})");
  ASSERT_TRUE(gemma2) << to_string(gemma2.error());
  EXPECT_EQ(parameter_count(gemma2->model), parameter_count(find_decoder("gemma2-2b")->model));
  EXPECT_EQ(gemma2->model.windowed_layers, 13);
  const auto gemma3 = read(R"({"model_type": "gemma3", "text_config": {"model_type": "gemma3_text",
    "hidden_size": 2560, "head_dim": 256, "intermediate_size": 10240, "num_hidden_layers": 34,
    "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 262208,
    "max_position_embeddings": 131072, "sliding_window": 1024}})");
  ASSERT_TRUE(gemma3) << to_string(gemma3.error());
  EXPECT_EQ(parameter_count(gemma3->model), parameter_count(find_decoder("gemma3-4b")->model));
  EXPECT_EQ(gemma3->model.windowed_layers, 29);
  EXPECT_THAT(gemma3->notes.front(), HasSubstr("text_config"));
}

TEST_F(DecoderConfigFile, ExpertsOfLlama4AndGlmAreTheKnownOnes) {
  const auto maverick = read(R"({"model_type": "llama4", "text_config": {
    "model_type": "llama4_text", "hidden_size": 5120, "intermediate_size": 8192,
    "intermediate_size_mlp": 16384, "num_hidden_layers": 48, "num_attention_heads": 40,
    "num_key_value_heads": 8, "head_dim": 128, "num_local_experts": 128,
    "num_experts_per_tok": 1, "interleave_moe_layer_step": 2, "attention_chunk_size": 8192,
    "max_position_embeddings": 8192, "vocab_size": 202048}})");
  ASSERT_TRUE(maverick) << to_string(maverick.error());
  EXPECT_EQ(parameter_count(maverick->model),
            parameter_count(find_decoder("llama4-maverick")->model));
  const auto air = read(R"({"model_type": "glm4_moe", "hidden_size": 4096, "head_dim": 128,
    "intermediate_size": 10944, "moe_intermediate_size": 1408, "num_hidden_layers": 46,
    "num_attention_heads": 96, "num_key_value_heads": 8, "n_routed_experts": 128,
    "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 1,
    "num_nextn_predict_layers": 1, "attention_bias": true, "partial_rotary_factor": 0.5,
    "max_position_embeddings": 131072, "use_qk_norm": false, "vocab_size": 151552})");
  ASSERT_TRUE(air) << to_string(air.error());
  EXPECT_EQ(parameter_count(air->model), parameter_count(find_decoder("glm-4.5-air")->model));
}

TEST_F(DecoderConfigFile, Llama4sChunksAndQwen3NextsStatesAreTheKnownOnes) {
  const auto scout = read(R"({"model_type": "llama4_text", "hidden_size": 5120,
    "intermediate_size": 8192, "intermediate_size_mlp": 16384, "num_hidden_layers": 48,
    "num_attention_heads": 40, "num_key_value_heads": 8, "head_dim": 128, "num_local_experts": 16,
    "num_experts_per_tok": 1, "interleave_moe_layer_step": 1, "attention_chunk_size": 8192,
    "no_rope_layers": [], "max_position_embeddings": 10485760, "vocab_size": 202048})");
  ASSERT_TRUE(scout) << to_string(scout.error());
  const DecoderModel known = find_decoder("llama4-scout")->model;
  EXPECT_EQ(model_flop_per_token(scout->model, 65536), model_flop_per_token(known, 65536));
  EXPECT_TRUE(scout->model.chunked && scout->model.windowed_layers == 36);
  const auto next = read(R"({"model_type": "qwen3_next", "hidden_size": 2048, "head_dim": 256,
    "intermediate_size": 5120, "num_hidden_layers": 48, "num_attention_heads": 16,
    "num_key_value_heads": 2, "num_experts": 512, "num_experts_per_tok": 10,
    "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512, "mlp_only_layers": [],
    "decoder_sparse_step": 1, "norm_topk_prob": true, "full_attention_interval": 4,
    "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_num_key_heads": 16,
    "linear_num_value_heads": 32, "linear_value_head_dim": 128, "partial_rotary_factor": 0.25,
    "max_position_embeddings": 262144, "vocab_size": 151936})");
  ASSERT_TRUE(next) << to_string(next.error());
  EXPECT_EQ(parameter_count(next->model),
            parameter_count(find_decoder("qwen3-next-80b-a3b")->model));
  EXPECT_EQ(next->model.state_layers, 36);
}

TEST_F(DecoderConfigFile, OthersAreRefusedByName) {
  const auto falcon = read(R"({"model_type": "falcon_h1", "hidden_size": 2048})");
  ASSERT_FALSE(falcon);
  EXPECT_THAT(falcon.error().message, HasSubstr("falcon_h1"));
  EXPECT_THAT(falcon.error().message, HasSubstr("minimax_m2"));
}

TEST_F(DecoderConfigFile, OptHasTwoMorePositions) {
  const auto read_one = read(R"({"model_type": "opt", "hidden_size": 2048, "ffn_dim": 8192,
    "num_hidden_layers": 24, "num_attention_heads": 32, "max_position_embeddings": 2048,
    "vocab_size": 50272, "activation_function": "relu", "word_embed_proj_dim": 2048,
    "do_layer_norm_before": true})");
  ASSERT_TRUE(read_one) << to_string(read_one.error());
  EXPECT_EQ(parameter_count(read_one->model), 1315758080);
}

TEST_F(DecoderConfigFile, SaysWhatIsLeftOut) {
  const auto read_one = read(llama_config(R"(, "sliding_window": 4096)"));
  ASSERT_TRUE(read_one);
  ASSERT_EQ(read_one->notes.size(), 1u);
  EXPECT_THAT(read_one->notes[0], HasSubstr("sliding window"));
}

TEST_F(DecoderConfigFile, ReadsHeadsOfAnotherWidth) {
  EXPECT_EQ(read(llama_config(R"(, "head_dim": 64)"))->model.head_width, 64);
}

TEST_F(DecoderConfigFile, RefusesInOneLine) {
  EXPECT_THAT(to_string(read(llama_config(R"(, "widgets": 3, "gears": 4)")).error()),
              HasSubstr("found gears, widgets"));
  EXPECT_THAT(to_string(read(R"({"model_type": "mamba"})").error()), HasSubstr("one of llama"));
  EXPECT_THAT(to_string(read(R"({"model_type": "llama", "hidden_size": 64})").error()),
              HasSubstr("num_hidden_layers"));
  EXPECT_THAT(to_string(read("{").error()), HasSubstr("config.json"));
}

// As their config.json files say: `layer_types`, `no_rope_layers`, `interleave_moe_layer_step`,
// `first_k_dense_replace`.
TEST(DecoderKinds, FollowEachOtherAsInTheirModels) {
  using Mixer = DecoderLayerKind::Mixer;
  using Inner = DecoderLayerKind::Inner;
  const auto kinds = [](const char* name) { return kinds_in_order(find_decoder(name)->model); };
  const auto next = kinds("qwen3-next-80b-a3b"), maverick = kinds("llama4-maverick"),
             gemma = kinds("gemma2-9b"), v3 = kinds("deepseek-v3");
  for (std::size_t i = 0; i < 48; ++i) {
    EXPECT_EQ(next[i].mixer, i % 4 == 3 ? Mixer::kAttention : Mixer::kDeltaNet) << i;
    EXPECT_EQ(maverick[i].inner, i % 2 == 1 ? Inner::kExperts : Inner::kDense) << i;
    EXPECT_EQ(maverick[i].slides, i % 4 != 3) << i;
  }
  for (std::size_t i = 0; i < 42; ++i) EXPECT_EQ(gemma[i].slides, i % 2 == 0) << i;
  for (std::size_t i = 0; i < 61; ++i) EXPECT_EQ(v3[i].inner == Inner::kDense, i < 3) << i;
}

TEST(DecoderKinds, AreAsManyAsTheLayers) {
  for (const std::string_view name : decoder_names()) {
    const DecoderModel model = find_decoder(name)->model;
    const auto order = kinds_in_order(model);
    EXPECT_EQ(std::ssize(order), model.layers) << name;
    for (const LayerKind& kind : layer_kinds(model)) {
      const auto is_alike = [&](const DecoderLayerKind& other) {
        return to_string(other) == to_string(kind);
      };
      EXPECT_EQ(std::ranges::count_if(order, is_alike), kind.layers) << name;
    }
  }
}

// Norms of latent vectors and of modules of further tokens are not in `parameter_count`. Published:
// 79.7, 401, 671 (with its module 685), 21 B.
TEST(DecoderBuilds, HaveTheParametersOfTheirModels) {
  const std::pair<const char*, double> published[] = {
      {"qwen3-next-80b-a3b", 79.7}, {"llama4-maverick", 401}, {"deepseek-v3", 685},
      {"gpt-oss-20b", 20.9},        {"gemma2-9b", 9.24},      {"nemotron-h-8b", 8.1},
      {"nemotron-3-super", 120},    {"gpt-neox-20b", 20.6},   {"kimi-k2", 1026},
      {"glm-4.5-air", 110},         {"phi3-mini", 3.82}};
  for (const auto& [name, billions] : published) {
    auto config = decoder_named(name);
    ASSERT_TRUE(config) << name;
    config->sequence = 256;
    const auto graph = build_decoder_layers(*config);
    ASSERT_TRUE(graph) << name << ": " << to_string(graph.error());
    const auto made = static_cast<double>(model_size(*graph).parameters);
    EXPECT_NEAR(made / parameter_count(find_decoder(name)->model), 1, 1e-3) << name;
    EXPECT_NEAR(made / (1e9 * billions), 1, 0.03) << name;
  }
}

}  // namespace decoder_models_test
}  // namespace perfmodel
