#pragma once

#include <cstdint>
#include <vector>

#include "loop_graph.hpp"

namespace perfmodel {

/// Where Inductor adds to a product of matrices (torch/_inductor/fx_passes/post_grad.py,
/// should_prefer_unfused_addmm()): in the loops that read the result, if all that reads it is
/// pointwise, else in the library call. Results of 16 bits keep their bias in the library call, as
/// recordings of PyTorch 2.11 do. `ops` and `graph` change, and so does `is_output`.
void place_addends(LoopGraph& graph, std::vector<std::int32_t>& ops, std::vector<bool>& is_output);

}  // namespace perfmodel
