#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/each_name.hpp"
#include "base/number_text.hpp"
#include "configured_decoder.hpp"
#include "model_family.hpp"

namespace perfmodel {
namespace {

using Attention = TransformerConfig::Attention;
constexpr Named<Attention> kAttentions[] = {{"eager", Attention::kEager},
                                            {"efficient", Attention::kEfficient},
                                            {"flash", Attention::kFlash}};
using Head = BertConfig::Head;
constexpr Named<Head> kHeads[] = {
    {"causal-lm", Head::kCausalLm},      {"classifier", Head::kClassifier},
    {"masked-lm", Head::kMaskedLm},      {"pooler", Head::kPooler},
    {"pretraining", Head::kPreTraining}, {"question-answering", Head::kQuestionAnswering}};
using Activation = GptConfig::Activation;
constexpr Named<Activation> kActivations[] = {{"gelu", Activation::kGelu},
                                              {"gelu_new", Activation::kGeluNew},
                                              {"gelu_tanh", Activation::kGeluTanh},
                                              {"relu", Activation::kRelu},
                                              {"silu", Activation::kSilu}};

template <class Config>
std::vector<ConfigField<Config>> with_experts(std::vector<ConfigField<Config>> fields) {
  using Experts = ExpertsConfig;
  constexpr auto kExperts = &Config::experts;
  const ConfigField<Config> of_experts[] = {
      {"experts", kMemberOfPart<kExperts, &Experts::experts>,
       "Feed-forward layers of N experts, whose products are grouped; 0: dense layers", "N"},
      {"top_k", kMemberOfPart<kExperts, &Experts::top_k>, "Experts that take a token (default: 2)",
       "K"},
      {"expert_hidden", kMemberOfPart<kExperts, &Experts::hidden>,
       "Width inside of one expert (default: --feed-forward's)", "F"},
      {"shared_experts", kMemberOfPart<kExperts, &Experts::shared>,
       "More experts, which take every token, as one layer of N times the width", "N"},
      {"balance_loss", kMemberOfPart<kExperts, &Experts::balance_loss>,
       "Weight of the loss that makes the loads of experts even; 0: none", "X"}};
  fields.insert(fields.end(), std::begin(of_experts), std::end(of_experts));
  return fields;
}

ModelFacts transformer_facts(const TransformerConfig& config) {
  return {.lines = {{"batch", fmt::format("{} of {} tokens", config.batch, config.sequence)},
                    {"layers",
                     fmt::format("{} of width {}, {} heads, {} in feed-forward", config.layers,
                                 config.hidden, config.heads, config.feed_forward)},
                    {"vocabulary", grouped(config.vocabulary)}},
          .keys = {PERFMODEL_VALUES(config, batch, sequence, layers, hidden, heads, feed_forward,
                                    vocabulary)}};
}

// Adds to the lines and keys of the transformer, if it has experts.
template <class Config>
ModelFacts add_expert_facts(const Config& config, ModelFacts facts) {
  const ExpertsConfig& experts = config.experts;
  if (experts.experts == 0) return facts;
  const std::int64_t width = experts.hidden > 0 ? experts.hidden : config.feed_forward;
  std::string line =
      fmt::format("{} of width {}, {} per token", experts.experts, width, experts.top_k);
  if (experts.shared > 0) line += fmt::format(", {} shared", experts.shared);
  facts.lines.emplace_back("experts", line);
  facts.keys.update({{"experts", experts.experts},
                     {"top_k", experts.top_k},
                     {"expert_hidden", width},
                     {"shared_experts", experts.shared},
                     {"balance_loss", experts.balance_loss}});
  return facts;
}

ModelFacts gpt_facts(const GptConfig& config) {
  ModelFacts facts = transformer_facts(config);
  const std::string activation(name_of(kActivations, config.activation));
  facts.lines.emplace_back("positions", grouped(config.positions));
  facts.lines.emplace_back("activation", activation);
  facts.keys["positions"] = config.positions;
  facts.keys["activation"] = activation;
  return add_expert_facts(config, std::move(facts));
}

ModelFacts llama_facts(const LlamaConfig& config) {
  return add_expert_facts(config, transformer_facts(config));
}

// "36 gated delta net, experts; 12 attention, experts"
std::string kinds_text(const DecoderLayersConfig& config) {
  std::vector<std::pair<std::string, int>> counts;
  for (std::int64_t i = 0; i < config.layers; ++i) {
    const std::string kind = to_string(config.kinds[i % std::ssize(config.kinds)]);
    auto at = std::ranges::find(counts, kind, &std::pair<std::string, int>::first);
    if (at == counts.end()) at = counts.insert(at, {kind, 0});
    ++at->second;
  }
  std::vector<std::string> parts;
  for (const auto& [kind, count] : counts) parts.push_back(fmt::format("{} {}", count, kind));
  return fmt::format("{}", fmt::join(parts, "; "));
}

ModelFacts decoder_facts(const DecoderLayersConfig& config) {
  ModelFacts facts = add_expert_facts(config, transformer_facts(config));
  facts.lines.emplace_back("kinds of layers", kinds_text(config));
  facts.keys["layer_kinds"] = kinds_text(config);
  return facts;
}

ModelFacts encoder_decoder_facts(const EncoderDecoderConfig& config) {
  ModelFacts facts = transformer_facts(config);
  facts.lines.front().second = fmt::format("{} sentences of {} source and {} target tokens",
                                           config.batch, config.sequence, config.target_sequence);
  facts.keys["target_sequence"] = config.target_sequence;
  facts.keys["decoder_layers"] = config.decoder_layers;
  return facts;
}

template <class Config>
ModelFacts facts_of_base(const Config& config) {
  return transformer_facts(config);
}

EncoderDecoderConfig with_adam() {
  EncoderDecoderConfig config;
  config.training.optimizer = TrainingOptions::Optimizer::kAdam;
  return config;
}

TransformerConfig torch_encoder_start() {
  TransformerConfig config;
  config.name = "torch-encoder";
  config.layers = 6;
  config.hidden = 512;
  config.heads = 8;
  config.feed_forward = 2048;
  config.vocabulary = 10000;
  return config;
}

// A known model, or the file of one.
Result<GptConfig> gpt_named(std::string_view name) {
  return names_config(name) ? gpt_of_config(name) : gpt_preset(name);
}
Result<LlamaConfig> llama_named(std::string_view name) {
  return names_config(name) ? llama_of_config(name) : llama_preset(name);
}
Result<OptConfig> opt_named(std::string_view name) {
  return names_config(name) ? opt_of_config(name) : opt_preset(name);
}
constexpr std::string_view kDecoderPresetHelp =
    "Start from a known model or a Hugging Face config.json; flags override it";

}  // namespace

std::span<const ConfigField<TransformerConfig>> transformer_fields() {
  using Config = TransformerConfig;
  static const ConfigField<Config> fields[] = {
      {"batch", &Config::batch, "Samples per batch", "B"},
      {"sequence", &Config::sequence, "Tokens per sample", "S"},
      {"layers", &Config::layers, "Layers", "N"},
      {"hidden", &Config::hidden, "Width of a token", "H"},
      {"heads", &Config::heads, "Heads of attention", "N"},
      {"feed_forward", &Config::feed_forward, "Width inside of a feed-forward layer", "F"},
      {"vocabulary", &Config::vocabulary, "Rows of the word embeddings", "V"},
      {"dropout", &Config::dropout, "Probability of dropout; 0: none", "P"},
      {"attention", choice_of<&Config::attention, kAttentions>(),
       "Ops of its own, or one library op with the kernel for float32 or the one for half "
       "precision"},
      {"name", &Config::name, "Name of the model in the graph"}};
  return fields;
}

const ModelFamily<BertConfig>& bert_family() {
  static const ModelFamily<BertConfig> family = {
      .name = "bert",
      .help = "One step of a BERT",
      .preset = bert_preset,
      .build = build_bert,
      .facts = facts_of_base,
      .fields = {{"head", choice_of<&BertConfig::head, kHeads>(), "Layers on top", "", false,
                  "masked-lm"},
                 {"masked_tokens", &BertConfig::masked_tokens,
                  "Tokens of a sample that the head predicts, picked before it; 0: all", "N"}},
      .first_preset = "bert-base"};
  return family;
}

const ModelFamily<DecoderLayersConfig>& decoder_family() {
  using Config = DecoderLayersConfig;
  static const ModelFamily<Config> family = {
      .name = "decoder",
      .help = "One step of any decoder that `layout` knows, with layers of several kinds",
      .preset = decoder_named,
      .build = build_decoder_layers,
      .facts = decoder_facts,
      .fields = {{"kv_heads", &Config::kv_heads, "Heads of keys and values", "N"},
                 {"head_width", &Config::head_width, "Width of one head", "N"},
                 {"experts", kMemberOfPart<&Config::experts, &ExpertsConfig::experts>,
                  "Experts of the layers that have some", "N"},
                 {"top_k", kMemberOfPart<&Config::experts, &ExpertsConfig::top_k>,
                  "Experts that take a token", "K"},
                 {"next_tokens", &Config::next_tokens,
                  "Modules that predict a token beyond the next", "N"}},
      .first_preset = "qwen3-next-80b-a3b",
      .preset_help = kDecoderPresetHelp};
  return family;
}

const ModelFamily<GptConfig>& gpt_family() {
  using Config = GptConfig;
  static const ModelFamily<Config> family = {
      .name = "gpt",
      .help = "One step of a GPT-2 or GPT-3",
      .preset = gpt_named,
      .build = build_gpt,
      .facts = gpt_facts,
      .fields = with_experts<Config>(
          {{"positions", &Config::positions,
            "Rows of the table of positions, the longest sequence that the model takes (default: "
            "the preset's, or --sequence where that is more)",
            "N"},
           {"activation", choice_of<&Config::activation, kActivations>(),
            "Between the products of a feed-forward layer: gelu_new is HuggingFace's, the tanh "
            "form of GELU in eight ops; gelu_tanh the same in one kernel; gelu with erf",
            "", false, "gelu_new"}}  // namespace perfmodel
          ),
      .first_preset = "gpt2",
      .preset_help = kDecoderPresetHelp,
      .after_sizes = [](Config& config) { set_sequence(config, config.sequence); },
      .footer =
          "Presets: gpt2, gpt2-medium, gpt2-large, gpt2-xl are OpenAI's. gpt3-xl and gpt3-2.7b "
          "have the\n"
          "shapes that NeuSight (ASPLOS 2025) measured: its XL has 24 heads of 128 and is 3,072 "
          "wide,\n"
          "where the paper of GPT-3 says 24 heads of 128 and a width of 2,048. gpt3-175b is the "
          "paper's.\n"
          "All are written as HuggingFace's GPT2LMHeadModel."};
  return family;
}

const ModelFamily<LlamaConfig>& llama_family() {
  using Config = LlamaConfig;
  static const ModelFamily<Config> family = {
      .name = "llama",
      .help = "One step of a Llama-like decoder",
      .preset = llama_named,
      .build = build_llama,
      .facts = llama_facts,
      .fields =
          [] {
            auto fields = with_experts<Config>(
                {{"kv_heads", &Config::kv_heads, "Heads of keys and values", "N"}});
            fields.push_back({"lora", kMemberOfPart<&Config::lora, &LoraConfig::rank>,
                              "Rank of adapters; all other weights are frozen (0: all learn)",
                              "R"});
            fields.push_back({"lora_on",
                              ConfigChoice<Config>{{"attention", "all"},
                                                   [](Config& config, std::string_view layers) {
                                                     config.lora.on =
                                                         layers == "all"
                                                             ? LoraConfig::On::kAll
                                                             : LoraConfig::On::kAttention;
                                                   }},
                              "Layers that have adapters", "WHICH", false, "attention"});
            return fields;
          }(),
      .first_preset = "llama-7b",
      .preset_help = kDecoderPresetHelp};
  return family;
}

const ModelFamily<OptConfig>& opt_family() {
  static const ModelFamily<OptConfig> family = {.name = "opt",
                                                .help = "One step of an OPT",
                                                .preset = opt_named,
                                                .build = build_opt,
                                                .facts = facts_of_base,
                                                .first_preset = "opt-1.3b",
                                                .preset_help = kDecoderPresetHelp};
  return family;
}

const ModelFamily<T5Config>& t5_family() {
  using Config = T5Config;
  static const ModelFamily<Config> family = {
      .name = "t5",
      .help = "One step of a T5 or Switch Transformer",
      .preset = t5_preset,
      .build = build_t5,
      .facts = facts_of_base,
      .fields = {{"decoder_layers", &Config::decoder_layers, "Layers of the decoder", "N"},
                 {"target_sequence", &Config::target_sequence, "Tokens per sample of the decoder",
                  "N"},
                 {"head_width", &Config::head_width, "Width of one head", "N"},
                 {"experts", &Config::experts, "Experts of every second layer; 0: none", "N"},
                 {"expert_capacity", &Config::expert_capacity,
                  "Tokens of a sample that one expert takes", "N"},
                 {"gated", &Config::gated,
                  "Gated feed-forward layers and an output layer of its own", "", true}},
      .first_preset = "t5-base"};
  return family;
}

const ModelFamily<TransformerConfig>& torch_encoder_family() {
  static const ModelFamily<TransformerConfig> family = {
      .name = "torch-encoder",
      .help = "One step of nn.TransformerEncoderLayers",
      .preset = nullptr,
      .build = build_torch_encoder,
      .facts = transformer_facts,
      .start = torch_encoder_start()};
  return family;
}

const ModelFamily<EncoderDecoderConfig>& transformer_family() {
  using Config = EncoderDecoderConfig;
  static const ModelFamily<Config> family = {
      .name = "transformer",
      .help = "One step of the Transformer that translates (encoder and decoder)",
      .preset = transformer_preset,
      .build = build_transformer,
      .facts = encoder_decoder_facts,
      .fields = {{"decoder_layers", &Config::decoder_layers, "Layers of the decoder", "N"},
                 {"target_sequence", &Config::target_sequence, "Tokens per sentence of the decoder",
                  "S"},
                 {"inner_dropout", &Config::inner_dropout,
                  "Dropout of attention weights and inside of feed-forward layers", "P"},
                 {"label_smoothing", &Config::label_smoothing,
                  "Share of the loss that all words get; 0: none", "E"}},
      .first_preset = "transformer-base",
      .start = with_adam()};
  return family;
}

}  // namespace perfmodel
