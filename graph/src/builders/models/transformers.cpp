#include "perfmodel/graph/build_transformers.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/decoder_table.hpp"
#include "perfmodel/graph/detail/decoder_layers.hpp"
#include "settings.hpp"

namespace perfmodel {

template <class Visit>
void visit_settings(TransformerConfig& config, Visit visit) {
  visit("batch", config.batch);
  visit("sequence", config.sequence);
  visit("layers", config.layers);
  visit("hidden", config.hidden);
  visit("heads", config.heads);
  visit("feed_forward", config.feed_forward);
  visit("vocabulary", config.vocabulary);
  visit("positions", config.positions);
  visit("dropout", config.dropout);
  visit("attention", config.attention, Words{"eager", "efficient", "flash"});
}

template <class Visit>
void visit_settings(BertConfig& config, Visit visit) {
  visit_settings(static_cast<TransformerConfig&>(config), visit);
  visit("token_types", config.token_types);
  visit("head", config.head,
        Words{"pooler", "masked_lm", "causal_lm", "classifier", "pre_training",
              "question_answering"});
  visit("masked_tokens", config.masked_tokens);
}

template <class Visit>
void visit_settings(ExpertsConfig& config, Visit visit) {
  visit("experts", config.experts);
  visit("top_k", config.top_k);
  visit("expert_hidden", config.hidden);
  visit("shared_experts", config.shared);
  visit("balance_loss", config.balance_loss);
}

template <class Visit>
void visit_settings(GptConfig& config, Visit visit) {
  visit_settings(static_cast<TransformerConfig&>(config), visit);
  visit_settings(config.experts, visit);
  visit("activation", config.activation, Words{"gelu_new", "gelu_tanh", "gelu", "relu", "silu"});
  visit("tied", config.tied);
  visit("biases", config.biases);
  visit("fused_softmax", config.fused_softmax);
}

template <class Visit>
void visit_settings(LlamaConfig& config, Visit visit) {
  visit_settings(static_cast<TransformerConfig&>(config), visit);
  visit_settings(config.experts, visit);
  visit("kv_heads", config.kv_heads);
  visit("tied", config.tied);
  visit("biases", config.biases);
  visit("fused_norms", config.fused_norms);
  visit("lora_rank", config.lora.rank);
  visit("lora_on", config.lora.on, Words{"attention", "all"});
}

namespace {
constexpr std::string_view kMixers[] = {"attention", "latent attention", "state space",
                                        "gated delta net", "none"};
constexpr std::string_view kInners[] = {"dense", "experts", "none"};

std::string_view name_of(DecoderLayerKind::Mixer mixer) {
  return kMixers[static_cast<std::size_t>(mixer)];
}
std::string_view name_of(DecoderLayerKind::Inner inner) {
  return kInners[static_cast<std::size_t>(inner)];
}
}  // namespace

std::string to_string(const DecoderLayerKind& kind) {
  std::string text(name_of(kind.mixer));
  if (kind.mixer == DecoderLayerKind::Mixer::kNone) return std::string(name_of(kind.inner));
  if (kind.slides) text += " in windows";
  if (kind.inner == DecoderLayerKind::Inner::kNone) return text;
  return fmt::format("{}, {}", text, name_of(kind.inner));
}

Item item_of(const std::vector<DecoderLayerKind>& kinds) {
  Item::List all;
  for (const DecoderLayerKind& kind : kinds) {
    all.emplace_back(Item::Record{{"mixer", std::string(name_of(kind.mixer))},
                                  {"inner", std::string(name_of(kind.inner))},
                                  {"slides", kind.slides}});
  }
  return all;
}

template <class Visit>
void visit_settings(DecoderLayersConfig& config, Visit visit) {
  visit_settings(static_cast<TransformerConfig&>(config), visit);
  visit_settings(config.experts, visit);
  visit("kinds", config.kinds);
  visit("kv_heads", config.kv_heads);
  visit("head_width", config.head_width);
  visit("window", config.window);
  visit("chunked", config.chunked);
  visit("sinks", config.sinks);
  visit("gated_heads", config.gated_heads);
  visit("query_rank", config.latent.query_rank);
  visit("key_value_rank", config.latent.key_value_rank);
  visit("plain_width", config.latent.plain_width);
  visit("rotary_width", config.latent.rotary_width);
  visit("value_width", config.latent.value_width);
  visit("state_heads", config.states.heads);
  visit("state_head_width", config.states.head_width);
  visit("state_groups", config.states.groups);
  visit("state_size", config.states.state);
  visit("state_chunk", config.states.chunk);
  visit("rms_norm", config.rms_norm);
  visit("gated", config.gated);
  visit("tied", config.tied);
  visit("biases", config.biases);
  visit("fused", config.fused);
  visit("held", config.held);
  visit("rows", config.rows);
  visit("shared_width", config.shared_width);
  visit("gated_shared", config.gated_shared);
  visit("expert_input", config.expert_input);
  visit("next_tokens", config.next_tokens);
  visit("lora_rank", config.lora.rank);
  visit("lora_on", config.lora.on, Words{"attention", "all"});
  visit("residual_parts", config.residual_parts);
}

template <class Visit>
void visit_settings(T5Config& config, Visit visit) {
  visit_settings(static_cast<TransformerConfig&>(config), visit);
  visit("decoder_layers", config.decoder_layers);
  visit("target_sequence", config.target_sequence);
  visit("head_width", config.head_width);
  visit("buckets", config.buckets);
  visit("gated", config.gated);
  visit("experts", config.experts);
  visit("expert_capacity", config.expert_capacity);
}

template <class Visit>
void visit_settings(EncoderDecoderConfig& config, Visit visit) {
  visit_settings(static_cast<TransformerConfig&>(config), visit);
  visit("decoder_layers", config.decoder_layers);
  visit("target_sequence", config.target_sequence);
  visit("inner_dropout", config.inner_dropout);
  visit("label_smoothing", config.label_smoothing);
}

namespace {

std::vector<std::string_view> decoder_presets(std::string_view family) {
  return preset_names(built_decoders(family));
}

// Decoders have their sizes in data/decoders.csv; the rest of a row goes to `take_rest`.
template <class Config, class Rest>
Result<Config> decoder_preset(std::string_view family, std::string_view expected,
                              std::string_view name, Rest take_rest) {
  for (const DecoderRow& row : built_decoders(family)) {
    if (row.name != name) continue;
    Config config;
    config.name = name;
    config.batch = 1;
    config.layers = row.layers;
    config.hidden = row.hidden;
    config.heads = row.heads;
    config.feed_forward = row.feed_forward;
    config.vocabulary = row.vocabulary;
    config.sequence = row.sequence;
    take_rest(config, row);
    return config;
  }
  return unknown_preset(expected, name, decoder_presets(family));
}

}  // namespace

Result<BertConfig> bert_preset(std::string_view name) {
  return preset_of<BertConfig>("bert", "a BERT preset", name);
}
Result<ExecutionGraph> build_bert(const BertConfig& config) { return build_module("bert", config); }

std::vector<std::string_view> gpt_presets() { return decoder_presets("gpt"); }
Result<GptConfig> gpt_preset(std::string_view name) {
  return decoder_preset<GptConfig>("gpt", "a GPT preset", name,
                                   [](GptConfig& config, const DecoderRow& row) {
                                     config.positions = row.sequence;
                                     config.tied = row.tied;
                                   });
}
void set_sequence(GptConfig& config, std::int64_t tokens) {
  config.sequence = tokens;
  config.positions = std::max(config.positions, tokens);
}
Result<ExecutionGraph> build_gpt(const GptConfig& config) { return build_module("gpt", config); }

std::vector<std::string_view> opt_presets() { return decoder_presets("opt"); }
Result<OptConfig> opt_preset(std::string_view name) {
  return decoder_preset<OptConfig>(
      "opt", "an OPT preset", name,
      [](OptConfig& config, const DecoderRow& row) { config.positions = row.sequence; });
}
Result<ExecutionGraph> build_opt(const OptConfig& config) {
  return build_module<TransformerConfig>("opt", config);
}

std::vector<std::string_view> llama_presets() { return decoder_presets("llama"); }
Result<LlamaConfig> llama_preset(std::string_view name) {
  return decoder_preset<LlamaConfig>("llama", "a Llama preset", name,
                                     [](LlamaConfig& config, const DecoderRow& row) {
                                       config.kv_heads = row.kv_heads;
                                       config.tied = row.tied;
                                       config.experts.experts = row.extras.experts.experts;
                                       config.experts.top_k = row.extras.experts.top_k;
                                       config.dropout = 0;
                                     });
}
Result<ExecutionGraph> build_llama(const LlamaConfig& config) {
  return build_module("llama", config);
}

std::vector<std::string_view> t5_presets() {
  return module_definitions().with_prefix("t5.preset.");
}
Result<T5Config> t5_preset(std::string_view name) {
  T5Config defaults;
  defaults.vocabulary = 32'128;
  return preset_of("t5", "a T5 preset", name, defaults);
}
Result<ExecutionGraph> build_t5(const T5Config& config) { return build_module("t5", config); }

std::vector<std::string_view> transformer_presets() {
  return module_definitions().with_prefix("transformer.preset.");
}
Result<EncoderDecoderConfig> transformer_preset(std::string_view name) {
  EncoderDecoderConfig defaults;
  defaults.training.optimizer = TrainingOptions::Optimizer::kAdam;
  defaults.layers = defaults.decoder_layers = 6;
  defaults.vocabulary = 37'000;
  defaults.positions = 512;
  defaults.batch = 64;
  defaults.sequence = 32;
  return preset_of("transformer", "a Transformer preset", name, defaults);
}
std::int64_t parameter_count(const EncoderDecoderConfig& config) {
  const std::int64_t h = config.hidden, f = config.feed_forward;
  const std::int64_t attention = 4 * (h * h + h), norm = 2 * h;
  const std::int64_t feed_forward = 2 * h * f + f + h;
  return config.vocabulary * h + config.layers * (attention + feed_forward + 2 * norm) +
         config.decoder_layers * (2 * attention + feed_forward + 3 * norm);
}
Result<ExecutionGraph> build_transformer(const EncoderDecoderConfig& config) {
  return build_module("transformer", config);
}

Result<ExecutionGraph> build_decoder_layers(const DecoderLayersConfig& config) {
  return build_module("decoder", config);
}

Result<ExecutionGraph> build_torch_encoder(const TransformerConfig& config) {
  return build_module("torch_encoder", config);
}

}  // namespace perfmodel
