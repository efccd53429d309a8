#pragma once

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/graph/transformer_config.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// nn.Embedding, `layers` of nn.TransformerEncoderLayer (batch first, norm behind the sum, GELU)
/// and a linear layer to the vocabulary, with the cross entropy of each token. Positions are not
/// used.
///
/// Training goes through F.multi_head_attention_forward: one product for queries, keys and values
/// of [sequence, batch, hidden]; PyTorch 1.13 computes the attention in ops of its own
/// (`Attention::kEager` is what it does; other values are refused there).
///
/// Errors: sizes that are not positive or do not divide, or that make tensors of 2^60 elements.
Result<ExecutionGraph> build_torch_encoder(const TransformerConfig& config);

}  // namespace perfmodel
