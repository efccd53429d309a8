#include "hugectr_plan_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "refuse_table.hpp"
#include "table_names.hpp"

namespace perfmodel::sharding {
namespace {

// ------------------------------------------------------------------------------------------ read

class HugectrPlanReader {
 public:
  explicit HugectrPlanReader(std::optional<Error>& error) : error_(error) {}

  HugectrPlan read(const Json& document) {
    ObjectReader root(document, "", error_);
    const bool has_long = root.has("shard_strategy");
    plan_.short_key = root.has("strategy");
    if (has_long && plan_.short_key) {
      root.reject("strategy", "shard_strategy or strategy, not both");
    }
    read_strategies(root, plan_.short_key ? "strategy" : "shard_strategy");
    read_buckets(root);
    root.finish();
    check_coverage(root);
    return std::move(plan_);
  }

 private:
  /// Tables by name or, all of them, by number.
  std::vector<std::string> read_tables(ObjectReader& root, const Json& list,
                                       const std::string& pointer) {
    std::vector<std::string> tables;
    if (!list.is_array()) root.fail_at(pointer, "a list of tables", found(list));
    for (std::size_t i = 0; i < list.size() && !error_; ++i) {
      const Json& table = list[i];
      const bool is_number = table.is_number_unsigned();
      if (!is_number && !table.is_string()) {
        root.fail_at(fmt::format("{}/{}", pointer, i), "the name or number of a table",
                     found(table));
      } else if (any_ && is_number != plan_.by_number) {
        root.fail_at(fmt::format("{}/{}", pointer, i),
                     plan_.by_number ? "a number, as before" : "a name, as before", found(table));
      }
      if (error_) break;
      any_ = true;
      plan_.by_number = is_number;
      tables.push_back(is_number ? std::to_string(table.get<std::uint64_t>())
                                 : table.get<std::string>());
    }
    return tables;
  }

  void read_strategies(ObjectReader& root, const char* key) {
    const Json* list = root.array(key);
    for (std::size_t i = 0; list && i < list->size() && !error_; ++i) {
      const Json& entry = (*list)[i];
      const std::string pointer = fmt::format("{}/{}", root.pointer(key), i);
      if (!entry.is_array() || entry.size() != 2) {
        root.fail_at(pointer, "a strategy and its tables", found(entry));
        return;
      }
      const bool is_model = entry[0] == "mp";
      if (!is_model && entry[0] != "dp") {
        root.fail_at(pointer + "/0", "\"mp\" or \"dp\"", found(entry[0]));
        return;
      }
      for (std::string& table : read_tables(root, entry[1], pointer + "/1")) {
        if (!strategy_of_.emplace(table, is_model).second) {
          root.fail_at(pointer, "each table once", fmt::format("{} twice", table));
        }
        (is_model ? plan_.model_parallel : plan_.data_parallel).push_back(std::move(table));
      }
    }
  }

  void read_buckets(ObjectReader& root) {
    const Json* list = root.array("shard_matrix");
    if (list && list->empty()) root.reject("shard_matrix", "at least one list of tables");
    for (std::size_t b = 0; list && b < list->size() && !error_; ++b) {
      const std::string pointer = fmt::format("/shard_matrix/{}", b);
      std::vector<std::string> tables = read_tables(root, (*list)[b], pointer);
      if (error_) return;
      const std::set<std::string> here(tables.begin(), tables.end());
      for (std::size_t i = 0; i < tables.size(); ++i) {
        if (strategy_of_.contains(tables[i])) continue;
        root.fail_at(fmt::format("{}/{}", pointer, i), "tables that have a strategy", tables[i]);
      }
      if (here.size() != tables.size()) {
        root.fail_at(pointer, "each table once", fmt::format("{} twice", repeated(tables)));
      }
      for (const std::string& table : plan_.data_parallel) {
        if (here.contains(table)) continue;
        root.fail_at(pointer, "all data-parallel tables", fmt::format("a list without {}", table));
      }
      placed_.insert(here.begin(), here.end());
      plan_.buckets.push_back(std::move(tables));
    }
  }

  static std::string repeated(const std::vector<std::string>& tables) {
    std::set<std::string_view> seen;
    const auto at = std::ranges::find_if(
        tables, [&](const std::string& table) { return !seen.insert(table).second; });
    return at == tables.end() ? std::string() : *at;
  }

  void check_coverage(ObjectReader& root) {
    for (const std::string& table : plan_.model_parallel) {
      if (!placed_.contains(table)) {
        root.fail_at("/shard_matrix", fmt::format("table {} in some list", table), "it in none");
      }
    }
    if (strategy_of_.empty()) root.fail_at("", "at least one table", "none");
  }

