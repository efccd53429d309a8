#pragma once

#include <cstdint>
#include <vector>

#include "host_offload.hpp"
#include "step_question.hpp"

namespace perfmodel {

/// Memory of the worst rank, in whole bytes, without the context of the process: its parts, as
/// LayoutPrediction names them.
struct StepBytes {
  double weights = 0, gradients = 0, optimizer = 0, activations = 0, logits = 0, working = 0,
         gathered = 0, program = 0, allocator = 0;
  std::int64_t stage = 0;
  HostBytes host;  ///< the fullest node's

  double allocated() const {
    return weights + gradients + optimizer + activations + logits + working + gathered + program;
  }
  double reserved() const { return allocated() + allocator; }
};

/// Most microbatches whose activations stage `stage` of `stages` holds at a time, counted in chunks
/// of a stage: GPipe m v, 1F1B min(p - r, m), interleaved min(2 (p - 1 - r) + (v - 1) p + 1, m v).
std::int64_t live_chunks(const ParallelLayout& layout, std::int64_t microbatches,
                         std::int64_t stage);

/// Per stage: weights, gradients and optimizer's state by the sharding of the layout; activations
/// of the chunks in flight and what a backward pass makes on its way, from the lifetimes of the
/// layer graph; logits, by the pieces in which the loss is worked out; of the program's own,
/// buffers and what the allocator holds beyond. Offloaded parts are in host memory; the GPU
/// keeps those on their way: gradients of a unit or bucket, activations of two layers.
StepBytes step_bytes(const StepQuestion& question, const std::vector<ChunkLayers>& chunks);

/// Bytes of a checkpoint: weights and the optimizer's state, each once.
double checkpoint_bytes(const LayoutJob& job);

}  // namespace perfmodel
