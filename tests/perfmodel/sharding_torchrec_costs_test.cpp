// TorchRec's estimates of one table, every way to cut it, against its own planner.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "perfmodel/sharding/detail/torchrec_costs.hpp"
#include "sharding_cases.hpp"

namespace perfmodel::sharding {
namespace sharding_torchrec_costs_test {

using Json = nlohmann::json;

template <class Value>
Value by_name(const std::vector<Value>& all, const std::string& name) {
  for (Value value : all) {
    if (to_string(value) == name) return value;
  }
  ADD_FAILURE() << "unknown " << name;
  return all.front();
}

const std::vector<ShardingType> kTypes = {
    ShardingType::kDataParallel, ShardingType::kTableWise,    ShardingType::kColumnWise,
    ShardingType::kRowWise,      ShardingType::kTableRowWise, ShardingType::kTableColumnWise,
    ShardingType::kGrid};
const std::vector<ComputeKernel> kKernels = {ComputeKernel::kDense, ComputeKernel::kFused,
                                             ComputeKernel::kFusedUvm,
                                             ComputeKernel::kFusedUvmCaching};

int bytes_of(const Json& dtype) { return dtype == "fp16" ? 2 : 4; }

TableOptimizer optimizer_of(const std::string& name) {
  static const std::map<std::string, TableOptimizer> all = {
      {"none", TableOptimizer::kNone},
      {"sgd", TableOptimizer::kSgd},
      {"rowwise_adagrad", TableOptimizer::kRowwiseAdagrad},
      {"adagrad", TableOptimizer::kAdagrad},
      {"adam", TableOptimizer::kAdam}};
  return all.at(name);
}

ShardedTable table_of(const Json& one) {
  const Json &json = one["table"], &features = one["features"], &cache = one["cache"];
  ShardedTable table{.name = one["id"],
                     .rows = json["rows"],
                     .dim = json["dim"],
                     .element_bytes = bytes_of(json["dtype"]),
                     .optimizer = optimizer_of(json["optimizer"]),
                     .weighted = json["weighted"],
                     .pooled = json["pooled"]};
  table.features.clear();
  for (std::size_t i = 0; i < features["pooling_factors"].size(); ++i) {
    TableFeature feature{.pooling_factor = features["pooling_factors"][i]};
    if (!features["num_poolings"].is_null()) feature.poolings = features["num_poolings"][i];
    if (!features["batch_sizes"].is_null()) feature.batch = features["batch_sizes"][i];
    table.features.push_back(feature);
  }
  if (!one["min_partition"].is_null()) table.least_columns = one["min_partition"];
  if (!one["output_dtype"].is_null()) table.output_bytes = bytes_of(one["output_dtype"]);
  if (!one["quantized_comms"].is_null()) {
    table.forward_wire_bytes = one["quantized_comms"]["fwd_bytes"];
    table.backward_wire_bytes = one["quantized_comms"]["bwd_bytes"];
  }
  if (cache.is_null()) return table;
  table.cache.load_factor = cache["load_factor"];
  table.cache.prefetches = !cache["prefetch_pipeline"].is_null() && cache["prefetch_pipeline"];
  if (!cache["stats"].is_null()) {
    table.cache.statistics = {.expected_lookups = cache["stats"]["expected_lookups"],
                              .distances = cache["stats"]["mrc_hist"]};
  }
  return table;
}

TorchrecSettings settings_of(const Json& one) {
  using Pipeline = TorchrecSettings::Pipeline;
  const Json& estimator = one["estimator"];
  const std::string pipeline = estimator["pipeline_type"];
  return {.batch = one["batch_size_per_rank"],
          .pipeline = pipeline == "none"                ? Pipeline::kNone
                      : pipeline == "train_sparse_dist" ? Pipeline::kSparseDist
                                                        : Pipeline::kPrefetchSparseDist,
          .embeddings_at_peak = estimator["embedding_at_peak"],
          .inference = estimator["is_inference"]};
}

void expect_shard(const TorchrecShardCost& cost, const Json& expected, double tolerance) {
  EXPECT_EQ(cost.size.rows, expected["size"][0].get<std::int64_t>());
  EXPECT_EQ(cost.size.columns, expected["size"][1].get<std::int64_t>());
  EXPECT_EQ(cost.hbm_bytes, expected["hbm"].get<std::int64_t>());
  EXPECT_EQ(cost.ddr_bytes, expected["ddr"].get<std::int64_t>());
  const double parts[] = {cost.forward_compute_ms, cost.forward_comms_ms, cost.backward_compute_ms,
                          cost.backward_comms_ms, cost.prefetch_ms};
  for (std::size_t i = 0; i < std::size(parts); ++i) {
    const double ms = expected["perf_ms"][i];
    EXPECT_NEAR(parts[i], ms, tolerance * ms) << "part " << i;
  }
}

TEST(TorchrecCosts, AreThoseOfItsPlanner) {
  const char* folder = std::getenv("PERFMODEL_PUBLIC_DATA");
  if (folder == nullptr) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  const auto file = std::filesystem::path(folder) / "sharding" / "torchrec_cases.json";
  const Json cases = Json::parse(std::ifstream(file)).at("cases");
  std::size_t options = 0, shards = 0;
  for (const Json& one : cases) {
    const ShardedTable table = table_of(one);
    for (const Json& option : one["options"]) {
      SCOPED_TRACE(table.name + " " + option["type"].get<std::string>() + " " +
                   option["kernel"].get<std::string>());
      const auto costs = torchrec_costs(table, by_name(kTypes, option["type"]),
                                        by_name(kKernels, option["kernel"]),
                                        topology_of(one["topology"]), settings_of(one));
      ASSERT_TRUE(costs) << to_string(costs.error());
      // TorchRec holds the miss rate of a cache in float32.
      const bool rounds = option["kernel"] == "fused_uvm_caching" && table.cache.statistics;
      std::size_t at = 0;
      for (const Json& group : option["shards"]) {
        for (std::size_t i = 0; i < group["n"].get<std::size_t>(); ++i, ++at) {
          ASSERT_LT(at, costs->size());
          expect_shard((*costs)[at], group, rounds ? 1e-6 : 1e-9);
        }
      }
      EXPECT_EQ(at, costs->size());
      shards += at;
      ++options;
    }
  }
  EXPECT_EQ(cases.size(), 20U);
  EXPECT_EQ(options, 370U);
  EXPECT_GT(shards, 3900U);
}

// Sums of parts: what holds of any table, worked out by hand for one.
TEST(TorchrecCosts, OfATableByHand) {
  const ShardedTable table{
      .name = "t", .rows = 1000, .dim = 128, .features = {{.pooling_factor = 4}}};
  const TorchrecTopology one_host{.world = 8, .local_world = 8};
  const TorchrecSettings settings{.batch = 100};
  const auto whole =
      torchrec_costs(table, ShardingType::kTableWise, ComputeKernel::kFused, one_host, settings);
  ASSERT_TRUE(whole);
  ASSERT_EQ(whole->size(), 1U);
  const TorchrecShardCost& cost = whole->front();
  const double ids = 4 * 100, vectors = 100, ranks = 8;
  const double sent = vectors * ranks * 128 * 4;
  EXPECT_DOUBLE_EQ(cost.forward_compute_ms,
                   (8 * ids * ranks + ids * ranks * 128 * 4 + sent) / one_host.hbm_bandwidth);
  EXPECT_DOUBLE_EQ(cost.forward_comms_ms, sent / one_host.intra_host_bandwidth);
  EXPECT_DOUBLE_EQ(cost.backward_compute_ms, 2 * cost.forward_compute_ms);
  EXPECT_EQ(cost.hbm_bytes, 1000 * 128 * 4 + 1000 * 4 + 8 * 400 * 8 + 100 * 8 * 128 * 4);
  EXPECT_EQ(cost.ddr_bytes, 0);
}

TEST(ShardSizes, CoverEveryElementOnce) {
  const ShardedTable table{.name = "t", .rows = 1003, .dim = 384, .least_columns = 100};
  for (ShardingType type : kTypes) {
    const auto sizes = shard_sizes(table, type, 16, 8);
    ASSERT_TRUE(sizes);
    std::int64_t elements = 0;
    for (const ShardSize& size : *sizes) elements += size.rows * size.columns;
    const std::int64_t copies = type == ShardingType::kDataParallel ? 16 : 1;
    EXPECT_EQ(elements, copies * 1003 * 384) << to_string(type);
  }
  // The smallest divisor of 384 from 100 on that is a multiple of 4.
  EXPECT_EQ(shard_sizes(table, ShardingType::kColumnWise, 16, 8)->front().columns, 128);
  EXPECT_EQ(shard_sizes(table, ShardingType::kGrid, 16, 8)->size(), 3U * 8U);
}

TEST(ShardSizes, RowsThatDoNotFillTheRanksLeaveSomeEmpty) {
  const ShardedTable table{.name = "t", .rows = 9, .dim = 16};
  const auto sizes = shard_sizes(table, ShardingType::kRowWise, 8, 8);
  ASSERT_TRUE(sizes);
  const std::vector<std::int64_t> rows = {2, 2, 2, 2, 1, 0, 0, 0};
  for (std::size_t i = 0; i < rows.size(); ++i) EXPECT_EQ((*sizes)[i].rows, rows[i]);
}

TEST(TorchrecCosts, RefuseWithAReason) {
  const auto message = [](const std::function<void(ShardedTable&, TorchrecTopology&)>& spoil,
                          ShardingType type = ShardingType::kTableWise,
                          ComputeKernel kernel = ComputeKernel::kFused) {
    ShardedTable table{.name = "t", .rows = 10, .dim = 16};
    TorchrecTopology topology;
    spoil(table, topology);
    const auto costs = torchrec_costs(table, type, kernel, topology, {});
    return costs ? std::string("priced") : costs.error().message;
  };
  const auto nothing = [](ShardedTable&, TorchrecTopology&) {};
  EXPECT_EQ(message(nothing), "priced");
  EXPECT_EQ(message([](auto& t, auto&) { t.rows = 0; }),
            "table t: expected at least one row and column, found 0 x 16");
  EXPECT_EQ(message([](auto& t, auto&) { t.rows = std::int64_t{1} << 60; }),
            "table t: expected less than 2^60 bytes, found 1152921504606846976 x 16");
  EXPECT_EQ(message([](auto& t, auto&) { t.features.clear(); }),
            "table t: expected a feature that reads it, found none");
  EXPECT_EQ(message([](auto& t, auto&) { t.features[0].pooling_factor = -1; }),
            "table t: expected a pooling factor above 0, found -1 x 1");
  EXPECT_EQ(message([](auto& t, auto&) { t.cache.load_factor = 1.5; }),
            "table t: expected a load factor above 0, up to 1, found 1.5");
  EXPECT_EQ(message([](auto&, auto& at) { at.local_world = 3; }),
            "expected ranks that are a multiple of those of a host, found 8 of 3");
  EXPECT_EQ(message([](auto& t, auto&) { t.dim = (1 << 24) + 1; }),
            "table t: expected at most 16777216 columns, found 16777217");
  EXPECT_EQ(
      message([](auto&, auto& at) { at.world = at.local_world = 1 << 21; }),
      "table t: expected at most 1048576 shards, found 1 pieces of columns for 2097152 ranks");
  EXPECT_EQ(message([](auto&, auto& at) { at.inter_host_bandwidth = 0; }),
            "table t: expected bandwidths above 0, found 0");
  EXPECT_EQ(message(nothing, ShardingType::kDataParallel),
            "table t: expected the dense kernel for data-parallel tables and for no others, found "
            "data_parallel with fused");
}

// Made-up cases: what the public ones do not hold.

// 10 rows in blocks of ceil(10 / 8) = 2: five ranks have rows, and all eight are charged for what
// goes through them.
TEST(TorchrecCosts, RanksWithoutRowsAreCharged) {
  const ShardedTable table{.name = "t", .rows = 10, .dim = 64};
  const TorchrecTopology topology{.world = 8, .local_world = 8};
  const auto costs = torchrec_costs(table, ShardingType::kRowWise, ComputeKernel::kFused, topology,
                                    {.batch = 512});
  ASSERT_TRUE(costs && costs->size() == 8);
  EXPECT_EQ((*costs)[7].size.rows, 0);
  EXPECT_EQ((*costs)[7].hbm_bytes, 0);
  // 512 ids per rank, a row of 64 x 4 bytes for each of 8 x 512 samples.
  const double output = 512.0 * 8 * 64 * 4;
  EXPECT_NEAR((*costs)[7].forward_comms_ms, output / topology.intra_host_bandwidth, 1e-12);
  EXPECT_EQ((*costs)[7].total_ms(), (*costs)[0].total_ms());
}

// Sequences of tables that are cut on a host stay in the table's type on the way to its ranks, and
// take the wire's type between hosts.
TEST(TorchrecCosts, SequencesKeepTheTypeOfTheTableInsideAHost) {
  ShardedTable table{.name = "t", .rows = 1000, .dim = 128, .pooled = false};
  table.features = {{.pooling_factor = 4}};
  table.forward_wire_bytes = table.backward_wire_bytes = 2;
  const TorchrecTopology topology{.world = 4, .local_world = 2};
  const auto costs = torchrec_costs(table, ShardingType::kTableRowWise, ComputeKernel::kFused,
                                    topology, {.batch = 512});
  ASSERT_TRUE(costs);
  // Half of 2,048 ids per rank lie in a block; four ranks send theirs.
  const double ids = 512 * 4 / 2.0, elements = ids * 4 * 128;
  const double between = ids * 2 * 128 * 2;
  EXPECT_NEAR(
      (*costs)[0].forward_comms_ms,
      elements * 4 / topology.intra_host_bandwidth + between / topology.inter_host_bandwidth,
      1e-12);
  EXPECT_NEAR((*costs)[0].forward_compute_ms,
              (ids * 4 * 8 + elements * 4 + elements * 4) / topology.hbm_bandwidth, 1e-12);
}

}  // namespace sharding_torchrec_costs_test
}  // namespace perfmodel::sharding
