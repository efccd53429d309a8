#pragma once

#include "graph_builder.hpp"

namespace perfmodel {

/// torchvision.ops.nms: boxes [N, 4], scores [N] -> the rows of `kept` boxes. How many are kept
/// depends on data: it is given. The host waits for the device.
TensorRef non_maximum_suppression(GraphBuilder& graph, TensorRef boxes, TensorRef scores,
                                  double overlap, std::int64_t kept);

}  // namespace perfmodel
