#pragma once

#include "graph_builder.hpp"

namespace perfmodel {

/// aten::_adaptive_avg_pool2d of x [B, C, H, W], windows so that [height, width] come out, and its
/// gradient.
TensorRef windows_of_any_size(GraphBuilder& graph, TensorRef x, const Shape& size,
                              std::int64_t sequence);
TensorRef windows_of_any_size_backward(GraphBuilder& graph, TensorRef gradient, TensorRef x);

}  // namespace perfmodel
