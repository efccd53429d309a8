#pragma once

#include "builders/emit/graph_builder.hpp"

namespace perfmodel {

/// Dropout that is computed again with the mask of the first time: `aten::native_dropout` becomes
/// `aten::_masked_scale`, a multiplication. A CPU draws noise in ops of its own: retarget() first.

/// Whether the op draws its mask itself.
bool draws_mask(const ExecutionGraph& graph, const Node& node);
/// The multiplication in the place of `node`, which draws a mask; arguments are its own.
Node scaled_by_kept_mask(GraphBuilder& builder, const Node& node);

}  // namespace perfmodel
