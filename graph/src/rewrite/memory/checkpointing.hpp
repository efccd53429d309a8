#pragma once

#include <string_view>
#include <vector>

#include "checkpoint_segments.hpp"

namespace perfmodel {

/// An error (kImpossible) without a backward pass, or with those of several steps. `rewrite` begins
/// the message.
Result<void> check_one_backward_pass(const ExecutionGraph& graph, const BackwardPass& pass,
                                     std::string_view rewrite);
/// The same, and with checkpoints: for rewrites that recompute.
Result<void> check_recomputation(const ExecutionGraph& graph, const BackwardPass& pass,
                                 std::string_view rewrite);

/// What checkpoints keep of what they run, instead of running it again.
struct KeptInside {
  bool masks = false;     ///< of dropout
  bool products = false;  ///< results of every second matrix product and of attention
};

/// Puts torch.utils.checkpoint around the segments, see rewrite_checkpointing().
ExecutionGraph write_checkpoints(const ExecutionGraph& graph, const BackwardPass& pass,
                                 const std::vector<Segment>& segments, KeptInside kept);

}  // namespace perfmodel
