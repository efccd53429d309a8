#pragma once

#include <string_view>
#include <vector>

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/graph/transformer_config.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// A decoder with root-mean-square norms, rotary positions, gated feed-forward layers and grouped
/// keys and values (Touvron et al. 2023), as HuggingFace's LlamaForCausalLM writes it. There is no
/// dropout; `feed_forward` is the width of gate and up products.
struct LlamaConfig : TransformerConfig {
  std::int64_t kv_heads = 0;  ///< heads of keys and values; heads is a multiple of it
};

/// llama-7b (6,738,415,616 parameters), llama2-13b, llama3-8b (8,030,261,248), tinyllama-1.1b
/// (1,100,048,384) and llama-small (12 layers of 768).
Result<LlamaConfig> llama_preset(std::string_view name);
std::vector<std::string_view> llama_presets();

/// One step: copies of tokens and labels, embeddings, layers, scores of the next token, loss.
Result<ExecutionGraph> build_llama(const LlamaConfig& config);

}  // namespace perfmodel
