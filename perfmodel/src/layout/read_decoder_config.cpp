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
constexpr std::string_view kConfigIrrelevant[] = {"_attn_implementation_autoset",
                                                  "_name_or_path",
                                                  "_remove_final_layer_norm",
                                                  "architectures",
                                                  "attention_dropout",
                                                  "attention_probs_dropout_prob",
                                                  "attn_pdrop",
                                                  "auto_map",
                                                  "bos_token_id",
                                                  "chunk_size_feed_forward",
                                                  "classifier_dropout",
                                                  "dropout",
                                                  "dtype",
                                                  "embd_pdrop",
                                                  "enable_bias",
                                                  "eos_token_id",
                                                  "hidden_dropout",
                                                  "hidden_dropout_prob",
                                                  "id2label",
                                                  "init_std",
                                                  "initializer_range",
                                                  "label2id",
                                                  "layer_norm_elementwise_affine",
                                                  "layer_norm_eps",
                                                  "layer_norm_epsilon",
                                                  "layerdrop",
                                                  "max_window_layers",
                                                  "model_type",
                                                  "output_past",
                                                  "pad_token_id",
                                                  "prefix",
                                                  "pretraining_tp",
                                                  "reorder_and_upcast_attn",
                                                  "resid_pdrop",
                                                  "rms_norm_eps",
                                                  "rope_parameters",
                                                  "rope_scaling",
                                                  "rope_theta",
                                                  "rotary_emb_base",
                                                  "rotary_pct",
                                                  "scale_attn_by_inverse_layer_idx",
                                                  "scale_attn_weights",
                                                  "summary_activation",
                                                  "summary_first_dropout",
                                                  "summary_proj_to_labels",
                                                  "summary_type",
                                                  "summary_use_proj",
                                                  "task_specific_params",
                                                  "torch_dtype",
                                                  "transformers_version",
                                                  "unk_token_id",
                                                  "use_cache",
                                                  "use_mrope",
                                                  "layer_types",
                                                  "aux_loss_alpha",
                                                  "ep_size",
                                                  "experts_per_token",
                                                  "initial_context_length",
                                                  "n_group",
                                                  "norm_topk_prob",
                                                  "num_experts_per_token",
                                                  "output_router_logits",
                                                  "qkv_bias",
                                                  "quantization_config",
                                                  "rope_interleave",
                                                  "router_aux_loss_coef",
                                                  "router_jitter_noise",
                                                  "routed_scaling_factor",
                                                  "scoring_func",
                                                  "seq_aux",
                                                  "swiglu_limit",
                                                  "topk_group",
                                                  "topk_method"};

// Names of the sizes in one family; empty: it has none.
struct ConfigFamily {
  std::string_view type;
  const char *layers, *hidden, *heads, *kv_heads, *feed_forward, *positions, *activation;
  bool llama, learned_positions, tied, biases;
  std::int64_t position_offset = 0;
  const char *experts = "", *top_k = "num_experts_per_tok", *expert_hidden = "";
  bool latent = false;
};
constexpr ConfigFamily kConfigFamilies[] = {
    {"llama", "num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads",
     "intermediate_size", "max_position_embeddings", "hidden_act", true, false, false, false},
    {"mistral", "num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads",
     "intermediate_size", "max_position_embeddings", "hidden_act", true, false, false, false},
    {"qwen2", "num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads",
     "intermediate_size", "max_position_embeddings", "hidden_act", true, false, false, false},
    {"qwen3", "num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads",
     "intermediate_size", "max_position_embeddings", "hidden_act", true, false, false, false},
    {"mixtral", "num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads",
     "intermediate_size", "max_position_embeddings", "hidden_act", true, false, false, false, 0,
     "num_local_experts", "num_experts_per_tok", "", false},
    {"qwen2_moe", "num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads",
     "intermediate_size", "max_position_embeddings", "hidden_act", true, false, false, false, 0,
     "num_experts", "num_experts_per_tok", "moe_intermediate_size", false},
    {"qwen3_moe", "num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads",
     "intermediate_size", "max_position_embeddings", "hidden_act", true, false, false, false, 0,
     "num_experts", "num_experts_per_tok", "moe_intermediate_size", false},
    {"gpt_oss", "num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads",
     "intermediate_size", "max_position_embeddings", "hidden_act", true, false, false, false, 0,
     "num_local_experts", "num_experts_per_tok", "", false},
    {"deepseek_v2", "num_hidden_layers", "hidden_size", "num_attention_heads",
     "num_key_value_heads", "intermediate_size", "max_position_embeddings", "hidden_act", true,
     false, false, false, 0, "n_routed_experts", "num_experts_per_tok", "moe_intermediate_size",
     true},
    {"deepseek_v3", "num_hidden_layers", "hidden_size", "num_attention_heads",
     "num_key_value_heads", "intermediate_size", "max_position_embeddings", "hidden_act", true,
     false, false, false, 0, "n_routed_experts", "num_experts_per_tok", "moe_intermediate_size",
     true},
    {"kimi_k2", "num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads",
     "intermediate_size", "max_position_embeddings", "hidden_act", true, false, false, false, 0,
     "n_routed_experts", "num_experts_per_tok", "moe_intermediate_size", true},
    {"gpt2", "n_layer", "n_embd", "n_head", "", "n_inner", "n_positions", "activation_function",
     false, true, true, true},
    {"gpt_neox", "num_hidden_layers", "hidden_size", "num_attention_heads", "", "intermediate_size",
     "max_position_embeddings", "hidden_act", false, false, false, true},
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
                                              "first_k_dense_replace",
                                              "moe_layer_freq",
                                              "decoder_sparse_step",
                                              "mlp_only_layers",
                                              "q_lora_rank",
                                              "kv_lora_rank",
                                              "qk_nope_head_dim",
                                              "qk_rope_head_dim",
                                              "v_head_dim",
                                              "num_nextn_predict_layers"};

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
  experts.shared += number_or(config, reader, "n_shared_experts", 0, 0) * experts.hidden;
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
  model.next_tokens = number_or(config, reader, "num_nextn_predict_layers", 0, 0);
}

