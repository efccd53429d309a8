#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "perfmodel/result.hpp"
#include "perfmodel/sharding/sharding_study.hpp"

/// TorchRec's plans: {"plan": {module: {table: {sharding_type, compute_kernel, ranks, shards}}}},
/// shards being [{shard_offsets, shard_sizes, placement: "rank:R/cuda:r"}] with r = R modulo the
/// ranks of a host, or null for data-parallel tables. docs/formats.md
namespace perfmodel::sharding {

/// The text of a plan file: a line per shard. `modules`: one name for all tables, or one per table.
/// Tables of a module stand together, otherwise in the order given.
///
/// Errors (kImpossible): another number of placements or modules than tables, tables of one name, a
/// table that TorchRec cannot cut so (kRowSplit), what shard_sizes() and shard_ranks() refuse.
Result<std::string> torchrec_plan_text(std::span<const ShardedTable> tables,
                                       std::span<const TablePlacement> placements,
                                       std::int64_t world, std::int64_t local_world,
                                       std::span<const std::string> modules = {});

/// Tables come sorted by module and name. `world` and `local_world` are set if the file tells them:
/// by shards on all ranks, by rows cut on a host, by the places of shards.
///
/// Errors, with the place: unknown keys, types and kernels; sizes and offsets of shards that are
/// not how TorchRec cuts a table of that size; places that contradict the ranks or each other; a
/// table in two modules.
Result<NamedPlan> read_torchrec_plan(const std::filesystem::path& file);

/// The plan's placements in the order of the tables.
///
/// Errors (kImpossible): tables without a placement, placements without a table (named); other
/// sizes.
Result<std::vector<TablePlacement>> match_plan(std::span<const ShardedTable> tables,
                                               const NamedPlan& plan);

}  // namespace perfmodel::sharding
