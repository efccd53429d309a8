#pragma once

#include <cstdint>
#include <vector>

#include "loop_graph.hpp"

namespace perfmodel {

/// The ops of a region's forward and backward pass in their order, and the values kept between the
/// two.
struct PassesOfRegion {
  std::vector<std::int32_t> forward, backward;  ///< ops
  std::vector<bool> is_saved;                   ///< by value
};

/// Splits like min_cut_rematerialization_partition() of PyTorch 2
/// (torch/_functorch/partitioners.py): of the values that need no gradient, those that cost least
/// are kept, and the backward pass computes the others again. Library calls, reductions and random
/// numbers never run twice, nor do results that a library call of the backward pass reads. Ops that
/// run twice are appended to `graph`.
PassesOfRegion split_passes(LoopGraph& graph);

}  // namespace perfmodel
