#pragma once

#include <string>
#include <vector>

#include "perfmodel/result.hpp"
#include "shard_study.hpp"

namespace perfmodel::cli {

/// Writes a plan as TorchRec's or HugeCTR's file, as CSV, or as one execution graph per GPU into
/// the folder `output` (rank_0.json, ...), which is made if it does not exist. `module`: path of
/// the module that holds the tables, for TorchRec's plans; empty: embedding_bag_collection.
Result<void> export_plan(const LoadedStudy& loaded,
                         const std::vector<sharding::TablePlacement>& placements,
                         const std::string& format, const std::string& output,
                         const std::string& module);

}  // namespace perfmodel::cli
