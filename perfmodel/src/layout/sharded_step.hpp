#pragma once

#include "step_tasks.hpp"

namespace perfmodel {

/// Writes the microbatches of ZeRO-3 and FSDP: units are gathered and scattered around their
/// passes.
void add_sharded_step(LayoutStep& step, const ShardedWork& sharded);

}  // namespace perfmodel
