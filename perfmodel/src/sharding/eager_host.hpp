#pragma once

#include "perfmodel/overheads.hpp"
#include "perfmodel/result.hpp"
#include "perfmodel/sharding/detail/batch_model.hpp"

namespace perfmodel::sharding {

/// What a batch of TorchRec's DLRM costs the host that launches it op by op, from the overhead
/// table of a host: predictions of built graphs that differ in one kind of exchange or in the
/// number of its tables. Layers of the dense part count as layers of MLPs (two for each cross
/// layer).
///
/// Errors: those of predict(); one GPU has no exchanges to learn from, there `kinds` are 0.
Result<HostNeeds> eager_host(const ShardingStudy& study, const Gpu& gpu,
                             const OverheadTable& overheads);

}  // namespace perfmodel::sharding
