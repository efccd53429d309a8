#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

#include "perfmodel/detail/decoder_models.hpp"
#include "perfmodel/graph/build_transformers.hpp"
#include "perfmodel/graph/detail/decoder_layers.hpp"
#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/result.hpp"

/// Decoders of `build` from a Hugging Face `config.json`, with batch 1 and as many tokens as the
/// model has positions for. Errors: as read_decoder_config() has them; a model of another family;
/// layers that the family's builder does not write (heads of another width, latent attention,
/// windows, first dense layers, state spaces), which `build decoder` writes.
namespace perfmodel {

/// Whether the name of a preset is a file.
bool names_config(std::string_view preset);

Result<LlamaConfig> llama_of_config(const std::filesystem::path& file);
Result<GptConfig> gpt_of_config(const std::filesystem::path& file);
Result<OptConfig> opt_of_config(const std::filesystem::path& file);

/// A known model or a config.json with any layers but learned positions.
Result<DecoderLayersConfig> decoder_named(std::string_view name);

/// Whether a file, or the `config.json` of a folder, says the type of a model (`model_type`).
bool is_model_config(const std::filesystem::path& file);

/// One step of a decoder as its family's builder writes it, or else `build decoder`.
Result<ExecutionGraph> graph_of_decoder(const NamedDecoder& decoder, std::int64_t batch = 1);

}  // namespace perfmodel
