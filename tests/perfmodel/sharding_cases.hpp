#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "perfmodel/sharding/detail/torchrec_plan.hpp"

namespace perfmodel::sharding {

using Json = nlohmann::json;

inline ShardedTable table_of(const std::string& name, std::int64_t rows, std::int64_t dim) {
  return {.name = name, .rows = rows, .dim = dim};
}

/// A topology of TorchRec's public cases.
inline TorchrecTopology topology_of(const Json& json) {
  return {.world = json["world_size"],
          .local_world = json["local_world_size"],
          .hbm_cap = json["hbm_cap"],
          .ddr_cap = json["ddr_cap"],
          .hbm_bandwidth = json["hbm_mem_bw"],
          .ddr_bandwidth = json["ddr_mem_bw"],
          .host_link_bandwidth = json["hbm_to_ddr_mem_bw"],
          .intra_host_bandwidth = json["intra_host_bw"],
          .inter_host_bandwidth = json["inter_host_bw"],
          .backward_compute_multiplier = json["bwd_compute_multiplier"],
          .weighted_backward_multiplier = json["weighted_feature_bwd_compute_multiplier"]};
}

/// A public file; null where PERFMODEL_PUBLIC_DATA is not set.
inline Json public_json(const std::string& name) {
  const char* folder = std::getenv("PERFMODEL_PUBLIC_DATA");
  if (folder == nullptr) return {};
  return Json::parse(std::ifstream(std::filesystem::path(folder) / "sharding" / name));
}

inline TableOptimizer optimizer_of(const std::string& name) {
  if (name == "sgd") return TableOptimizer::kSgd;
  if (name == "adagrad") return TableOptimizer::kAdagrad;
  EXPECT_EQ(name, "rowwise_adagrad");
  return TableOptimizer::kRowwiseAdagrad;
}

/// Tables of a case of torchrec_plan_cases.json.
inline std::vector<ShardedTable> tables_of_case(const Json& one, const Json& models) {
  std::vector<ShardedTable> tables;
  ShardedTable table{.name = "",
                     .element_bytes = one["dtype"] == "fp16" ? 2 : 4,
                     .optimizer = optimizer_of(one["optimizer"])};
  if (one.contains("cache_load_factor") && !one["cache_load_factor"].is_null())
    table.cache.load_factor = one["cache_load_factor"];
  const auto add = [&](std::int64_t rows, std::int64_t dim, const std::vector<double>& poolings) {
    table.name = "t" + std::to_string(tables.size());
    table.rows = rows;
    table.dim = dim;
    table.features.clear();
    for (double pooling : poolings) table.features.push_back({.pooling_factor = pooling});
    tables.push_back(table);
  };
  if (one.contains("tables")) {
    for (const Json& row : one["tables"]) add(row[0], row[1], {row[2].get<double>()});
    return tables;
  }
  for (const Json& group : models[one["model"].get<std::string>()]["tables"]) {
    for (int i = 0; i < group["count"].get<int>(); ++i) {
      add(group["rows"], group["dim"], group["hotness"].get<std::vector<double>>());
    }
  }
  return tables;
}

inline TablePlacement placement_of(const Json& assigned) {
  const auto type = sharding_type(assigned[1].get<std::string>());
  const auto kernel = compute_kernel(assigned[2].get<std::string>());
  EXPECT_TRUE(type && kernel) << assigned;
  TablePlacement placement{.type = *type, .kernel = *kernel};
  if (assigned[3] != "all") placement.ranks = assigned[3].get<std::vector<std::int64_t>>();
  return placement;
}

/// Placements of TorchRec's planner in such a case.
inline std::vector<TablePlacement> placements_of_case(const Json& one,
                                                      const std::vector<ShardedTable>& tables) {
  std::vector<TablePlacement> placements;
  EXPECT_EQ(one["assignment"].size(), tables.size());
  for (std::size_t t = 0; t < tables.size(); ++t) {
    EXPECT_EQ(one["assignment"][t][0], tables[t].name);
    placements.push_back(placement_of(one["assignment"][t]));
  }
  return placements;
}

}  // namespace perfmodel::sharding
