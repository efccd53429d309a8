#pragma once

#include <cstdint>
#include <vector>

#include "perfmodel/result.hpp"
#include "rank_program.hpp"

namespace perfmodel {

/// The items of a forward or backward pass of one microbatch through one chunk of layers, without
/// its messages.
struct Pass {
  bool backward = false, receives = false, sends = false;
  std::vector<std::int32_t> items;

  bool has_message() const { return receives || sends; }
};

/// The order of the passes of a pipeline. Interleaved: each stage has several chunks of layers, and
/// `stages` microbatches pass one chunk before they enter the next one, as in Megatron-LM.
struct PassOrder {
  std::int64_t stages = 1, chunks = 1, microbatches = 1;
  bool gpipe = false;  ///< all forward passes come first

  std::int64_t passes() const { return chunks * microbatches; }  ///< in one direction
  /// The number of forward passes of a stage before its first backward pass.
  std::int64_t warm_up(std::int64_t stage) const;
  /// The chunk and the microbatch of a stage's k-th forward pass.
  std::int64_t chunk_of(std::int64_t k) const { return k / stages % chunks; }
  std::int64_t microbatch_of(std::int64_t k) const {
    return chunks == 1 ? k : k / (stages * chunks) * stages + k % stages;
  }
};

/// The step of the recorded rank.
struct CutStep {
  std::vector<Pass> forward, backward;   ///< in the recorded order
  std::int64_t warm_up = 0;              ///< forward passes before the first backward pass
  std::vector<std::int32_t> tail;        ///< items after the last pass
  std::int32_t send = -1, receive = -1;  ///< items of messages, to copy
  std::int64_t stage = 0;                ///< the recorded rank's
  PassOrder order;
};

/// Cuts the step of a rank of a pipeline into passes; see `make_stage_programs`.
Result<CutStep> cut_step(const RankProgram& rank, std::int64_t stages);

}  // namespace perfmodel
