#include "configured_decoder.hpp"

#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/each_name.hpp"
#include "layout/layer_kinds.hpp"

namespace perfmodel {
namespace {

std::string_view family_of(const DecoderModel& model) {
  if (model.gated && model.rms_norm) return "llama";
  if (model.positions == 0) return "gpt_neox";
  return model.activation == DecoderModel::Activation::kRelu ? "opt" : "gpt";
}

// Names a part that the builder of the family does not write; empty: there is none.
std::string_view unbuilt_part(const DecoderModel& model) {
  const DecoderExperts& experts = model.experts;
  if (model.delta_states) return "gated delta nets";
  if (family_of(model) == "gpt_neox") return "rotary positions with layer norms";
  if (head_width_of(model) * model.heads != model.hidden) return "heads of another width";
  if (model.latent.key_value_rank > 0) return "latent attention";
  // Chunks are a mask in transformers: scores of all tokens are worked out.
  if (model.windowed_layers > 0 && !model.chunked) return "attention in windows";
  if (model.state_layers > 0) return "state spaces";
  if (model.sinks) return "attention with sinks";
  if (experts.dense_layers > 0) return "dense layers among layers with experts";
  const std::int64_t width = expert_hidden_of(model);
  if (experts.experts > 0 && experts.shared % width != 0) return "shared experts of another width";
  if (experts.gated_shared) return "shared experts with a gate";
  if (model.next_tokens > 0) return "modules of further tokens";
  return {};
}

Result<NamedDecoder> decoder_of(const std::filesystem::path& file, std::string_view family) {
  PERFMODEL_TRY(read, read_decoder_config(file));
  const std::string_view found = family_of(read->model), part = unbuilt_part(read->model);
  if (found != family) {
    return decline(
        fmt::format("expected the config.json of a {}, found one of a {}", family, found), file);
  }
  if (part.empty()) return read;
  return decline(
      fmt::format("expected layers that `build {}` writes, found {} (`build decoder` writes them)",
                  family, part),
      file);
}

// All families have these sizes.
template <class Config>
Config sized(const NamedDecoder& decoder) {
  const DecoderModel& model = decoder.model;
  Config config;
  config.batch = 1;
  config.sequence = decoder.sequence;
  PERFMODEL_COPY(config, model, name, layers, hidden, heads, feed_forward, vocabulary);
  return config;
}

LlamaConfig llama_of(const NamedDecoder& decoder) {
  const DecoderModel& model = decoder.model;
  LlamaConfig config = sized<LlamaConfig>(decoder);
  config.dropout = 0;
  config.kv_heads = kv_heads_of(model);
  config.tied = model.tied;
  config.biases = model.biases;
  const DecoderExperts& experts = model.experts;
  if (experts.experts == 0) return config;
  config.experts = {.experts = experts.experts,
                    .top_k = experts.top_k,
                    .hidden = expert_hidden_of(model),
                    .shared = experts.shared / expert_hidden_of(model)};
  return config;
}

GptConfig gpt_of(const NamedDecoder& decoder) {
  GptConfig config = sized<GptConfig>(decoder);
  config.positions = decoder.model.positions;
  config.tied = decoder.model.tied;
  return config;
}

DecoderLayersConfig layers_of(const NamedDecoder& decoder) {
  const DecoderModel& model = decoder.model;
  auto config = sized<DecoderLayersConfig>(decoder);
  take_sizes(model, 1, config);
  config.kinds = kinds_in_order(model);
  config.experts.hidden = expert_hidden_of(model);
  PERFMODEL_COPY(config, model, next_tokens, sinks, rms_norm, tied, biases);
  config.fused = false;
  return config;
}

OptConfig opt_of(const NamedDecoder& decoder) {
  OptConfig config = sized<OptConfig>(decoder);
  config.positions = decoder.sequence;
  return config;
}

}  // namespace

bool names_config(std::string_view preset) {
  return preset.ends_with(".json") || preset.find('/') != std::string_view::npos;
}

Result<LlamaConfig> llama_of_config(const std::filesystem::path& file) {
  return decoder_of(file, "llama").map(llama_of);
}
Result<GptConfig> gpt_of_config(const std::filesystem::path& file) {
  return decoder_of(file, "gpt").map(gpt_of);
}
Result<OptConfig> opt_of_config(const std::filesystem::path& file) {
  return decoder_of(file, "opt").map(opt_of);
}

Result<DecoderLayersConfig> decoder_named(std::string_view name) {
  PERFMODEL_TRY(decoder, names_config(name) ? read_decoder_config(name) : find_decoder(name));
  if (decoder->model.positions == 0) return layers_of(*decoder);
  return decline(
      fmt::format("expected rotary positions, found learned ones (`build {}` writes them)",
                  family_of(decoder->model)),
      std::string(name));
}

bool is_model_config(const std::filesystem::path& file) {
  std::error_code failure;
  if (std::filesystem::is_directory(file, failure)) {
    return std::filesystem::is_regular_file(file / "config.json", failure);
  }
  constexpr std::uintmax_t kMostBytes = 1 << 20;
  if (file.extension() != ".json" || !std::filesystem::is_regular_file(file, failure)) return false;
  const auto size = std::filesystem::file_size(file, failure);
  if (failure || size > kMostBytes) return false;
  std::string text(size, ' ');
  std::ifstream(file, std::ios::binary).read(text.data(), static_cast<std::streamsize>(size));
  if (text.find("\"model_type\"") == text.npos) return false;  // a graph, which takes long to parse
  const auto json = nlohmann::json::parse(text, nullptr, false);
  return json.is_object() && json.contains("model_type");
}

Result<ExecutionGraph> graph_of_decoder(const NamedDecoder& decoder, std::int64_t batch) {
  const auto sized_to = [batch](auto config) {
    config.batch = batch;
    return config;
  };
  if (!unbuilt_part(decoder.model).empty())
    return build_decoder_layers(sized_to(layers_of(decoder)));
  const std::string_view family = family_of(decoder.model);
  if (family == "gpt") return build_gpt(sized_to(gpt_of(decoder)));
  return family == "opt" ? build_opt(sized_to(opt_of(decoder)))
                         : build_llama(sized_to(llama_of(decoder)));
}

}  // namespace perfmodel
