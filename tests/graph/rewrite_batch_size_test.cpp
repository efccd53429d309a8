#include "perfmodel/graph/rewrites/resize.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "builders/emit/graph_views.hpp"
#include "graph_comparison.hpp"
#include "perfmodel/graph/build_model.hpp"
#include "perfmodel/graph/build_recommenders.hpp"
#include "perfmodel/graph/detail/static_memory.hpp"
#include "perfmodel/graph/model_size.hpp"
#include "perfmodel/graph/read_execution_graph.hpp"
#include "perfmodel/graph/write_execution_graph.hpp"

namespace perfmodel {
namespace rewrite_batch_size_test {

ExecutionGraph dlrm(std::string_view preset, std::int64_t batch, bool batched, bool dot = true) {
  DlrmConfig config = dlrm_preset(preset).value();
  config.batch = batch;
  config.table_batched = batched;
  config.interaction_dot = dot;
  return build_dlrm(config).value();
}

std::string text(const ExecutionGraph& graph) { return execution_graph_json(graph); }

TEST(BatchSize, SameBatchGivesTheSameBytes) {
  const ExecutionGraph graph = dlrm("default", 512, true);
  EXPECT_EQ(text(set_batch_size(graph, {.batch = 512}).value()), text(graph));
}

// FBGEMM's backward sorts: the size of that scratch memory is the sort's own business, no multiple
// of the lookups, and stays as it was.
bool is_scratch_of_lookup(const ExecutionGraph& graph, const Node& node) {
  const std::string_view name = graph.name(node);
  if (node.parent < 0 || (name != "aten::empty" && name != "aten::zeros")) return false;
  const Node& parent = graph.nodes[static_cast<std::size_t>(node.parent)];
  return graph.name(parent).starts_with("torch::autograd::CppNode<SplitLookupFunction_");
}

TEST(BatchSize, RewrittenDlrmIsTheOneBuiltWithThatBatch) {
  for (const char* preset : {"default", "mlperf", "ddp"}) {
    for (bool batched : {true, false}) {
      for (bool dot : {true, false}) {
        SCOPED_TRACE(std::string(preset) + (batched ? " batched" : " bags") + (dot ? "" : " cat"));
        const ExecutionGraph large = dlrm(preset, 2048, batched, dot);
        const auto odd = set_batch_size(large, {.batch = 1000});
        ASSERT_TRUE(odd) << odd.error().message;
        const ExecutionGraph built = dlrm(preset, 1000, batched, dot);
        const ComparisonOptions options{.leave_out = is_scratch_of_lookup};
        const GraphComparison comparison = compare_graphs(*odd, built, options);
        EXPECT_TRUE(comparison.same()) << comparison;
        if (!batched) {
          EXPECT_EQ(text(*odd), text(built));
        }
      }
    }
  }
}

// Everything that computes, looks up or is exchanged in floats. The next step reads the batch that
// the loader makes in parallel with this step: nothing in the step says how long its lists of
// integers are.
bool is_of_floats(const ExecutionGraph& graph, const Node& node) {
  for (const Argument& argument : graph.inputs(node)) {
    if (argument.kind != Argument::Kind::kTensor) continue;
    const Tensor& tensor = graph.tensors[argument.index];
    if (is_floating_point(tensor.dtype) && tensor.numel > 0) return true;
  }
  return false;
}

TEST(BatchSize, RewrittenTorchrecRankIsTheOneBuiltWithThatBatch) {
  TorchrecDlrmConfig config = torchrec_dlrm_preset("v100-8").value();
  config.batch_per_rank = 22;
  const auto rewritten = set_batch_size(build_torchrec_dlrm(config).value(), {.batch = 38});
  ASSERT_TRUE(rewritten) << rewritten.error().message;
  config.batch_per_rank = 38;
  const auto comparison =
      compare_graphs(*rewritten, build_torchrec_dlrm(config).value(),
                     {.flatten = [](const ExecutionGraph& graph, const Node& node) {
                       return !is_of_floats(graph, node);
                     }});
  EXPECT_TRUE(comparison.same()) << comparison;
  EXPECT_GT(comparison.equal, 700U);
}

// Sums of parts of rows that a sorted gradient of a table is made of: likewise.
bool is_scratch_of_table(const ExecutionGraph& graph, const Node& node) {
  if (is_scratch_of_lookup(graph, node)) return true;
  if (node.parent < 0 || graph.name(node) != "aten::empty") return false;
  const Node& parent = graph.nodes[static_cast<std::size_t>(node.parent)];
  return graph.name(parent) == "aten::_embedding_bag_dense_backward";
}

TEST(BatchSize, TablesOfAllKindsAndOptimizersFollow) {
  using Optimizer = DlrmConfig::Optimizer;
  struct Case {
    const char* name;
    void (*change)(DlrmConfig&);
  };
  const Case cases[] = {
      {"kept sparse gradients",  // the optimizer walks their entries
       [](DlrmConfig& c) {
         c.table_batched = false;
         c.stacked_offsets = false;
         c.training.zero_grad = TrainingOptions::ZeroGrad::kToZero;
       }},
      {"dense gradients",
       [](DlrmConfig& c) {
         c.table_batched = false;
         c.sparse_gradients = false;
         c.optimizer = Optimizer::kAdam;
       }},
      // As many bytes for each product as the first layer's result has elements.
      {"old",
       [](DlrmConfig& c) {
         c.training.pytorch = {.major = 1, .minor = 13};
         c.bottom_mlp[1] = 512;
       }},
      {"cross network", [](DlrmConfig& c) { c.cross.layers = 2; }},
      {"Adam", [](DlrmConfig& c) { c.optimizer = Optimizer::kAdam; }},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.name);
    DlrmConfig config = *dlrm_preset("ddp");
    one.change(config);
    const auto small = set_batch_size(*build_dlrm(config), {.batch = 500});
    ASSERT_TRUE(small) << small.error().message;
    config.batch = 500;
    const GraphComparison comparison =
        compare_graphs(*small, *build_dlrm(config), {.leave_out = is_scratch_of_table});
    EXPECT_TRUE(comparison.same()) << comparison;
  }
}

// One is also the size of much that is no batch.
TEST(BatchSize, OneSampleThereAndBack) {
  for (bool batched : {true, false}) {
    const ExecutionGraph one = dlrm("mlperf", 1, batched);
    const auto many = set_batch_size(one, {.batch = 2048});
    ASSERT_TRUE(many) << many.error().message;
    const auto back = set_batch_size(*many, {.batch = 1});
    ASSERT_TRUE(back) << back.error().message;
    EXPECT_TRUE(text(*back) == text(one));
  }
}

// For one sample PyTorch runs other ops: a slice of one row is dense and need not be copied. The
// rewrite keeps the ops of the graph that it got.
TEST(BatchSize, KnownDifferenceOpsThatOneSampleDoesNotNeed) {
  const auto shrunk = set_batch_size(dlrm("mlperf", 2048, false), {.batch = 1});
  ASSERT_TRUE(shrunk) << shrunk.error().message;
  EXPECT_EQ(shrunk->nodes.size(), dlrm("mlperf", 1, false).nodes.size() + 5);
}

TEST(BatchSize, SaysWhatItCannotDo) {
  const ExecutionGraph graph = dlrm("default", 512, true);
  const auto zero = set_batch_size(graph, {.batch = 0});
  ASSERT_FALSE(zero);
  EXPECT_EQ(zero.error().message, "expected a batch from 1 to 2^40, found 0");
  const auto other = set_batch_size(graph, {.batch = 8, .current = 77});
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().message, "expected an input of batch 77, found 512");
  const auto sequence = set_sequence_length(graph, {.length = 8});
  ASSERT_FALSE(sequence);
  EXPECT_EQ(sequence.error().message,
            "expected an input that has a sequence, found none; name its size: --sequence OLD=NEW");
}

