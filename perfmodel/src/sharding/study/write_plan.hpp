#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "loaded_study.hpp"
#include "perfmodel/result.hpp"
#include "shard_question.hpp"

namespace perfmodel::sharding {

/// Loads a study whose plan is written: graphs hold no settings of single tables, and other formats
/// than TorchRec's get them only if the question names them, against a warning. Empty: not written.
Result<LoadedStudy> load_study_for(const std::string& format, const ShardQuestion& question);

/// Says that a format has no place for the settings of single tables in the plan; empty: all of it
/// is written.
std::string lost_settings(const LoadedStudy& loaded, std::span<const TablePlacement> placements,
                          const std::string& format);

/// Writes a plan as TorchRec's or HugeCTR's file, as CSV, or as one execution graph per GPU into
/// the folder `output` (rank_0.json, ...), which is made if it does not exist. `module`: path of
/// the module that holds the tables, for TorchRec's plans; empty: embedding_bag_collection.
Result<void> write_plan(const LoadedStudy& loaded, const std::vector<TablePlacement>& placements,
                        const std::string& format, const std::string& output,
                        const std::string& module);

}  // namespace perfmodel::sharding
