#pragma once

#include "perfmodel/result.hpp"
#include "shard_report.hpp"
#include "shard_study.hpp"

namespace perfmodel::cli {

/// The best plans for the study, `keep` of them, in the costs that the arguments ask for.
Result<ShardReport> search_for_plans(const LoadedStudy& loaded, const ShardArguments& arguments,
                                     std::size_t keep);

/// Given plans, priced.
struct NamedPlacements {
  std::string name;
  std::vector<sharding::TablePlacement> placements;
};
Result<ShardReport> price_plans(const LoadedStudy& loaded, const ShardArguments& arguments,
                                const std::vector<NamedPlacements>& plans);

/// The best hashed plan (the study's) beside the best without hashing, over numbers of GPUs.
Result<CompressionReport> compare_compression(const LoadedStudy& loaded,
                                              const ShardArguments& arguments);

}  // namespace perfmodel::cli
