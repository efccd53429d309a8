#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <span>

#include "files/json_file.hpp"
#include "perfmodel/detail/decoder_models.hpp"

namespace perfmodel {
namespace {

// Fields that change no size and no kernel; transformers writes more of them with each version.
constexpr std::string_view kConfigIrrelevant[] = {
    "_attn_implementation_autoset", "_name_or_path", "_remove_final_layer_norm", "architectures",
    "attention_dropout", "attention_probs_dropout_prob", "attn_pdrop", "auto_map", "bos_token_id",
    "chunk_size_feed_forward", "classifier_dropout", "dropout", "dtype", "embd_pdrop",
    "enable_bias", "eos_token_id", "hidden_dropout", "hidden_dropout_prob", "id2label", "init_std",
    "initializer_range", "label2id", "layer_norm_elementwise_affine", "layer_norm_eps",
    "layer_norm_epsilon", "layerdrop", "max_window_layers", "model_type", "output_past",
    "pad_token_id", "prefix", "pretraining_tp", "reorder_and_upcast_attn", "resid_pdrop",
    "rms_norm_eps", "rope_parameters", "rope_scaling", "rope_theta", "rotary_emb_base",
    "rotary_pct", "scale_attn_by_inverse_layer_idx", "scale_attn_weights", "summary_activation",
    "summary_first_dropout", "summary_proj_to_labels", "summary_type", "summary_use_proj",
    "task_specific_params", "torch_dtype", "transformers_version", "unk_token_id", "use_cache",
    "use_mrope", "layer_types", "aux_loss_alpha", "ep_size", "experts_per_token",
    "initial_context_length", "n_group", "norm_topk_prob", "num_experts_per_token",
    "output_router_logits", "qkv_bias", "quantization_config", "rope_interleave",
    "router_aux_loss_coef", "router_jitter_noise", "routed_scaling_factor", "scoring_func",
    "seq_aux", "swiglu_limit", "topk_group", "topk_method",
    // Gemma, Phi, GLM, Llama 4, MiniMax
    "_sliding_window_pattern", "attn_logit_softcapping", "attn_scale", "attn_temperature_tuning",
    "attn_type_list", "cache_implementation", "final_logit_softcapping", "floor_scale",
    "for_llm_compressor", "hidden_activation", "layernorm_full_attention_beta",
    "layernorm_linear_attention_beta", "layernorm_mlp_beta", "moe_layers", "mtp_transformer_layers",
    "num_mtp_modules", "original_max_position_embeddings", "partial_rotary_factor", "qk_norm_type",
    "query_pre_attn_scalar", "rope_local_base_freq", "rotary_dim", "sliding_window_pattern",
    "use_bidirectional_attention", "use_mtp", "use_qk_norm", "use_routing_bias"};

// Names of the sizes in one family; empty: it has none. Most are called as Llama's.
struct ConfigFamily {
  std::string_view type;
  const char* layers = "num_hidden_layers";
  const char* hidden = "hidden_size";
  const char* heads = "num_attention_heads";
  const char* kv_heads = "num_key_value_heads";
  const char* feed_forward = "intermediate_size";
  const char* positions = "max_position_embeddings";
  const char* activation = "hidden_act";
  bool llama = true, learned_positions = false, tied = false, biases = false;
  std::int64_t position_offset = 0;
  const char *experts = "", *expert_hidden = "";
  const char* top_k = "num_experts_per_tok";
  bool latent = false;
  std::string_view left_out = {};  ///< said in a note
};
constexpr ConfigFamily kConfigFamilies[] = {
    {"llama"},
    {"mistral"},
    {.type = "qwen2", .left_out = "the biases of Qwen2's attention are left out"},
    {.type = "qwen3", .left_out = "the norms of Qwen3's heads are left out"},
    {.type = "gemma", .tied = true},
    {.type = "gemma2", .tied = true, .left_out = "the norms after Gemma's layers are left out"},
    {.type = "gemma3_text",
     .tied = true,
     .left_out = "the norms of heads and those after Gemma's layers are left out"},
    {"phi3"},
    {.type = "glm4",
     .left_out = "the biases of GLM's attention and norms after layers are left out"},
    {.type = "mixtral", .experts = "num_local_experts"},
    {.type = "qwen2_moe",
     .experts = "num_experts",
     .expert_hidden = "moe_intermediate_size",
     .left_out = "the biases of Qwen2's attention are left out"},
    {.type = "qwen3_moe",
     .experts = "num_experts",
     .expert_hidden = "moe_intermediate_size",
     .left_out = "the norms of Qwen3's heads are left out"},
    {.type = "qwen3_next",
     .experts = "num_experts",
     .expert_hidden = "moe_intermediate_size",
     .left_out = "the norms of Qwen3's heads, convolutions except their traffic, and the module of "
                 "a further token are left out"},
    {.type = "gpt_oss",
     .experts = "num_local_experts",
     .left_out = "biases of GPT-OSS are left out"},
    {.type = "glm4_moe",
     .experts = "n_routed_experts",
     .expert_hidden = "moe_intermediate_size",
     .left_out = "the biases of GLM's attention and the norms of its heads are left out"},
    {.type = "llama4_text",
     .feed_forward = "intermediate_size_mlp",
     .experts = "num_local_experts",
     .expert_hidden = "intermediate_size"},
    {.type = "minimax_m2",
     .experts = "num_local_experts",
     .left_out = "the norms of heads and MiniMax's modules of further tokens are left out"},
    {.type = "deepseek_v2",
     .experts = "n_routed_experts",
     .expert_hidden = "moe_intermediate_size",
     .latent = true},
    {.type = "deepseek_v3",
     .experts = "n_routed_experts",
     .expert_hidden = "moe_intermediate_size",
     .latent = true},
    {.type = "kimi_k2",
     .experts = "n_routed_experts",
     .expert_hidden = "moe_intermediate_size",
     .latent = true},
    {"gpt2", "n_layer", "n_embd", "n_head", "", "n_inner", "n_positions", "activation_function",
     false, true, true, true},
    {.type = "gpt_neox", .kv_heads = "", .llama = false, .biases = true},
    {"opt", "num_hidden_layers", "hidden_size", "num_attention_heads", "", "ffn_dim",
     "max_position_embeddings", "activation_function", false, true, true, true, 2}};

bool is_null(const Json& config, const char* key) {
  const auto at = config.find(key);
  return at == config.end() || at->is_null();
}

void read_activation(ObjectReader& reader, const ConfigFamily& family, NamedDecoder& made) {
  using Activation = DecoderModel::Activation;
  if (!reader.has(family.activation)) {
    made.model.activation = family.llama           ? Activation::kSilu
                            : family.type == "opt" ? Activation::kRelu
                                                   : Activation::kGelu;
    return;
  }
  const std::string name = reader.string(family.activation);
  if (name == "silu" || name == "swish") {
    made.model.activation = Activation::kSilu;
  } else if (name.starts_with("gelu")) {
    made.model.activation = Activation::kGelu;
  } else if (name == "relu") {
    made.model.activation = Activation::kRelu;
  } else {
    reader.reject(family.activation, "silu, relu or a form of gelu");
  }
}

constexpr std::string_view kExpertFields[] = {"num_local_experts",
                                              "num_experts",
                                              "n_routed_experts",
                                              "num_experts_per_tok",
                                              "moe_intermediate_size",
                                              "shared_expert_intermediate_size",
                                              "n_shared_experts",
                                              "n_group",
                                              "topk_group",
                                              "first_k_dense_replace",
                                              "moe_layer_freq",
                                              "decoder_sparse_step",
                                              "mlp_only_layers",
                                              "q_lora_rank",
                                              "kv_lora_rank",
                                              "qk_nope_head_dim",
                                              "qk_rope_head_dim",
                                              "v_head_dim",
                                              "num_nextn_predict_layers",
                                              "interleave_moe_layer_step"};

constexpr std::string_view kHybridFields[] = {"full_attention_interval", "linear_conv_kernel_dim",
                                              "linear_key_head_dim",     "linear_num_key_heads",
                                              "linear_value_head_dim",   "linear_num_value_heads"};
constexpr std::string_view kChunkFields[] = {"attention_chunk_size", "no_rope_layer_interval",
                                             "no_rope_layers"};

std::int64_t number_or(const Json& config, ObjectReader& reader, const char* key,
                       std::int64_t least, std::int64_t otherwise) {
  return is_null(config, key) ? otherwise : reader.whole_number(key, least);
}

// Experts in each layer but the first ones.
void read_experts(const Json& config, ObjectReader& reader, const ConfigFamily& family,
                  NamedDecoder& made) {
  if (*family.experts == '\0') return;
  DecoderExperts& experts = made.model.experts;
  experts.experts = reader.whole_number(family.experts, 1);
  experts.top_k = reader.whole_number(family.top_k, 1);
  if (*family.expert_hidden) experts.hidden = reader.whole_number(family.expert_hidden, 1);
  experts.shared = number_or(config, reader, "shared_expert_intermediate_size", 0, 0);
  experts.gated_shared = experts.shared > 0;  // all that say the width so have a gate
  experts.shared += number_or(config, reader, "n_shared_experts", 0, 0) * experts.hidden;
  made.model.expert_groups = number_or(config, reader, "n_group", 1, 1);
  made.model.groups_of_token = number_or(config, reader, "topk_group", 1, made.model.expert_groups);
  experts.dense_layers = number_or(config, reader, "first_k_dense_replace", 0, 0);
  for (const char* every : {"moe_layer_freq", "decoder_sparse_step"}) {
    if (number_or(config, reader, every, 1, 1) != 1) {
      reader.reject(every, "1 (experts in every layer but the first ones)");
    }
  }
  if (reader.has("mlp_only_layers")) {
    const Json* list = reader.array("mlp_only_layers");
    if (list && !list->empty()) reader.reject("mlp_only_layers", "an empty list");
  }
  made.model.next_tokens = number_or(config, reader, "num_nextn_predict_layers", 0, 0);
  if (family.type != "llama4_text") return;
  experts.shared = experts.hidden;
  // Every so many layers have experts; the others count as first ones, as in data/decoders.csv.
  const std::int64_t every = number_or(config, reader, "interleave_moe_layer_step", 1, 1);
  experts.dense_layers = made.model.layers - made.model.layers / every;
}

void read_latent(const Json& config, ObjectReader& reader, const ConfigFamily& family,
                 NamedDecoder& made) {
  if (!family.latent) return;
  DecoderModel& model = made.model;
  model.latent = {.query_rank = number_or(config, reader, "q_lora_rank", 1, 0),
                  .key_value_rank = reader.whole_number("kv_lora_rank", 1),
                  .plain_width = reader.whole_number("qk_nope_head_dim", 1),
                  .rotary_width = reader.whole_number("qk_rope_head_dim", 1),
                  .value_width = reader.whole_number("v_head_dim", 1)};
  model.kv_heads = model.heads;
}

// Layers of one kind: as `layer_types` says, else all but each `every`-th.
std::int64_t layers_of_kind(const Json& config, ObjectReader& reader, const DecoderModel& model,
                            std::string_view kind, std::int64_t every) {
  if (is_null(config, "layer_types")) return model.layers - model.layers / every;
  return std::ranges::count(reader.strings("layer_types"), kind);
}

// Qwen3-Next: gated DeltaNets, and every fourth layer attention with gates.
void read_hybrid(const Json& config, ObjectReader& reader, const ConfigFamily& family,
                 DecoderModel& model) {
  if (family.type != "qwen3_next") return;
  constexpr std::int64_t kEvery = 4, kChunk = 64;  // flash-linear-attention's
  const std::int64_t every = number_or(config, reader, "full_attention_interval", 1, kEvery);
  model.delta_states = model.gated_heads = true;
  model.state_layers = layers_of_kind(config, reader, model, "linear_attention", every);
  model.states = {.heads = reader.whole_number("linear_num_value_heads", 1),
                  .head_width = reader.whole_number("linear_value_head_dim", 1),
                  .groups = reader.whole_number("linear_num_key_heads", 1),
                  .state = reader.whole_number("linear_key_head_dim", 1),
                  .chunk = kChunk};
}

// Llama 4: layers with rotary positions do not leave their chunk.
void read_chunks(const Json& config, ObjectReader& reader, const ConfigFamily& family,
                 DecoderModel& model) {
  if (family.type != "llama4_text") return;
  constexpr std::int64_t kChunk = 8192, kEvery = 4;  // transformers' defaults
  model.chunked = true;
  model.window = number_or(config, reader, "attention_chunk_size", 1, kChunk);
  const std::int64_t every = number_or(config, reader, "no_rope_layer_interval", 1, kEvery);
  model.windowed_layers = layers_of_kind(config, reader, model, "chunked_attention", every);
  if (!reader.has("no_rope_layers") || !is_null(config, "layer_types")) return;
  const Json* turned = reader.array("no_rope_layers");  // 1: rotary
  if (turned && !turned->empty()) {
    model.windowed_layers = std::ranges::count(*turned, Json(1));
  }
}

// Gemma's and Phi-3's layers that look back a window alone. False: the family has none.
bool read_windows(const Json& config, ObjectReader& reader, const ConfigFamily& family,
                  DecoderModel& model) {
  const bool gemma = family.type == "gemma2" || family.type == "gemma3_text";
  if (!gemma && family.type != "phi3") return false;
  model.window = number_or(config, reader, "sliding_window", 1, 0);
  if (model.window == 0) return true;
  if (family.type == "phi3") ++model.window;                   // the token itself
  const std::int64_t every = family.type == "gemma2" ? 2 : 6;  // so many layers, one sees all
  model.windowed_layers = model.layers;
  if (gemma) {
    model.windowed_layers = layers_of_kind(config, reader, model, "sliding_attention", every);
  }
  return true;
}

// Reads the fields that a family may have besides its sizes.
void read_extras(const Json& config, ObjectReader& reader, const ConfigFamily& family,
                 NamedDecoder& made) {
  DecoderModel& model = made.model;
  if (reader.has("tie_word_embeddings")) model.tied = reader.boolean("tie_word_embeddings");
  for (const char* key : {"attention_bias", "mlp_bias"}) {
    if (reader.has(key) && !is_null(config, key)) model.biases |= reader.boolean(key);
  }
  if (!family.left_out.empty()) made.notes.emplace_back(family.left_out);
  if (family.type.starts_with("glm4")) model.biases = false;
  if (reader.has("head_dim") && !is_null(config, "head_dim")) {
    const std::int64_t width = reader.whole_number("head_dim", 1);
    const bool is_usual = model.hidden % model.heads == 0 && width == model.hidden / model.heads;
    if (!is_usual && !family.latent) model.head_width = width;
  }
  if (family.type == "gpt_oss") {
    // Every second layer looks back a window alone.
    model.window = number_or(config, reader, "sliding_window", 1, 0);
    model.windowed_layers = model.window > 0 ? model.layers / 2 : 0;
    model.biases = false;
    model.sinks = true;
    return;
  }
  read_chunks(config, reader, family, model);
  read_hybrid(config, reader, family, model);
  if (read_windows(config, reader, family, model)) return;
  bool slides = reader.has("sliding_window") && !is_null(config, "sliding_window");
  if (reader.has("use_sliding_window")) slides &= reader.boolean("use_sliding_window");
  if (slides) made.notes.push_back("attention is computed whole, without the sliding window");
  if (reader.has("use_parallel_residual") && reader.boolean("use_parallel_residual")) {
    made.notes.push_back("attention and feed-forward layer are taken one after the other");
  }
  if (reader.has("do_layer_norm_before") && !reader.boolean("do_layer_norm_before")) {
    made.notes.push_back("norms are taken in front of the layers");
  }
  if (reader.has("word_embed_proj_dim") &&
      reader.whole_number("word_embed_proj_dim", 1) != model.hidden) {
    reader.reject("word_embed_proj_dim", fmt::format("hidden_size = {}", model.hidden));
  }
  if (reader.has("n_ctx")) reader.whole_number("n_ctx", 1);
}

// Names every field that was not read, in one line.
void name_unknown(const Json& config, ObjectReader& reader, const ConfigFamily& family) {
  const std::string_view known[] = {family.layers,
                                    family.hidden,
                                    family.heads,
                                    family.kv_heads,
                                    family.feed_forward,
                                    family.expert_hidden,
                                    family.positions,
                                    family.activation,
                                    "vocab_size",
                                    "tie_word_embeddings",
                                    "attention_bias",
                                    "mlp_bias",
                                    "head_dim",
                                    "sliding_window",
                                    "use_sliding_window",
                                    "use_parallel_residual",
                                    "do_layer_norm_before",
                                    "word_embed_proj_dim",
                                    "n_ctx"};
  std::vector<std::string> unknown;
  for (const auto& [key, value] : config.items()) {
    if (std::ranges::find(known, key) != std::end(known)) continue;
    if (std::ranges::find(kConfigIrrelevant, key) != std::end(kConfigIrrelevant)) continue;
    const bool of_experts = std::ranges::find(kExpertFields, key) != std::end(kExpertFields);
    if (of_experts && *family.experts) continue;
    const bool of_hybrid = std::ranges::find(kHybridFields, key) != std::end(kHybridFields);
    if (of_hybrid && family.type == "qwen3_next") continue;
    const bool of_chunks = std::ranges::find(kChunkFields, key) != std::end(kChunkFields);
    if (of_chunks && family.type == "llama4_text") continue;
    unknown.push_back(key);
  }
  if (unknown.empty()) return;
  reader.fail_at("",
                 fmt::format("the fields of a {} model (remove what changes no size)", family.type),
                 fmt::format("{}", fmt::join(unknown, ", ")));
}

NamedDecoder parse_decoder_config(const Json& whole, std::optional<Error>& error) {
  NamedDecoder made;
  // Models that see and read have the language model inside.
  const bool has_text = whole.is_object() && whole.contains("text_config");
  const Json& config = has_text ? whole["text_config"] : whole;
  if (has_text) made.notes.emplace_back("only text_config is read: the part that sees is left out");
  ObjectReader reader(config, "", error);
  const std::string type = reader.string("model_type");
  const auto family = std::ranges::find(kConfigFamilies, type, &ConfigFamily::type);
  if (family == std::end(kConfigFamilies)) {
    std::vector<std::string_view> known;
    for (const ConfigFamily& one : kConfigFamilies) known.push_back(one.type);
    if (!error) reader.reject("model_type", fmt::format("one of {}", fmt::join(known, ", ")));
    return made;
  }
  DecoderModel& model = made.model;
  model.name = type;
  model.layers = reader.whole_number(family->layers, 1);
  model.hidden = reader.whole_number(family->hidden, 1);
  model.heads = reader.whole_number(family->heads, 1);
  model.kv_heads = model.heads;
  if (*family->kv_heads && reader.has(family->kv_heads)) {
    model.kv_heads = reader.whole_number(family->kv_heads, 1);
  }
  constexpr std::int64_t kInnerOfGpt2 = 4;
  const bool default_width = family->type == "gpt2" && is_null(config, family->feed_forward);
  model.feed_forward =
      default_width ? kInnerOfGpt2 * model.hidden : reader.whole_number(family->feed_forward, 1);
  model.vocabulary = reader.whole_number("vocab_size", 1);
  model.tied = family->tied;
  model.gated = model.rms_norm = family->llama;
  model.biases = family->biases;
  if (reader.has(family->positions)) made.sequence = reader.whole_number(family->positions, 1);
  if (family->learned_positions) model.positions = made.sequence + family->position_offset;
  read_activation(reader, *family, made);
  read_extras(config, reader, *family, made);
  read_experts(config, reader, *family, made);
  read_latent(config, reader, *family, made);
  name_unknown(config, reader, *family);
  return made;
}

}  // namespace

Result<NamedDecoder> read_decoder_config(const std::filesystem::path& named) {
  std::error_code ignored;
  const bool is_folder = std::filesystem::is_directory(named, ignored);
  const std::filesystem::path file = is_folder ? named / "config.json" : named;
  auto made = read_json_file(file, "model configuration",
                             [](const Json& config, std::optional<Error>& error) {
                               return parse_decoder_config(config, error);
                             });
  if (made && file.has_parent_path()) {
    const std::string folder = file.parent_path().filename().string();
    if (!folder.empty() && folder != "." && folder != "..") made->model.name = folder;
  }
  return made;
}

}  // namespace perfmodel
