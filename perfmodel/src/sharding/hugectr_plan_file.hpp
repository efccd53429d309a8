#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "perfmodel/result.hpp"
#include "perfmodel/sharding/detail/torchrec_plan.hpp"

/// HugeCTR's plans, as its embedding collections and the planner script of its MLPerf submissions
/// have them: {"shard_strategy": [["mp", [...]], ["dp", [...]]], "shard_matrix": [[...], ...]}, a
/// list of tables per GPU or node. docs/formats.md
namespace perfmodel::sharding {

/// A plan as its file has it. Tables are names, or numbers from 0 written as text.
struct HugectrPlan {
  std::vector<std::string> model_parallel = {}, data_parallel = {};
  std::vector<std::vector<std::string>> buckets = {};  ///< tables per GPU or node
  bool by_number = false;                              ///< the file has numbers instead of names
  bool short_key = false;                              ///< "strategy" instead of "shard_strategy"
  bool operator==(const HugectrPlan&) const = default;
};

enum class HugectrBucket : std::uint8_t {
  kGpu,  ///< a bucket per rank
  kNode  ///< a bucket per host, whose ranks share each of its tables by rows
};

/// Errors, with the place: unknown keys and strategies, names mixed with numbers, a table with no
/// or with both strategies, twice or nowhere in the buckets; data-parallel tables that a bucket
/// lacks.
Result<HugectrPlan> read_hugectr_plan(const std::filesystem::path& file);

std::string hugectr_plan_text(const HugectrPlan& plan);

/// The plan's placements in the order of the tables. Buckets are GPUs if there are `world` of them,
/// nodes if there are world / local_world. A table that is in several buckets has its rows split
/// over their ranks (kRowSplit, of nodes kHostRowSplit); in one GPU it is table-wise, in one node
/// table-row-wise.
///
/// Errors (kImpossible): another number of buckets; tables missing from the plan or unknown there.
Result<std::vector<TablePlacement>> hugectr_placements(const HugectrPlan& plan,
                                                       std::span<const ShardedTable> tables,
                                                       std::int64_t world,
                                                       std::int64_t local_world);

/// The converse: in each bucket the model-parallel tables in their order, then the others.
///
/// Errors (kImpossible): another number of placements than tables; tables of one name; types,
/// kernels or ranks that such a plan cannot say, with the table.
Result<HugectrPlan> hugectr_plan(std::span<const ShardedTable> tables,
                                 std::span<const TablePlacement> placements, std::int64_t world,
                                 std::int64_t local_world, HugectrBucket bucket,
                                 bool by_number = false);

}  // namespace perfmodel::sharding
