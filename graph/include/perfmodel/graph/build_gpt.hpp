#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/graph/transformer_config.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// GPT-2 and GPT-3 (Radford et al. 2019, Brown et al. 2020) as HuggingFace's GPT2LMHeadModel writes
/// them: products with weights [in, out] ("Conv1D"), the tanh form of GELU in pointwise ops, a mask
/// of the future chosen by `aten::where`, the output layer shares the word embeddings.
struct GptConfig : TransformerConfig {
  enum class Activation {
    kGeluNew,   ///< the tanh form of GELU in eight pointwise ops, as GPT2LMHeadModel has it
    kGeluTanh,  ///< the same in one kernel
    kGelu,      ///< with erf, one kernel (nanoGPT)
    kRelu,
    kSilu,
  } activation = Activation::kGeluNew;
};

/// gpt2, gpt2-medium, gpt2-large, gpt2-xl (124,439,808 to 1,557,611,200 parameters, sequence
/// 1,024); gpt3-xl and gpt3-2.7b in the shapes of NeuSight's measurements (its XL is 3,072 wide,
/// not 2,048 as in the paper of GPT-3); gpt3-175b (96 layers of 12,288, sequence 2,048).
Result<GptConfig> gpt_preset(std::string_view name);
std::vector<std::string_view> gpt_presets();

/// `tokens` per sample. The table of positions grows with them where it has fewer rows.
void set_sequence(GptConfig& config, std::int64_t tokens);

/// One step: copies of tokens and labels, embeddings, layers, scores of the next token, loss.
Result<ExecutionGraph> build_gpt(const GptConfig& config);

}  // namespace perfmodel
