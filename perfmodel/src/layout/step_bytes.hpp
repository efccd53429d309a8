#pragma once

#include <cstdint>
#include <vector>

#include "step_question.hpp"

namespace perfmodel {

/// Memory of the worst rank, in bytes, without the context of the process.
struct StepBytes {
  double allocated = 0, reserved = 0;
  double weights = 0, gradients = 0, optimizer = 0, activations = 0;  ///< of that rank
};

/// Most microbatches whose activations stage `stage` of `stages` holds at a time, counted in chunks
/// of a stage: GPipe m v, 1F1B min(p - r, m), interleaved min(2 (p - 1 - r) + (v - 1) p + 1, m v).
std::int64_t live_chunks(const ParallelLayout& layout, std::int64_t microbatches,
                         std::int64_t stage);

/// Per stage: weights, gradients and optimizer's state by the sharding of the layout; activations
/// of the chunks in flight and what a backward pass makes on its way, from the lifetimes of the
/// layer graph; of the program's own, buffers and what the allocator holds beyond.
StepBytes step_bytes(const StepQuestion& question, const std::vector<ChunkLayers>& chunks);

}  // namespace perfmodel
