#pragma once

#include <string_view>
#include <vector>

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/graph/transformer_config.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// T5 (Raffel et al. 2020) as HuggingFace's T5ForConditionalGeneration writes it: an encoder and a
/// decoder of root-mean-square norms, no biases, positions as a learned bias on the scores of the
/// first layer's attention, which the other layers share. `sequence` and `layers` are the
/// encoder's.
///
/// With experts it is a Switch Transformer (Fedus et al. 2022): in every second layer a router
/// sends each token to one of several feed-forward layers. How many it gets depends on the data;
/// here each expert gets its share of the tokens, at most its capacity per sample.
struct T5Config : TransformerConfig {
  std::int64_t decoder_layers = 0;
  std::int64_t target_sequence = 128;  ///< tokens per sample of the decoder
  std::int64_t head_width = 64;        ///< heads * head_width need not be hidden
  std::int64_t buckets = 32;           ///< rows of the position bias
  bool gated = false;  ///< gate * up with gelu_new (T5 1.1, FLAN); otherwise ReLU, and the output
                       ///< layer shares the word embeddings
  std::int64_t experts = 0;           ///< of a sparse layer; 0: none is sparse
  std::int64_t expert_capacity = 64;  ///< tokens of a sample that one expert takes
};

/// t5-small (60,506,624 parameters), t5-base (222,903,552), t5-large (737,668,096), flan-t5-base
/// (247,577,856), switchxl4 (NeuSight's: 24 + 24 layers, 4 experts).
Result<T5Config> t5_preset(std::string_view name);
std::vector<std::string_view> t5_presets();

/// One step: copies of tokens and labels, encoder, decoder, scores, loss.
Result<ExecutionGraph> build_t5(const T5Config& config);

}  // namespace perfmodel