// What a family may say beside its sizes.
void read_extras(const Json& config, ObjectReader& reader, const ConfigFamily& family,
                 NamedDecoder& made) {
  DecoderModel& model = made.model;
  if (reader.has("tie_word_embeddings")) model.tied = reader.boolean("tie_word_embeddings");
  for (const char* key : {"attention_bias", "mlp_bias"}) {
    if (reader.has(key) && !is_null(config, key)) model.biases |= reader.boolean(key);
  }
  if (family.type.starts_with("qwen2"))
    made.notes.push_back("the biases of Qwen2's attention are left out");
  if (family.type.starts_with("qwen3"))
    made.notes.push_back("the norms of Qwen3's heads are left out");
  if (reader.has("head_dim") && !is_null(config, "head_dim")) {
    const std::int64_t width = reader.whole_number("head_dim", 1);
    if (width * model.heads != model.hidden && !family.latent) model.head_width = width;
  }
  if (family.type == "gpt_oss") {
    // Every second layer looks back a window alone.
    model.window = number_or(config, reader, "sliding_window", 1, 0);
    model.windowed_layers = model.window > 0 ? model.layers / 2 : 0;
    model.biases = false;
    model.sinks = true;
    made.notes.push_back("biases of GPT-OSS are left out");
    return;
  }
  bool slides = reader.has("sliding_window") && !is_null(config, "sliding_window");
  if (reader.has("use_sliding_window")) slides &= reader.boolean("use_sliding_window");
  if (slides) made.notes.push_back("attention is computed whole, without the sliding window");
  if (reader.has("use_parallel_residual") && reader.boolean("use_parallel_residual")) {
    made.notes.push_back("attention and feed-forward layer are taken one behind the other");
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

// Every field that nobody asked for, in one line.
void name_unknown(const Json& config, ObjectReader& reader, const ConfigFamily& family) {
  const std::string_view known[] = {family.layers,
                                    family.hidden,
                                    family.heads,
                                    family.kv_heads,
                                    family.feed_forward,
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
    unknown.push_back(key);
  }
  if (unknown.empty()) return;
  reader.fail_at("",
                 fmt::format("the fields of a {} model (remove what changes no size)", family.type),
                 fmt::format("{}", fmt::join(unknown, ", ")));
}

NamedDecoder parse_decoder_config(const Json& config, std::optional<Error>& error) {
  NamedDecoder made;
  ObjectReader reader(config, "", error);
  const std::string type = reader.string("model_type");
  const auto family = std::ranges::find(kConfigFamilies, type, &ConfigFamily::type);
  if (family == std::end(kConfigFamilies)) {
    if (!error)
      reader.reject("model_type",
                    "one of llama, mistral, qwen2, qwen3, mixtral, qwen2_moe, qwen3_moe, gpt_oss, "
                    "deepseek_v2, deepseek_v3, kimi_k2, gpt2, gpt_neox, opt");
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

Result<NamedDecoder> read_decoder_config(const std::filesystem::path& file) {
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
