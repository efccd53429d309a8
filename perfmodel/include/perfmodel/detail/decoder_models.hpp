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
  std::vector<std::string> notes = {};  ///< what of the model is not modelled
};

/// gpt2 to gpt2-xl, gpt3-175b, llama2-*, llama3-*, mistral-7b, qwen2.5-*, gpt-neox-20b, opt-*,
/// the models of nanotron's published runs, and with experts mixtral-*, qwen*-moe, deepseek-*,
/// kimi-k2, gpt-oss-*, nemotron-*. Case and punctuation do not count.
std::vector<std::string_view> decoder_names();

/// Errors: an unknown name (names the nearest).
Result<NamedDecoder> find_decoder(std::string_view name);

/// Makes the layers GPT's: two products in feed-forward layers, GELU between them, biases, layer
/// norms and so many learned positions.
void make_gpt(DecoderModel& model, std::int64_t positions);

/// Reads a `config.json` with the fields of Llama, Mistral, Qwen2, Qwen3, GPT-2, GPT-NeoX or OPT,
/// or with experts of Mixtral, Qwen2-MoE, Qwen3-MoE, GPT-OSS, DeepSeek-V2, DeepSeek-V3 or Kimi-K2.
///
/// Errors: another `model_type`, a field that is missing or unknown (all unknown ones are named),
/// experts in some layers alone (but for first dense ones), OPT's projections of embeddings.
Result<NamedDecoder> read_decoder_config(const std::filesystem::path& file);

}  // namespace perfmodel