// Lengths of samples that are arguments: a list of that many numbers.
TEST(BatchSize, RefusesListsOfLengthsThatNoMemoryHolds) {
  Deepspeech2Config config;
  config.layers = 1;
  const auto made =
      set_batch_size(build_deepspeech2(config).value(), {.batch = std::int64_t{1} << 40});
  ASSERT_FALSE(made);
  EXPECT_NE(made.error().message.find("its list of lengths would be too long"), std::string::npos);
}

TEST(BatchSize, RecordingsThereAndBackAreTheSame) {
  const char* data = std::getenv("PERFMODEL_PUBLIC_DATA");
  if (!data) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA names no folder of measurements";
  struct Recording {
    const char* file;
    std::int64_t batch, other;
  };
  for (const Recording& r : {Recording{"traces/linear_et.json.gz", 512, 640},
                             Recording{"traces/resnet18_et.json.gz", 128, 1},
                             Recording{"traces/resnet18_et.json.gz", 128, 384},
                             Recording{"traces/resnet50_ddp_et_1.1.1.json.gz", 32, 48},
                             Recording{"traces/dlrm_v100_rank0of8_et.json.gz", 16, 32},
                             Recording{"traces/dlrm_v100_rank3of8_et.json.gz", 16, 48},
                             Recording{"traces_cpu/resblock_sgdm.et.json.gz", 8, 16}}) {
    SCOPED_TRACE(r.file);
    const auto graph = read_execution_graph(std::string(data) + "/" + r.file);
    ASSERT_TRUE(graph);
    const auto there = set_batch_size(*graph, {.batch = r.other, .current = r.batch});
    ASSERT_TRUE(there) << there.error().message;
    EXPECT_NE(text(*there), text(*graph));
    const auto back = set_batch_size(*there, {.batch = r.batch, .current = r.other});
    ASSERT_TRUE(back) << back.error().message;
    EXPECT_TRUE(text(*back) == text(*graph));
  }
}

