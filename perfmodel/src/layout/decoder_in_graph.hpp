#pragma once

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/layout.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// The job of one rank whose training step the graph is: a decoder-only transformer as `build
/// gpt|llama|opt` writes it, or a recorded one of the same ops. `global_batch` is the rank's own
/// batch; software and what else no graph tells are the defaults.
///
/// Layers, widths and heads are read off the embeddings, the products with weights and the cores
/// of attention of the forward pass. Errors: none of these found; a model whose parameters are not
/// those that the graph takes gradients of (encoders, experts, low-rank layers, ...), with both
/// numbers.
Result<LayoutJob> decoder_in_graph(const ExecutionGraph& graph);

}  // namespace perfmodel
