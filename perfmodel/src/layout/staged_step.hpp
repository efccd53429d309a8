#pragma once

#include "step_tasks.hpp"

namespace perfmodel {

/// Writes the passes of all stages in the order of the pipeline's schedule, with their messages and
/// the sums of gradients.
void add_stages(LayoutStep& step);

}  // namespace perfmodel
