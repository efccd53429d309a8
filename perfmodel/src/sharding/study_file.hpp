#pragma once

#include <filesystem>

#include "perfmodel/result.hpp"
#include "perfmodel/sharding/sharding_study.hpp"

namespace perfmodel::sharding {

/// Reads a study. `.json`: schema `perfmodel-sharding-study` 1, with tables, machine and dense
/// part; `.csv` or `.csv.gz`: a list of tables alone, `table,rows,dim,pooling` and more columns.
/// docs/formats.md has every key and column. Names of GPUs and topologies are not looked up.
///
/// Errors, with the place: unknown keys and columns, duplicate keys, wrong types, sizes below 1,
/// unknown names (of types, kernels, optimizers, element types), tables of one name, ranks that are
/// no multiple of a host's, forbidden ranks outside of the job.
Result<ShardingStudy> read_sharding_study(const std::filesystem::path& file);

}  // namespace perfmodel::sharding
