#include "perfmodel/graph/detail/static_memory.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "perfmodel/graph/build_model.hpp"
#include "perfmodel/graph/build_recommenders.hpp"
#include "perfmodel/graph/build_transformers.hpp"
#include "perfmodel/graph/model_size.hpp"
#include "perfmodel/graph/read_execution_graph.hpp"
#include "perfmodel/graph/rewrites/memory.hpp"
#include "perfmodel/graph/rewrites/resize.hpp"
#include "perfmodel/graph/rewrites/training.hpp"

namespace perfmodel {
namespace static_memory_test {

using Optimizer = TrainingOptions::Optimizer;

GptConfig small_gpt(Optimizer optimizer) {
  GptConfig config = gpt_preset("gpt2").value();
  config.layers = 2;
  config.batch = 2;
  config.sequence = 128;
  config.training.optimizer = optimizer;
  return config;
}

// Weights in fp32, and for every layer a bool per pair of positions.
constexpr double kMask = 1024.0 * 1024.0;

TEST(StaticMemory, OfATransformerIsSixteenBytesPerParameterWithAdam) {
  const ExecutionGraph graph = build_gpt(small_gpt(Optimizer::kAdamW)).value();
  const auto parameters = static_cast<double>(model_size(graph).parameters);
  const StaticMemory memory = static_memory(graph);
  EXPECT_EQ(memory.gradients, 4 * parameters);
  EXPECT_NEAR(memory.optimizer_state, 8 * parameters, 1e4);  // counters may lie on the GPU
  // The word embeddings are the output layer's weights, too; positions are looked up alone.
  EXPECT_EQ(memory.tables, 4.0 * 1024 * 768);
  EXPECT_EQ(memory.parameters, 4 * parameters - memory.tables + 2 * kMask);
  EXPECT_EQ(memory.other, 0);
  EXPECT_EQ(memory.total(), memory.parameters + memory.tables + memory.gradients +
                                memory.optimizer_state + memory.other);
}

TEST(StaticMemory, FollowsTheOptimizer) {
  const auto state = [](Optimizer optimizer) {
    return static_memory(build_gpt(small_gpt(optimizer)).value()).optimizer_state;
  };
  const ExecutionGraph graph = build_gpt(small_gpt(Optimizer::kSgd)).value();
  const auto bytes = 4 * static_cast<double>(model_size(graph).parameters);
  EXPECT_EQ(state(Optimizer::kSgd), 0);
  EXPECT_EQ(state(Optimizer::kMomentum), bytes);
  EXPECT_NEAR(state(Optimizer::kAdagrad), bytes, 1e4);
  EXPECT_NEAR(state(Optimizer::kAdam), 2 * bytes, 1e4);
}

TEST(StaticMemory, DoesNotDependOnBatchPrecisionOrCheckpoints) {
  const ExecutionGraph graph = build_gpt(small_gpt(Optimizer::kAdamW)).value();
  const StaticMemory memory = static_memory(graph);
  const ExecutionGraph others[] = {
      set_batch_size(graph, {.batch = 64}).value(),
      rewrite_precision(graph, {.precision = PrecisionOptions::Precision::kBf16}).value(),
      rewrite_checkpointing(graph, {.every = 1}).value(),
      rewrite_optimizer(graph, {.implementation = TrainingOptions::Implementation::kFused}).value(),
  };
  for (const ExecutionGraph& other : others) {
    const StaticMemory changed = static_memory(other);
    EXPECT_EQ(changed.parameters, memory.parameters);
    EXPECT_EQ(changed.tables, memory.tables);
    EXPECT_EQ(changed.gradients, memory.gradients);
    EXPECT_NEAR(changed.optimizer_state, memory.optimizer_state, 1e4);
  }
}

TEST(StaticMemory, AForwardPassHoldsParametersAlone) {
  MlpConfig config = mlp_preset("mnist").value();
  const ExecutionGraph training = build_mlp(config).value();
  config.training.phase = TrainingOptions::Phase::kForward;
  const StaticMemory memory = static_memory(build_mlp(config).value());
  EXPECT_EQ(memory.parameters, static_memory(training).parameters);
  EXPECT_EQ(memory.parameters, 4 * static_cast<double>(model_size(training).parameters));
  EXPECT_EQ(memory.total(), memory.parameters);
}

constexpr double kBuffers = 1e4;  // offsets of the tables, indices of the interaction

double table_bytes(const DlrmConfig& config) {
  double bytes = 0;
  for (const EmbeddingTable& table : config.tables) {
    bytes += 4.0 * static_cast<double>(table.num_rows * table.dim);
  }
  return bytes;
}

TEST(StaticMemory, BatchedTablesHaveNoGradientButAState) {
  DlrmConfig config = dlrm_preset("ddp").value();
  const StaticMemory sgd = static_memory(build_dlrm(config).value());
  EXPECT_EQ(sgd.tables, table_bytes(config));
  EXPECT_NEAR(sgd.gradients, sgd.parameters, kBuffers);
  EXPECT_EQ(sgd.optimizer_state, 0);
  config.optimizer = DlrmConfig::Optimizer::kAdagrad;
  const StaticMemory adagrad = static_memory(build_dlrm(config).value());
  EXPECT_EQ(adagrad.tables, sgd.tables);
  EXPECT_NEAR(adagrad.optimizer_state, sgd.tables + sgd.parameters, kBuffers);
}

TEST(StaticMemory, TablesWithSparseGradientsHaveNoDenseOnes) {
  DlrmConfig config = dlrm_preset("ddp").value();
  config.table_batched = false;
  config.sparse_gradients = true;
  const StaticMemory sparse = static_memory(build_dlrm(config).value());
  EXPECT_EQ(sparse.tables, table_bytes(config));
  double values = 0;  // one row per lookup
  for (const EmbeddingTable& table : config.tables) {
    values += 4.0 * static_cast<double>(config.batch * table.dim) * table.pooling_factor;
  }
  EXPECT_NEAR(sparse.gradients, sparse.parameters + values, kBuffers);
  config.sparse_gradients = false;
  const StaticMemory dense = static_memory(build_dlrm(config).value());
  EXPECT_EQ(dense.tables, sparse.tables);
  EXPECT_NEAR(dense.gradients, dense.parameters + dense.tables, kBuffers);
}

// The gradients tell the trained parameters, too. The rest is the batch, if it is on the GPU before
// the step begins, and statistics of batch norms.
TEST(StaticMemory, OfRecordingsHoldsTheParametersThatAreTrained) {
  const char* folder = std::getenv("PERFMODEL_PUBLIC_DATA");
  if (folder == nullptr) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  const std::filesystem::path traces = std::filesystem::path(folder) / "traces";
  struct Case {
    const char* file;
    double more;   // bytes in addition to the trained parameters
    double state;  // optimizer state over the trained parameters
  };
  const Case cases[] = {{"dlrm_v100_rank0of8_et.json.gz", 2e5, 1},  // Adagrad per element
                        {"dlrm_v100_rank1of8_et.json.gz", 2e5, 1},
                        {"resnet18_et.json.gz", 1e5, 1},  // momentum
                        {"resnet50_ddp_et_1.0.3.json.gz", 32 * 3 * 224 * 224 * 4 + 1e6, 1},
                        {"resnet50_ddp_et_1.1.1.json.gz", 32 * 3 * 224 * 224 * 4 + 1e6, 1},
                        {"linear_et.json.gz", 3e6, 0}};
  for (const Case& each : cases) {
    SCOPED_TRACE(each.file);
    const auto graph = read_execution_graph(traces / each.file);
    ASSERT_TRUE(graph) << to_string(graph.error());
    const double trained = 4 * static_cast<double>(model_size(*graph).parameters);
    EXPECT_EQ(accumulated_passes(*graph), 1);  // though ids of gradients come again
    const StaticMemory memory = static_memory(*graph);
    EXPECT_GE(memory.parameters + memory.tables, trained);
    EXPECT_LE(memory.parameters + memory.tables, trained + each.more);
    EXPECT_NEAR(memory.optimizer_state, each.state * trained, 1e-3 * trained);
    // Gradients of batched tables are applied row by row.
    EXPECT_NEAR(memory.gradients, trained - memory.tables, 0.02 * memory.parameters + 1e5);
  }
}

}  // namespace static_memory_test
}  // namespace perfmodel