// 16 is its batch, the width of two layers and the dimension of its tables, and ids of tensors are
// used again for others of the same shape.
TEST(BatchSize, OfARecordedTorchrecRankNothingElseChanges) {
  const char* data = std::getenv("PERFMODEL_PUBLIC_DATA");
  if (!data) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA names no folder of measurements";
  const auto graph =
      read_execution_graph(std::string(data) + "/traces/dlrm_v100_rank0of8_et.json.gz");
  ASSERT_TRUE(graph);
  const ModelSize before = model_size(*graph);
  // Inferred, and named: the dense features of this step and its labels.
  for (const std::vector<BatchInput>& inputs :
       {std::vector<BatchInput>{}, {{.tensor = 545, .dim = 0}, {.tensor = 557, .dim = 0}}}) {
    const auto made = set_batch_size(*graph, {.batch = 64, .inputs = inputs});
    ASSERT_TRUE(made) << made.error().message;
    const ModelSize after = model_size(*made);
    EXPECT_DOUBLE_EQ(after.matrix_flop, 4 * before.matrix_flop);
    EXPECT_EQ(after.parameters, before.parameters);
    const StaticMemory held = static_memory(*made), was = static_memory(*graph);
    EXPECT_EQ(held.tables, was.tables);
    EXPECT_EQ(held.gradients, was.gradients);
    EXPECT_EQ(held.optimizer_state, was.optimizer_state);
    // The loader's batch is on the GPU before the step begins.
    EXPECT_NEAR(held.parameters, was.parameters, 0.02 * was.parameters);
  }
  EXPECT_EQ(batch_size(*graph), 16);
}

TEST(BatchSize, NamedInputsThatCannotBeAreRefused) {
  const ExecutionGraph graph = dlrm("default", 512, true);
  const auto refusal = [&](std::int64_t tensor, int dim) {
    return set_batch_size(graph, {.batch = 64, .inputs = {{tensor, dim}}}).error().message;
  };
  EXPECT_EQ(
      refusal(-7, 0),
      "batch input -7:0: expected the id of a tensor that comes from outside of the graph and "
      "is no parameter");
  std::int64_t dense = 0;  // the first input of floats
  for (const Node& node : graph.nodes) {
    for_each_tensor(graph, graph.inputs(node), [&](const Tensor& tensor) {
      if (dense == 0 && tensor.rank == 2 && tensor.dtype == DType::kFloat32) dense = tensor.id;
    });
  }
  EXPECT_EQ(refusal(dense, 2),
            "batch input " + std::to_string(dense) + ":2: expected a dimension of its 2");
  EXPECT_TRUE(set_batch_size(graph, {.batch = 64, .inputs = {{dense, 0}}}));
  const auto other = set_batch_size(graph, {.batch = 64, .current = 7, .inputs = {{dense, 0}}});
  ASSERT_FALSE(other);
  EXPECT_NE(other.error().message.find("expected a size of 7, found 512"), std::string::npos);
  // The features of a sample are no batch: their weights do not change.
  const std::string features = refusal(dense, 1);
  EXPECT_NE(features.find("expected equal sizes"), std::string::npos) << features;
  EXPECT_NE(features.find("name the inputs whose dimension is the batch and no others: --batch "
                          "64@ID:DIM+ID:DIM of "),
            std::string::npos)
      << features;
}

// A loop over the first dimension of an input, or of a view of it.
ExecutionGraph loop_over(const Shape& input, const Shape& seen) {
  GraphBuilder graph;
  TensorRef x = graph.new_tensor(DType::kFloat32, input);
  if (seen != input) x = view(graph, x, seen);
  graph.begin_op("aten::unbind.int", {x, 0});
  std::vector<TensorRef> parts;
  for (std::int64_t i = 0; i < seen[0]; ++i) parts.push_back(select(graph, x, 0, i));
  graph.end_op({parts});
  return graph.finish();
}

TEST(BatchSize, LoopsOverStepsHaveItSecondAndLoopsOverPicturesFirst) {
  EXPECT_EQ(batch_size(loop_over({7, 4, 16}, {7, 4, 16})), 4);
  EXPECT_EQ(batch_size(loop_over({4, 3, 8, 8}, {4, 3, 64})), 4);
}

// A CPU without MKL multiplies a batch of matrices one by one: the number of ops would change.
TEST(BatchSize, RefusesProductsThatAreUnrolled) {
  const char* data = std::getenv("PERFMODEL_PUBLIC_DATA");
  if (!data) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA names no folder of measurements";
  const auto graph =
      read_execution_graph(std::string(data) + "/traces_cpu/dlrm_dense_sgd.et.json.gz");
  ASSERT_TRUE(graph);
  const auto made = set_batch_size(*graph, {.batch = 32});
  ASSERT_FALSE(made);
  EXPECT_NE(made.error().message.find("one product per matrix"), std::string::npos);
}

}  // namespace rewrite_batch_size_test
}  // namespace perfmodel