  std::optional<Error>& error_;
  HugectrPlan plan_;
  bool any_ = false;
  std::map<std::string, bool> strategy_of_;  // whether it is model-parallel
  std::set<std::string> placed_;
};

// ----------------------------------------------------------------------------------------- write

std::string list_text(const std::vector<std::string>& tables, bool by_number) {
  if (by_number) return fmt::format("[{}]", fmt::join(tables, ", "));
  std::vector<std::string> names;
  for (const std::string& table : tables) {
    names.push_back(Json(table).dump(-1, ' ', false, Json::error_handler_t::replace));
  }
  return fmt::format("[{}]", fmt::join(names, ", "));
}

// ------------------------------------------------------------------------------------ placements

Result<HugectrBucket> bucket_kind(const HugectrPlan& plan, std::int64_t world,
                                  std::int64_t local_world) {
  const auto buckets = static_cast<std::int64_t>(plan.buckets.size());
  if (buckets == world) return HugectrBucket::kGpu;
  if (local_world > 0 && buckets * local_world == world) return HugectrBucket::kNode;
  return decline(fmt::format("expected lists of tables for {} GPUs or {} nodes, found {}", world,
                             local_world > 0 ? world / local_world : 0, buckets));
}

Result<void> check_job(std::int64_t world, std::int64_t local_world) {
  if (world >= 1 && local_world >= 1 && world % local_world == 0) return {};
  return decline(fmt::format(
      "expected ranks that are a multiple of those of a host, found {} of {}", world, local_world));
}

/// Buckets of each table, by the name or number in the plan.
std::map<std::string, std::vector<std::int64_t>> buckets_of_tables(const HugectrPlan& plan) {
  std::map<std::string, std::vector<std::int64_t>> buckets;
  for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
    for (const std::string& table : plan.buckets[b]) {
      buckets[table].push_back(static_cast<std::int64_t>(b));
    }
  }
  return buckets;
}

TablePlacement placement_in(const std::vector<std::int64_t>& buckets, HugectrBucket kind,
                            std::int64_t local_world) {
  TablePlacement placement;
  const std::int64_t ranks = kind == HugectrBucket::kGpu ? 1 : local_world;
  for (std::int64_t bucket : buckets) {
    for (std::int64_t i = 0; i < ranks; ++i) placement.ranks.push_back(bucket * ranks + i);
  }
  if (buckets.size() > 1) {
    placement.type = ranks == 1 ? ShardingType::kRowSplit : ShardingType::kHostRowSplit;
  } else {
    placement.type = ranks == 1 ? ShardingType::kTableWise : ShardingType::kTableRowWise;
  }
  return placement;
}

/// Buckets that a model-parallel table is in.
Result<std::vector<std::int64_t>> buckets_of(const ShardedTable& table,
                                             const TablePlacement& placement, std::int64_t world,
                                             std::int64_t local_world, HugectrBucket kind) {
  const std::int64_t per_bucket = kind == HugectrBucket::kGpu ? 1 : local_world;
  const bool one =
      placement.type == (per_bucket == 1 ? ShardingType::kTableWise : ShardingType::kTableRowWise);
  const ShardingType split =
      per_bucket == 1 ? ShardingType::kRowSplit : ShardingType::kHostRowSplit;
  if (!one && placement.type != split) {
    return refuse_table(table,
                        fmt::format("data_parallel, {} or {} in HugeCTR's plan per {}",
                                    per_bucket == 1 ? "table_wise" : "table_row_wise",
                                    to_string(split), kind == HugectrBucket::kGpu ? "GPU" : "node"),
                        to_string(placement.type));
  }
  if (placement.kernel != ComputeKernel::kFused) {
    return refuse_table(table, "kernel fused in HugeCTR's plan", to_string(placement.kernel));
  }
  std::vector<std::int64_t> ranks = placement.ranks;
  std::ranges::sort(ranks);
  const auto listed = fmt::format("ranks {}", fmt::join(ranks, ", "));
  if (ranks.empty() || ranks.front() < 0 || ranks.back() >= world) {
    return refuse_table(table, fmt::format("ranks from 0 to {}", world - 1), listed);
  }
  const auto size = static_cast<std::size_t>(per_bucket);
  std::vector<std::int64_t> buckets;
  for (std::size_t begin = 0; begin < ranks.size(); begin += size) {
    const std::int64_t bucket = ranks[begin] / per_bucket;
    bool whole = begin + size <= ranks.size() && (buckets.empty() || buckets.back() < bucket);
    for (std::size_t i = 0; whole && i < size; ++i) {
      whole = ranks[begin + i] == bucket * per_bucket + static_cast<std::int64_t>(i);
    }
    if (!whole) {
      return refuse_table(
          table, per_bucket == 1 ? "each rank once" : "all ranks of each node, once", listed);
    }
    buckets.push_back(bucket);
  }
  if (one && buckets.size() != 1) {
    return refuse_table(table, per_bucket == 1 ? "one rank" : "the ranks of one node", listed);
  }
  return buckets;
}

}  // namespace

