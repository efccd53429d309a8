#pragma once

#include <vector>

#include "step_question.hpp"

namespace perfmodel {

/// Layers of a pipeline's chunks such that the step is fastest, from those that `chunks` has. The
/// first chunk embeds and the last one has the output layer, all others are alike: searched are
/// their two numbers of layers, what is left is spread evenly over the rest, the first of them
/// taking one more. Errors: as `step_time`.
Result<std::vector<ChunkLayers>> search_stages(const StepQuestion& question,
                                               std::vector<ChunkLayers> chunks);

}  // namespace perfmodel
