#pragma once

#include "perfmodel/overheads.hpp"
#include "perfmodel/result.hpp"
#include "perfmodel/sharding/detail/batch_model.hpp"

namespace perfmodel::sharding {

/// Time that a host needs to launch one batch of TorchRec's DLRM op by op, from the host's overhead
/// table: it compares predictions of built graphs that differ in one kind of exchange or in the
/// number of its tables. Layers of the dense part count as layers of MLPs (two for each cross
/// layer).
///
/// Errors of predict(). With one GPU there are no exchanges to learn from: `kinds` are 0.
Result<HostNeeds> eager_host(const ShardingStudy& study, const Gpu& gpu,
                             const OverheadTable& overheads);

}  // namespace perfmodel::sharding
