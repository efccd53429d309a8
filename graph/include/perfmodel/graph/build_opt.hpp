#pragma once

#include <string_view>
#include <vector>

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/graph/transformer_config.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// OPT (Zhang et al. 2022) as HuggingFace's OPTForCausalLM writes it: norm before each part, ReLU,
/// products of [batch * heads] matrices, an added mask with torch.max below it, positions that
/// start at row 2, an output layer that shares the word embeddings.
struct OptConfig : TransformerConfig {};

/// opt-125m, opt-1.3b, opt-2.7b, opt-6.7b: 125,239,296 parameters, 1,315,758,080 and more.
Result<OptConfig> opt_preset(std::string_view name);
std::vector<std::string_view> opt_presets();

/// One step: copies of tokens and labels, mask, embeddings, layers, scores of the next token, loss.
Result<ExecutionGraph> build_opt(const OptConfig& config);

}  // namespace perfmodel
