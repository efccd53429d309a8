#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "perfmodel/layout.hpp"
#include "perfmodel/result.hpp"

/// Where the decoder of a layout question comes from: a known model, or the `config.json` of a
/// Hugging Face model.
namespace perfmodel {

struct NamedDecoder {
  DecoderModel model;
  std::int64_t sequence = 0;  ///< tokens that it was trained on at once, or has positions for
  std::vector<std::string> notes = {};  ///< parts of the model that are not modelled
};

/// The rows of data/decoders.csv that `layout` knows.
std::vector<std::string_view> decoder_names();

/// Whether two names are the same apart from case and punctuation. The last number keeps its point,
/// and in a name with punctuation all of it: "Llama_3_8B" is llama3-8b, "opt13b" is not opt-1.3b.
bool is_name_of(std::string_view given, std::string_view known);

/// Errors: an unknown name (names the nearest).
Result<NamedDecoder> find_decoder(std::string_view name);

/// Makes the layers GPT's: two products in feed-forward layers, GELU between them, biases, layer
/// norms and so many learned positions.
void make_gpt(DecoderModel& model, std::int64_t positions);

/// Reads a `config.json` with the fields of Llama, Mistral, Qwen2, Qwen3, Gemma 1 to 3, Phi-3,
/// GLM-4, GPT-2, GPT-NeoX or OPT, or with experts of Mixtral, Qwen2-MoE, Qwen3-MoE, Qwen3-Next,
/// GPT-OSS, GLM-4.5, Llama 4, MiniMax-M2, DeepSeek-V2, DeepSeek-V3 or Kimi-K2.
///
/// `file` may be the folder that holds it. If the model takes images too, `text_config` is read.
///
/// Errors: another `model_type` (names all that are known), a field that is missing or unknown (all
/// unknown ones are named), experts in some layers alone (except after first dense ones), OPT's
/// projections of embeddings.
Result<NamedDecoder> read_decoder_config(const std::filesystem::path& file);

}  // namespace perfmodel
