#pragma once

#include <string_view>
#include <vector>

#include "checkpoint_segments.hpp"

namespace perfmodel {

/// What every rewrite that recomputes asks for (kImpossible): a backward pass, of one step; no
/// checkpoints yet. `rewrite` begins the message.
Result<void> check_recomputation(const ExecutionGraph& graph, const BackwardPass& pass,
                                 std::string_view rewrite);

/// Puts torch.utils.checkpoint around the segments, see rewrite_checkpointing().
ExecutionGraph write_checkpoints(const ExecutionGraph& graph, const BackwardPass& pass,
                                 const std::vector<Segment>& segments, bool keeps_masks);

}  // namespace perfmodel
