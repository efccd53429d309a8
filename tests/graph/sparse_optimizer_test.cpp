// Optimizers of sparse gradients: read from graphs, rewritten into others.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "builders/emit/sparse_update.hpp"
#include "graph_comparison.hpp"
#include "perfmodel/graph/build_recommenders.hpp"
#include "perfmodel/graph/detail/storage_lifetimes.hpp"
#include "perfmodel/graph/read_execution_graph.hpp"
#include "perfmodel/graph/rewrites/training.hpp"
#include "step/step_view.hpp"

namespace perfmodel {
namespace sparse_optimizer_test {

using Optimizer = TrainingOptions::Optimizer;
using TableOptimizer = DlrmConfig::Optimizer;

// Two tables, two linear layers.
ExecutionGraph dlrm(TableOptimizer optimizer, const PyTorch& pytorch) {
  DlrmConfig config;
  config.bottom_mlp = {8, 4};
  config.top_mlp = {1};
  config.tables = {{.num_rows = 100, .dim = 4, .pooling_factor = 2},
                   {.num_rows = 200, .dim = 4, .pooling_factor = 3}};
  config.batch = 16;
  config.table_batched = false;
  config.optimizer = optimizer;
  config.training.pytorch = pytorch;
  return build_dlrm(config).value();
}

constexpr PyTorch kVersions[] = {{.major = 1, .minor = 13}, {.major = 2, .minor = 4}};

// 32 draws from 100 rows find 100 (1 - 0.99^32) = 27.5 of them.
TEST(SparseOptimizer, MergesAsManyRowsAsUniformDrawsFind) {
  EXPECT_EQ(expected_distinct_rows(100, 32), 28);
  EXPECT_EQ(expected_distinct_rows(1, 32), 1);
  EXPECT_EQ(expected_distinct_rows(1'000'000'000, 32), 32);
  EXPECT_EQ(expected_distinct_rows(100, 0), 0);
}

TEST(SparseOptimizer, IsReadWithItsStates) {
  for (const PyTorch& pytorch : kVersions) {
    for (const bool adam : {false, true}) {
      const ExecutionGraph graph =
          dlrm(adam ? TableOptimizer::kSparseAdam : TableOptimizer::kAdagrad, pytorch);
      const StepView step(graph);
      const auto& steps = step.optimizers();
      ASSERT_TRUE(steps) << to_string(steps.error());
      std::size_t sparse = 0, others = 0;
      for (const auto& [label, one] : *steps) {
        for (const ReadGroup& group : one.groups) {
          for (const ReadUpdate& update : group.updates) {
            ++(update.sparse ? sparse : others);
            if (!update.sparse) continue;
            EXPECT_EQ(group.settings.optimizer,
                      adam ? Optimizer::kSparseAdam : Optimizer::kAdagrad);
            EXPECT_GE(update.first, 0);
            EXPECT_EQ(update.second >= 0, adam);
            EXPECT_EQ(update.step >= 0, !adam);  // SparseAdam counts in Python
          }
        }
      }
      EXPECT_EQ(sparse, 2U);
      EXPECT_EQ(others, 4U);
    }
  }
}

void expect_rewritten(const ExecutionGraph& from, Optimizer optimizer, const ExecutionGraph& to) {
  const auto made = rewrite_optimizer(from, {.optimizer = optimizer});
  ASSERT_TRUE(made) << to_string(made.error());
  const GraphComparison comparison = compare_graphs(to, *made);
  EXPECT_TRUE(comparison.same()) << comparison;
}

TEST(SparseOptimizer, SgdAndAdagradBecomeEachOther) {
  const ExecutionGraph sgd = dlrm(TableOptimizer::kSgd, kVersions[1]);
  const ExecutionGraph adagrad = dlrm(TableOptimizer::kAdagrad, kVersions[1]);
  expect_rewritten(sgd, Optimizer::kAdagrad, adagrad);
  expect_rewritten(adagrad, Optimizer::kSgd, sgd);
}

// Recordings of PyTorch 1.13 on a CPU, op by op.
TEST(SparseOptimizer, RecordingsBecomeEachOther) {
  const auto recorded = [](const char* name) {
    return read_execution_graph(std::filesystem::path(PERFMODEL_SOURCE_DIR) /
                                "tests/graph/recorded" / name)
        .value();
  };
  const ExecutionGraph sgd = recorded("dlrm_cat_sparse.json.gz");
  const ExecutionGraph adagrad = recorded("dlrm_sparse_adagrad.json.gz");
  expect_rewritten(sgd, Optimizer::kAdagrad, adagrad);
  expect_rewritten(adagrad, Optimizer::kSgd, sgd);
}

TEST(SparseOptimizer, AdamRefusesSparseGradients) {
  const auto made = rewrite_optimizer(dlrm(TableOptimizer::kSparseAdam, kVersions[1]),
                                      {.optimizer = Optimizer::kAdam});
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().message,
            "optimizer: expected dense gradients for anything but loops of SGD and Adagrad, found "
            "a sparse "
            "one of [100, 4]");
}

TEST(SparseOptimizer, IsKeptWhereTheOtherChanges) {
  const ExecutionGraph graph = dlrm(TableOptimizer::kAdagrad, kVersions[1]);
  const auto same = rewrite_optimizer(graph, {.optimizer = Optimizer::kAdagrad});
  ASSERT_TRUE(same) << to_string(same.error());
  EXPECT_EQ(same->nodes.size(), graph.nodes.size());
}

// 16 bags of 2 and of 3 lookups, each with four numbers of four bytes.
TEST(SparseOptimizer, GradientsKeepTheirValues) {
  const StorageLifetimes lifetimes =
      storage_lifetimes(dlrm(TableOptimizer::kSparseAdam, kVersions[1]));
  for (const std::int64_t bytes : {16 * 2 * 16, 16 * 3 * 16}) {
    const auto is_values = [&](const StorageLifetime& storage) {
      return storage.bytes == bytes && storage.purpose == MemoryPurpose::kGradients &&
             storage.freed_after == StorageLifetime::kBeyond;
    };
    EXPECT_EQ(std::ranges::count_if(lifetimes.storages, is_values), 1) << bytes;
  }
}

}  // namespace sparse_optimizer_test
}  // namespace perfmodel