Result<HugectrPlan> read_hugectr_plan(const std::filesystem::path& file) {
  return read_json_file(file, "HugeCTR plan",
                        [](const Json& document, std::optional<Error>& error) {
                          return HugectrPlanReader(error).read(document);
                        });
}

std::string hugectr_plan_text(const HugectrPlan& plan) {
  std::string text =
      fmt::format("{{\n  \"{}\": [[\"mp\", {}], [\"dp\", {}]],\n  \"shard_matrix\": [",
                  plan.short_key ? "strategy" : "shard_strategy",
                  list_text(plan.model_parallel, plan.by_number),
                  list_text(plan.data_parallel, plan.by_number));
  for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
    text += (b == 0 ? "\n    " : ",\n    ") + list_text(plan.buckets[b], plan.by_number);
  }
  return text + "\n  ]\n}\n";
}

Result<std::vector<TablePlacement>> hugectr_placements(const HugectrPlan& plan,
                                                       std::span<const ShardedTable> tables,
                                                       std::int64_t world,
                                                       std::int64_t local_world) {
  PERFMODEL_TRY_TO(check_job(world, local_world));
  PERFMODEL_TRY(kind, bucket_kind(plan, world, local_world));
  const auto buckets = buckets_of_tables(plan);
  const std::set<std::string> replicated(plan.data_parallel.begin(), plan.data_parallel.end());
  std::set<std::string> left;
  for (const auto& [name, where] : buckets) left.insert(name);
  std::vector<TablePlacement> placements;
  for (std::size_t t = 0; t < tables.size(); ++t) {
    const std::string name = plan.by_number ? std::to_string(t) : tables[t].name;
    const auto where = buckets.find(name);
    if (where == buckets.end()) {
      return refuse_table(tables[t], "it in the plan",
                          plan.by_number ? "no table " + name : "none");
    }
    left.erase(name);
    if (replicated.contains(name)) {
      placements.push_back({.type = ShardingType::kDataParallel, .kernel = ComputeKernel::kDense});
    } else {
      placements.push_back(placement_in(where->second, *kind, local_world));
    }
  }
  if (!left.empty()) {
    return decline(fmt::format("expected a plan for {} tables, found another table in it, {}",
                               tables.size(), *left.begin()));
  }
  return placements;
}

Result<HugectrPlan> hugectr_plan(std::span<const ShardedTable> tables,
                                 std::span<const TablePlacement> placements, std::int64_t world,
                                 std::int64_t local_world, HugectrBucket bucket, bool by_number) {
  PERFMODEL_TRY_TO(check_job(world, local_world));
  PERFMODEL_TRY_TO(check_placements(tables, placements));
  HugectrPlan plan{.by_number = by_number};
  const std::int64_t buckets = bucket == HugectrBucket::kGpu ? world : world / local_world;
  plan.buckets.resize(buckets);
  std::set<std::string> names;
  for (std::size_t t = 0; t < tables.size(); ++t) {
    const std::string name = by_number ? std::to_string(t) : tables[t].name;
    if (!names.insert(name).second) return refuse_table(tables[t], "a name of its own", "it twice");
    if (placements[t].type == ShardingType::kDataParallel) {
      if (placements[t].kernel != ComputeKernel::kDense) {
        return refuse_table(tables[t], "kernel dense in HugeCTR's plan",
                            to_string(placements[t].kernel));
      }
      plan.data_parallel.push_back(name);
      continue;
    }
    PERFMODEL_TRY(where, buckets_of(tables[t], placements[t], world, local_world, bucket));
    plan.model_parallel.push_back(name);
    for (std::int64_t b : *where) plan.buckets[b].push_back(name);
  }
  for (std::vector<std::string>& tables_here : plan.buckets) {
    tables_here.insert(tables_here.end(), plan.data_parallel.begin(), plan.data_parallel.end());
  }
  return plan;
}

}  // namespace perfmodel::sharding
