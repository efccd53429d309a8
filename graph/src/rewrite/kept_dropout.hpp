#pragma once

#include "build/emit/graph_builder.hpp"

namespace perfmodel {

/// Dropout that is computed again with the mask of the first time: a multiplication, which draws
/// nothing. On a GPU `aten::native_dropout` becomes `aten::_masked_scale`; on a CPU the noise
/// stands in ops of its own and the `aten::mul` behind them stays.

/// Whether the op draws its mask itself.
bool draws_mask(const ExecutionGraph& graph, const Node& node);
/// Whether the op makes noise for an `aten::dropout` around it.
bool makes_noise(const ExecutionGraph& graph, const Node& node);
/// The multiplication in the place of `node`, which draws a mask; arguments are its own.
Node scaled_by_kept_mask(GraphBuilder& builder, const Node& node);

}  // namespace perfmodel
