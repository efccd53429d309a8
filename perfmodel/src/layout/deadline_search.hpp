#pragma once

#include <vector>

#include "layout/layout_report.hpp"

namespace perfmodel {

/// The fewest GPUs whose best layout is done by the deadline, among counts of whole nodes that are
/// a power of two or one and a half times one, up to 65,536 GPUs. Puts what it tried, the fewest
/// last, into the report, whose layout and run become the last one's. Errors: none is done by
/// then (the fastest is said); as search_layouts() has them.
Result<void> find_fewest_gpus(LayoutReport& report, LayoutInputs inputs,
                              const TrainingRunQuestion& question, const LayoutRunHooks& hooks);

}  // namespace perfmodel
