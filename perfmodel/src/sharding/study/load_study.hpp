#pragma once

#include <string>
#include <vector>

#include "loaded_study.hpp"
#include "perfmodel/result.hpp"
#include "shard_question.hpp"

namespace perfmodel::sharding {

/// Reads the tables (a study, a CSV list, a list of a framework or an execution graph); values in
/// the question override theirs. Errors: the readers'; no GPU, world or batch anywhere; unknown
/// names.
Result<LoadedStudy> load_study(const ShardQuestion& question);

/// A plan file, TorchRec's or HugeCTR's, for the tables of the study. Errors: the readers';
/// a plan for another number of GPUs or for other tables.
Result<std::vector<TablePlacement>> load_plan(const std::string& file, const LoadedStudy& loaded);

}  // namespace perfmodel::sharding
