#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "config_field.hpp"
#include "fields/result_field.hpp"
#include "perfmodel/graph/build_model.hpp"
#include "perfmodel/graph/build_recommenders.hpp"
#include "perfmodel/graph/build_transformers.hpp"
#include "perfmodel/graph/detail/decoder_layers.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// Facts about a model: lines for people, keys for programs.
struct ModelFacts {
  std::vector<std::pair<std::string, std::string>> lines;
  OrderedJson keys = OrderedJson::object();
};

/// A family of models: its presets, the fields of its config and the function that makes the graph.
template <class Config>
struct ModelFamily {
  std::string_view name, help;
  Result<Config> (*preset)(std::string_view name);  ///< null: there is none
  Result<ExecutionGraph> (*build)(const Config& config);
  ModelFacts (*facts)(const Config& config);
  /// A transformer's own fields come after transformer_fields() and training_fields().
  std::vector<ConfigField<Config>> fields;
  std::string_view first_preset = {};  ///< empty: `start`
  std::string_view preset_help = "Start from a known model; flags override it";
  std::string_view preset_takes = std::is_base_of_v<TransformerConfig, Config> ? "" : "NAME";
  Config start = {};
  void (*after_sizes)(Config& config) = nullptr;  ///< called between the two lists of fields
  /// Reads the embedding tables of a model that has some.
  Result<void> (*read_tables)(Config& config, const std::filesystem::path& file) = nullptr;
  std::string_view tables_help = {};
  std::vector<std::string_view> needed = {};  ///< fields that a model without a preset must have
  std::string_view footer = {};
};

/// Fields that all transformers share.
std::span<const ConfigField<TransformerConfig>> transformer_fields();
/// Fields of the step around a model; the first is the optimizer.
std::span<const ConfigField<TrainingOptions>> training_fields();

const ModelFamily<A3cConfig>& a3c_family();
const ModelFamily<BertConfig>& bert_family();
const ModelFamily<DecoderLayersConfig>& decoder_family();
const ModelFamily<Deepspeech2Config>& deepspeech2_family();
const ModelFamily<DlrmConfig>& dlrm_family();
const ModelFamily<FasterRcnnConfig>& faster_rcnn_family();
const ModelFamily<GptConfig>& gpt_family();
const ModelFamily<InceptionConfig>& inception_family();
const ModelFamily<LlamaConfig>& llama_family();
const ModelFamily<LstmConfig>& lstm_family();
const ModelFamily<MlpConfig>& mlp_family();
const ModelFamily<OptConfig>& opt_family();
const ModelFamily<ResnetConfig>& resnet_family();
const ModelFamily<Seq2seqConfig>& seq2seq_family();
const ModelFamily<T5Config>& t5_family();
const ModelFamily<TransformerConfig>& torch_encoder_family();
const ModelFamily<TorchrecDlrmConfig>& torchrec_family();
const ModelFamily<EncoderDecoderConfig>& transformer_family();
const ModelFamily<VggConfig>& vgg_family();
const ModelFamily<WganConfig>& wgan_family();

/// All of them, by name.
inline auto builder_families() {
  return std::tie(a3c_family(), bert_family(), decoder_family(), deepspeech2_family(),
                  dlrm_family(), faster_rcnn_family(), gpt_family(), inception_family(),
                  llama_family(), lstm_family(), mlp_family(), opt_family(), resnet_family(),
                  seq2seq_family(), t5_family(), torch_encoder_family(), torchrec_family(),
                  transformer_family(), vgg_family(), wgan_family());
}

/// "gpt" for "gpt2": the first family that has a preset of this name; empty: none has.
std::string family_of_preset(std::string_view preset);

}  // namespace perfmodel
