#pragma once

#include <cstdint>
#include <vector>

#include "loop_graph.hpp"

namespace perfmodel {

/// Where Inductor pads products of matrices (torch/_inductor/fx_passes/pad_mm.py, on by default
/// since PyTorch 2.2): a kernel copies each operand whose sizes are no multiples of 16 bytes into a
/// longer one, and readers of the result skip the columns that are too many. Only products of `ops`
/// in 16-bit types with an operand or result whose rows do not begin at multiples of 16 bytes: for
/// others the padded product is not faster. `ops` and `graph` change, and so does `is_output`.
void pad_products(const ExecutionGraph& source, LoopGraph& graph, std::vector<std::int32_t>& ops,
                  std::vector<bool>& is_output);

}  // namespace perfmodel
