// Tables that TorchRec has cut: what each rank looks up and exchanges.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <numeric>
#include <set>

#include "../scratch.hpp"
#include "perfmodel/graph/build_recommenders.hpp"
#include "perfmodel/graph/model_size.hpp"
#include "perfmodel/graph/read_execution_graph.hpp"
#include "perfmodel/graph/write_execution_graph.hpp"
#include "torchrec_plans.hpp"

namespace perfmodel {
namespace build_torchrec_shards_test {

using test_support::column_pieces;
using test_support::every_sharding;
using test_support::row_blocks;

constexpr std::int64_t kWorld = 8, kLocal = 4, kBatch = 6, kDim = 16;

ExecutionGraph build(const TorchrecDlrmConfig& config) {
  auto graph = build_torchrec_dlrm(config);
  EXPECT_TRUE(graph) << to_string(graph.error());
  return std::move(graph).value();
}

const std::vector<ExecutionGraph>& every_rank() {
  static const std::vector<ExecutionGraph> ranks = [] {
    std::vector<ExecutionGraph> made;
    for (std::int64_t rank = 0; rank < kWorld; ++rank) made.push_back(build(every_sharding(rank)));
    return made;
  }();
  return ranks;
}

// One table on the job of every_sharding().
TorchrecDlrmConfig one_table(std::int64_t rank, TableSharding sharding,
                             std::vector<TableShard> shards) {
  TorchrecDlrmConfig config = every_sharding(rank);
  config.tables = {{.num_rows = 80,
                    .dim = kDim,
                    .pooling_factor = 5,
                    .shards = std::move(shards),
                    .sharding = sharding}};
  return config;
}

struct Collective {
  const CommRecord* record = nullptr;
  std::int64_t in = 0, out = 0;  // elements
};

std::int64_t elements(const ExecutionGraph& graph, std::span<const Argument> arguments) {
  for (const Argument& argument : arguments) {
    if (argument.kind == Argument::Kind::kTensor) return graph.tensors[argument.index].numel;
    if (argument.kind == Argument::Kind::kList) {
      return elements(graph, graph.elements(argument));
    }
  }
  return 0;
}

std::vector<Collective> collectives(const ExecutionGraph& graph, std::string_view kind) {
  std::vector<Collective> found;
  for (const Node& node : graph.nodes) {
    if (node.comm < 0) continue;
    const CommRecord& record = graph.comm_records[static_cast<std::size_t>(node.comm)];
    if (record.collective != kind) continue;
    found.push_back(
        {&record, elements(graph, graph.inputs(node)), elements(graph, graph.outputs(node))});
  }
  return found;
}

std::size_t count(const ExecutionGraph& graph, std::string_view name) {
  return static_cast<std::size_t>(std::ranges::count_if(
      graph.nodes, [&](const Node& node) { return graph.name(node) == name; }));
}

// Ranks of the job that are in the group of a record.
std::vector<std::int64_t> members(const ExecutionGraph& graph, const CommRecord& record) {
  for (const ProcessGroup& group : graph.process_groups) {
    if (group.name == record.process_group && !group.ranks.empty()) return group.ranks;
  }
  std::vector<std::int64_t> all(static_cast<std::size_t>(kWorld));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

struct Lookups {
  std::int64_t indices = 0, outputs = 0, elements = 0;
  std::size_t count = 0;
};

// Lookups of sharded tables.
Lookups lookups(const ExecutionGraph& graph) {
  constexpr std::size_t kWeights = 1, kIndices = 11;
  Lookups sum;
  for (const Node& node : graph.nodes) {
    if (graph.name(node) != "fbgemm::split_embedding_codegen_lookup_adagrad_function") continue;
    ++sum.count;
    sum.elements += graph.tensors[graph.inputs(node)[kWeights].index].numel;
    sum.indices += graph.tensors[graph.inputs(node)[kIndices].index].numel;
    sum.outputs += elements(graph, graph.outputs(node));
  }
  return sum;
}

TEST(TorchrecShards, EveryRankIssuesTheSameCollectivesInTheSameOrder) {
  const auto sequence = [](const ExecutionGraph& graph) {
    std::vector<std::pair<std::int64_t, std::string>> all;
    for (const CommRecord& record : graph.comm_records) {
      if (record.collective != "wait") all.emplace_back(record.sequence, record.collective);
    }
    return all;
  };
  const auto first = sequence(every_rank()[0]);
  // Vectors of 4 groups and of 2 with hosts, sizes, lengths and values of 6; 2 reducers.
  EXPECT_EQ(first.size(), 2 * (4 + 2 * 2) + 3 * 6 + 2U);
  for (const ExecutionGraph& graph : every_rank()) EXPECT_EQ(sequence(graph), first);
}

TEST(TorchrecShards, WhatOneRankSendsAnotherReceives) {
  std::map<std::pair<std::string, std::int64_t>, std::map<std::int64_t, const CommRecord*>>
      meetings;
  for (std::int64_t rank = 0; rank < kWorld; ++rank) {
    for (const Collective& c :
         collectives(every_rank()[static_cast<std::size_t>(rank)], "all_to_allv")) {
      meetings[{c.record->process_group, c.record->sequence}][rank] = c.record;
    }
  }
  // All ranks: lengths and values of 6 groups, vectors and gradients of 3; in each place of the
  // hosts: vectors and gradients of 2 groups.
  EXPECT_EQ(meetings.size(), 6 * 2 + 3 * 2 + kLocal * 2 * 2U);
  for (const auto& [key, records] : meetings) {
    for (const auto& [from, sent] : records) {
      const auto ranks = members(every_rank()[static_cast<std::size_t>(from)], *sent);
      ASSERT_EQ(ranks.size(), records.size());
      const auto place = std::ranges::find(ranks, from) - ranks.begin();
      for (std::size_t to = 0; to < ranks.size(); ++to) {
        EXPECT_EQ(sent->in_splits[to],
                  records.at(ranks[to])->out_splits[static_cast<std::size_t>(place)])
            << "group " << key.first << ", number " << key.second << " from " << from;
      }
    }
  }
}

TEST(TorchrecShards, EveryCollectiveOfTheStepOrTheOneBeforeIsAwaited) {
  for (const ExecutionGraph& graph : every_rank()) {
    // DDP waits for all-reduces by itself.
    std::set<std::int64_t> numbers, awaited;
    std::int64_t step = 0;
    for (const CommRecord& record : graph.comm_records) {
      step += record.collective != "wait";
      if (record.collective == "wait" || record.collective == "allreduce") continue;
      numbers.insert(record.sequence);
    }
    for (const CommRecord& record : graph.comm_records) {
      if (record.collective != "wait") continue;
      EXPECT_GE(record.sequence, 0);
      const bool before = record.sequence < *numbers.begin();
      EXPECT_TRUE(awaited.insert(record.sequence + (before ? step : 0)).second);
    }
    EXPECT_EQ(awaited, numbers);
  }
}

TEST(TorchrecShards, IndicesOfAllRanksAreLookedUpOncePerPieceOfColumns) {
  // Pooling factors, with the pieces of columns and the ranks that add up its vectors.
  std::int64_t indices = 0, outputs = 0, parameters = 0;
  const TorchrecDlrmConfig config = every_sharding(0);
  for (const PlacedTable& table : config.tables) {
    if (table.kind() == TableSharding::kDataParallel) continue;
    std::int64_t pieces = 1, blocks = 1;
    switch (table.kind()) {
      case TableSharding::kColumnWise:
        pieces = 2;
        break;
      case TableSharding::kTableColumnWise:
        pieces = 4;
        break;
      case TableSharding::kRowWise:
        blocks = kWorld;
        break;
      case TableSharding::kTableRowWise:
        blocks = kLocal;
        break;
      case TableSharding::kGrid:
        pieces = 2;
        blocks = kLocal;
        break;
      default:
        break;
    }
    indices += kWorld * std::llround(table.pooling_factor * kBatch) * pieces;
    outputs += kWorld * kBatch * table.dim * blocks;
    parameters += table.num_rows * table.dim;
  }
  Lookups found;
  for (const ExecutionGraph& graph : every_rank()) {
    const Lookups here = lookups(graph);
    found.indices += here.indices;
    found.outputs += here.outputs;
    found.elements += here.elements;
  }
  EXPECT_EQ(found.indices, indices);
  EXPECT_EQ(found.outputs, outputs);
  EXPECT_EQ(found.elements, parameters);
}

TEST(TorchrecShards, OpsOfEachGroupAreThereOnce) {
  for (std::int64_t rank = 0; rank < kWorld; ++rank) {
    const ExecutionGraph& graph = every_rank()[static_cast<std::size_t>(rank)];
    // Row-wise, table-row-wise and grid.
    EXPECT_EQ(count(graph, "fbgemm::block_bucketize_sparse_features"), 3U);
    EXPECT_EQ(collectives(graph, "_reduce_scatter_base").size(), 3U);
    EXPECT_EQ(collectives(graph, "_allgather_base").size(), 3U);
    // Column-wise and grid: the second piece comes first.
    EXPECT_EQ(count(graph, "fbgemm::permute_pooled_embs_auto_grad_split"), 2U);
    EXPECT_EQ(collectives(graph, "all_to_all").size(), 6U);
    EXPECT_EQ(count(graph, "All2All_Pooled_WaitBackward"), 5U);
    EXPECT_EQ(count(graph, "ReduceScatterBase_WaitBackward"), 3U);
    // The table-wise tables lie on ranks 1 and 5, one by columns on 2 and 6, one on 0 to 3; the
    // rows of one on host 1.
    const std::size_t groups = 2 + (rank % 4 == 1) + (rank % 4 == 2) + (rank < 4) + (rank >= 4);
    EXPECT_EQ(lookups(graph).count, groups) << "rank " << rank;
  }
}

// Closed forms: S samples per rank, W ranks in hosts of L, columns d.
constexpr std::int64_t kLookups = 5 * kBatch;

TEST(TorchrecShards, ColumnWisePayloads) {
  // 4 columns on each of ranks 0 to 3.
  for (std::int64_t rank : {0, 7}) {
    const ExecutionGraph graph =
        build(one_table(rank, TableSharding::kColumnWise, column_pieces(80, 4, {0, 1, 2, 3})));
    const std::int64_t own = rank == 0;
    const auto exchanges = collectives(graph, "all_to_allv");
    ASSERT_EQ(exchanges.size(), 4U);  // vectors, lengths, values, gradients
    EXPECT_EQ(exchanges[0].in, kWorld * kBatch * 4 * own);
    EXPECT_EQ(exchanges[0].out, kBatch * kDim);
    EXPECT_EQ(exchanges[1].in, 4 * kBatch);
    EXPECT_EQ(exchanges[1].out, kWorld * kBatch * own);
    EXPECT_EQ(exchanges[2].in, 4 * kLookups);
    EXPECT_EQ(exchanges[2].out, kWorld * kLookups * own);
    EXPECT_EQ(exchanges[3].in, exchanges[0].out);
    EXPECT_EQ(exchanges[3].out, exchanges[0].in);
    // Pieces in order: nothing to permute.
    EXPECT_EQ(count(graph, "fbgemm::permute_pooled_embs_auto_grad_split"), 0U);
  }
}

TEST(TorchrecShards, RowWisePayloads) {
  const ExecutionGraph graph =
      build(one_table(3, TableSharding::kRowWise, row_blocks(80, 0, kDim, 0, kWorld)));
  const auto exchanges = collectives(graph, "all_to_allv");
  ASSERT_EQ(exchanges.size(), 2U);
  EXPECT_EQ(exchanges[0].in, kWorld * kBatch);  // a length per block
  EXPECT_EQ(exchanges[0].out, kWorld * kBatch);
  EXPECT_EQ(exchanges[1].in, kLookups);
  // 30 lookups in 8 blocks: the sums 3.75 i, rounded; 11 to 15 is block 3.
  EXPECT_EQ(exchanges[1].record->in_splits, (std::vector<std::int64_t>{4, 4, 3, 4, 4, 4, 3, 4}));
  EXPECT_EQ(exchanges[1].out, kWorld * 4);
  const auto reduced = collectives(graph, "_reduce_scatter_base");
  ASSERT_EQ(reduced.size(), 1U);
  EXPECT_EQ(reduced[0].in, kBatch * kWorld * kDim);  // S W d
  EXPECT_EQ(reduced[0].out, kBatch * kDim);
  EXPECT_EQ(reduced[0].record->group_size, kWorld);
  const auto gathered = collectives(graph, "_allgather_base");
  ASSERT_EQ(gathered.size(), 1U);
  EXPECT_EQ(gathered[0].in, kBatch * kDim);
  EXPECT_EQ(gathered[0].out, kBatch * kWorld * kDim);
  EXPECT_TRUE(graph.process_groups.empty());
}

TEST(TorchrecShards, TableRowWisePayloads) {
  const auto shards = row_blocks(80, 0, kDim, 4, kLocal);
  for (std::int64_t rank : {1, 6}) {
    const ExecutionGraph graph = build(one_table(rank, TableSharding::kTableRowWise, shards));
    const std::int64_t own = rank >= 4;
    const auto exchanges = collectives(graph, "all_to_allv");
    ASSERT_EQ(exchanges.size(), 4U);  // vectors across, lengths, values, gradients across
    EXPECT_EQ(exchanges[1].in, kLocal * kBatch);
    EXPECT_EQ(exchanges[1].out, own * kWorld * kBatch);
    EXPECT_EQ(exchanges[1].record->group_size, kWorld);
    EXPECT_EQ(exchanges[2].in, kLookups);
    const auto& to = exchanges[2].record->in_splits;  // 7.5 each, rounded
    EXPECT_EQ(to, (std::vector<std::int64_t>{0, 0, 0, 0, 8, 7, 8, 7}));
    // In the host: S W d; across hosts: S d to each.
    const auto reduced = collectives(graph, "_reduce_scatter_base");
    ASSERT_EQ(reduced.size(), 1U);
    EXPECT_EQ(reduced[0].in, own * kBatch * kWorld * kDim);
    EXPECT_EQ(reduced[0].out, own * kBatch * 2 * kDim);
    EXPECT_EQ(reduced[0].record->group_size, kLocal);
    EXPECT_EQ(exchanges[0].in, own * 2 * kBatch * kDim);
    EXPECT_EQ(exchanges[0].out, kBatch * kDim);
    EXPECT_EQ(exchanges[0].record->group_size, 2);
    EXPECT_EQ(exchanges[3].in, exchanges[0].out);
    EXPECT_EQ(exchanges[3].out, exchanges[0].in);
    const auto gathered = collectives(graph, "_allgather_base");
    ASSERT_EQ(gathered.size(), 1U);
    EXPECT_EQ(gathered[0].out, reduced[0].in);
  }
}

TEST(TorchrecShards, GroupsOfRanksAreDescribed) {
  const ExecutionGraph& graph = every_rank()[6];
  ASSERT_EQ(graph.process_groups.size(), 3U);
  EXPECT_EQ(graph.process_groups[0].size, kWorld);
  EXPECT_EQ(graph.process_groups[1].ranks, (std::vector<std::int64_t>{4, 5, 6, 7}));
  EXPECT_EQ(graph.process_groups[2].ranks, (std::vector<std::int64_t>{2, 6}));
  std::set<std::string> names;  // one for all ranks, 2 hosts, 4 places
  for (const ExecutionGraph& rank : every_rank()) {
    for (const ProcessGroup& group : rank.process_groups) names.insert(group.name);
  }
  EXPECT_EQ(names.size(), 1 + 2 + 4U);

  const auto file = test_support::scratch() / "torchrec_shards_rank.json";
  ASSERT_TRUE(write_execution_graph(graph, file));
  const auto read = read_execution_graph(file);
  ASSERT_TRUE(read) << to_string(read.error());
  ASSERT_EQ(read->process_groups.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(read->process_groups[i].name, graph.process_groups[i].name);
    EXPECT_EQ(read->process_groups[i].ranks, graph.process_groups[i].ranks);
  }
  ASSERT_EQ(read->comm_records.size(), graph.comm_records.size());
  for (std::size_t i = 0; i < graph.comm_records.size(); ++i) {
    EXPECT_EQ(read->comm_records[i].process_group, graph.comm_records[i].process_group);
    EXPECT_EQ(read->comm_records[i].group_size, graph.comm_records[i].group_size);
  }
}

TEST(TorchrecShards, AWholeTableAsOneShardIsTableWise) {
  TorchrecDlrmConfig by_rank = every_sharding(1), by_shard = by_rank;
  by_shard.tables[0].rank = PlacedTable::kDataParallel;  // not looked at
  by_shard.tables[0].shards = column_pieces(100, kDim, {1});
  EXPECT_EQ(execution_graph_json(build(by_shard)), execution_graph_json(build(by_rank)));
}

TEST(TorchrecShards, TablesMayHaveAnotherOptimizer) {
  TorchrecDlrmConfig config = one_table(5, TableSharding::kTableWise, column_pieces(80, kDim, {5}));
  config.table_optimizer = TorchrecDlrmConfig::TableOptimizer::kRowwiseAdagrad;
  const ExecutionGraph graph = build(config);
  EXPECT_EQ(count(graph, "fbgemm::split_embedding_codegen_lookup_rowwise_adagrad_function"), 1U);
  EXPECT_EQ(lookups(graph).count, 0U);
}

TEST(TorchrecShards, ARankWithoutTablesTakesPart) {
  const ExecutionGraph graph =
      build(one_table(2, TableSharding::kTableWise, column_pieces(80, kDim, {5})));
  EXPECT_EQ(lookups(graph).count, 0U);
  const auto exchanges = collectives(graph, "all_to_allv");
  ASSERT_EQ(exchanges.size(), 4U);
  EXPECT_EQ(exchanges[0].in, 0);
  EXPECT_EQ(exchanges[0].out, kBatch * kDim);
  EXPECT_EQ(exchanges[2].record->in_splits,
            (std::vector<std::int64_t>{0, 0, 0, 0, 0, kLookups, 0, 0}));
  // Its gradient goes to a tensor without elements.
  EXPECT_EQ(count(graph, "All2All_Pooled_ReqBackward"), 1U);
  const std::int64_t mlps = 4 * 16 + 16 + (16 + 1) * 6 + 6 + 6 + 1;
  EXPECT_EQ(model_size(graph).parameters, mlps);
}

TEST(TorchrecShards, BadShardsAreRefusedByName) {
  using Config = TorchrecDlrmConfig;
  using Kind = TableSharding;
  const auto message = [](
                           Kind kind, std::vector<TableShard> shards,
                           const std::function<void(Config&)>& spoil = [](Config&) {}) {
    Config config = one_table(0, kind, std::move(shards));
    spoil(config);
    const auto graph = build_torchrec_dlrm(config);
    return graph ? std::string("built") : graph.error().message;
  };
  EXPECT_EQ(message(Kind::kRowWise, row_blocks(80, 0, 16, 0, 8)), "built");
  EXPECT_EQ(message(Kind::kRowWise, row_blocks(80, 0, 16, 0, 4)),
            "table 0 (row_wise): expected 8 shards from column 0 on, found 4");
  EXPECT_EQ(message(Kind::kRowWise, row_blocks(79, 0, 16, 0, 8)),
            "table 0 (row_wise): expected 80 rows from column 0 on, found 79");
  EXPECT_EQ(message(Kind::kTableRowWise, row_blocks(80, 0, 16, 2, 4)),
            "table 0 (table_row_wise): expected shards on ranks 0 to 3, found none on the first of "
            "them");
  auto twice = row_blocks(80, 0, 16, 4, 4);
  twice[2].rank = 5;
  EXPECT_EQ(message(Kind::kTableRowWise, twice),
            "table 0 (table_row_wise): expected one shard on rank 6, found one on rank 5");
  auto overlap = row_blocks(80, 0, 16, 4, 4);
  overlap[1].row_offset = 19;
  EXPECT_EQ(message(Kind::kTableRowWise, overlap),
            "table 0 (table_row_wise): expected rows from 20 on on rank 5, found 19");
  EXPECT_EQ(message(Kind::kTableWise, column_pieces(80, 8, {1, 2})),
            "table 0 (table_wise): expected all columns in each shard, found 2 pieces");
  EXPECT_EQ(message(Kind::kColumnWise, column_pieces(80, 8, {1})),
            "table 0 (column_wise): expected 16 columns in all shards, found 8");
  EXPECT_EQ(message(Kind::kColumnWise, column_pieces(80, 6, {1, 2, 3})),
            "table 0 (column_wise): expected 16 columns in all shards, found 18");
  auto gap = column_pieces(80, 8, {1, 2});
  gap[1].column_offset = 9;
  EXPECT_EQ(message(Kind::kColumnWise, gap),
            "table 0 (column_wise): expected a shard from column 8 on, found 9");
  EXPECT_EQ(message(Kind::kTableColumnWise, column_pieces(80, 8, {3, 4})),
            "table 0 (table_column_wise): expected all shards on host 0, found one on host 1");
  EXPECT_EQ(message(Kind::kColumnWise, column_pieces(80, 8, {3, 8})),
            "table 0 (column_wise), rank of shard 1: expected 0 to 7, found 8");
  auto widths = row_blocks(80, 0, 16, 0, 4);
  widths[3].columns = 8;
  EXPECT_EQ(message(Kind::kGrid, widths),
            "table 0 (grid_shard): expected 16 columns on rank 3, found 8");
  EXPECT_EQ(message(Kind::kDataParallel, column_pieces(80, 16, {0})),
            "table 0: expected no shards of a data-parallel table, found 1");
  EXPECT_EQ(message(Kind::kDataParallel, {},
                    [](Config& c) { c.tables[0].rank = PlacedTable::kDataParallel; }),
            "tables: expected at least one that is sharded, found none");
  EXPECT_EQ(message(Kind::kTableWise, column_pieces(80, 16, {0}),
                    [](Config& c) { c.local_world_size = 3; }),
            "ranks per host: expected a divisor of 8, found 3");
  EXPECT_EQ(message(Kind::kTableWise, column_pieces(80, 16, {0}),
                    [](Config& c) { c.local_world_size = -1; }),
            "ranks per host: expected 1 to 8, found -1");
}

}  // namespace build_torchrec_shards_test
}  // namespace perfmodel
