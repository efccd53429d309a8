// Optimizer steps: read, written anew, compared with recordings of PyTorch op by op.
#include "perfmodel/graph/rewrites/optimizer.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>

#include "emit/optimizers.hpp"
#include "graph_comparison.hpp"
#include "models/training_step.hpp"
#include "perfmodel/graph/read_execution_graph.hpp"
#include "rewrites/dialect.hpp"
#include "rewrites/graph_copy.hpp"
#include "rewrites/optimizer_reader.hpp"

namespace perfmodel {
namespace {

using Optimizer = TrainingOptions::Optimizer;
using Implementation = TrainingOptions::Implementation;

// What one step of an optimizer writes for a matrix and a vector.
ExecutionGraph step_of(const OptimizerSettings& settings, const PyTorch& pytorch = {}) {
  GraphBuilder graph(pytorch);
  std::vector<ParameterUpdate> updates;
  for (const Shape& shape : {Shape{6, 4}, Shape{4}}) {
    updates.push_back({.parameter = graph.new_tensor(DType::kFloat32, shape),
                       .gradient = graph.new_tensor(DType::kFloat32, shape)});
  }
  graph.begin_label("Optimizer.step#" + std::string(optimizer_class(settings.optimizer)) + ".step");
  emit_optimizer(graph, settings, updates);
  graph.end_op();
  return graph.finish();
}

ExecutionGraph step_of(Optimizer optimizer, Implementation implementation,
                       const PyTorch& pytorch = {}) {
  return step_of(optimizer_settings(optimizer, implementation), pytorch);
}

std::vector<std::string> ops(const ExecutionGraph& graph) {
  std::vector<std::string> names;
  const auto labels = optimizer_steps(graph);
  for (std::int32_t label : labels) {
    for (std::int32_t child : graph.children(graph.nodes[static_cast<std::size_t>(label)])) {
      names.emplace_back(graph.name(graph.nodes[static_cast<std::size_t>(child)]));
    }
  }
  return names;
}

ExecutionGraph rewritten(const ExecutionGraph& graph, const OptimizerRewrite& rewrite) {
  auto made = rewrite_optimizer(graph, rewrite);
  if (!made) {
    ADD_FAILURE() << to_string(made.error());
    return {};
  }
  return std::move(*made);
}

// The optimizer steps of a graph alone, with the threads they run on.
ExecutionGraph steps_alone(const ExecutionGraph& graph) {
  GraphCopy copy(graph, {});
  std::set<std::int32_t> kept;
  for (std::int32_t label : optimizer_steps(graph)) {
    for (auto at = label; at >= 0; at = graph.nodes[static_cast<std::size_t>(at)].parent) {
      kept.insert(at);
    }
  }
  std::vector<bool> inside(graph.nodes.size(), false);
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const std::int32_t parent = graph.nodes[i].parent;
    inside[i] = graph.name(graph.nodes[i]).starts_with("Optimizer.step#") ||
                (parent >= 0 && inside[static_cast<std::size_t>(parent)]);
    if (inside[i] || kept.contains(static_cast<std::int32_t>(i))) {
      copy.copy(static_cast<std::int32_t>(i));
    }
  }
  return copy.finish();
}

// Reads every step of a recording and writes it again from what was understood.
struct Recording {
  std::string file;
  Optimizer optimizer;
  Implementation implementation;
  std::size_t parameters;
  double learning_rate, weight_decay;
};

void PrintTo(const Recording& recording, std::ostream* out) { *out << recording.file; }

class RecordedStep : public testing::TestWithParam<Recording> {};

INSTANTIATE_TEST_SUITE_P(
    Public, RecordedStep,
    testing::Values(Recording{"traces/linear_et", Optimizer::kSgd, Implementation::kForeach, 42,
                              0.01, 0},
                    Recording{"traces/resnet18_et", Optimizer::kMomentum, Implementation::kForeach,
                              62, 0.1, 1e-4},
                    Recording{"traces/resnet50_ddp_et_1.1.1", Optimizer::kMomentum,
                              Implementation::kForeach, 161, 0.01, 0},
                    Recording{"traces/dlrm_v100_rank0of8_et", Optimizer::kAdagrad,
                              Implementation::kLoop, 18, 0.005, 0},
                    Recording{"traces_cpu/bert_layer_adamw.et", Optimizer::kAdamW,
                              Implementation::kLoop, 15, 0.001, 0.01},
                    Recording{"traces_cpu/resblock_sgdm.et", Optimizer::kMomentum,
                              Implementation::kLoop, 9, 0.1, 0},
                    Recording{"traces_cpu/dlrm_dense_sgd.et", Optimizer::kSgd,
                              Implementation::kLoop, 12, 0.01, 0},
                    Recording{"traces_cpu/dlrm_sparse_sgd.et", Optimizer::kSgd,
                              Implementation::kLoop, 12, 0.01, 0}));

TEST_P(RecordedStep, IsReadAndWrittenAgainOpByOp) {
  const char* folder = std::getenv("PERFMODEL_PUBLIC_DATA");
  if (folder == nullptr) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  const Recording& recording = GetParam();
  const auto graph =
      read_execution_graph(std::filesystem::path(folder) / (recording.file + ".json.gz"));
  ASSERT_TRUE(graph) << to_string(graph.error());
  const auto labels = optimizer_steps(*graph);
  ASSERT_FALSE(labels.empty());
  const auto step = read_optimizer_step(*graph, labels[0]);
  ASSERT_TRUE(step) << to_string(step.error());
  ASSERT_EQ(step->groups.size(), 1u);
  const ReadGroup& group = step->groups[0];
  EXPECT_EQ(group.settings.optimizer, recording.optimizer);
  EXPECT_EQ(group.settings.implementation, recording.implementation);
  EXPECT_EQ(group.updates.size(), recording.parameters);
  EXPECT_NEAR(group.settings.learning_rate, recording.learning_rate, 1e-6);
  EXPECT_NEAR(group.settings.weight_decay, recording.weight_decay, 1e-9);

  // An other implementation and back forces every op to be written anew.
  const bool sparse = std::any_of(group.updates.begin(), group.updates.end(),
                                  [](const ReadUpdate& update) { return update.sparse; });
  if (sparse) {
    const auto refused = rewrite_optimizer(*graph, {.implementation = Implementation::kForeach});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().message,
              "optimizer: expected dense gradients for anything but a loop of SGD, found a sparse "
              "one of [1000, 16]");
    return;
  }
  const bool loop = recording.implementation == Implementation::kLoop;
  const ExecutionGraph other = rewritten(
      *graph, {.implementation = loop ? Implementation::kForeach : Implementation::kLoop});
  const ExecutionGraph back = rewritten(other, {.implementation = recording.implementation});
  ComparisonOptions options;
  options.scalars = !loop || graph->schema != "1.0.1";  // recorded with six decimals
  const auto comparison = compare_graphs(steps_alone(*graph), steps_alone(back), options);
  EXPECT_TRUE(comparison.same()) << comparison;
}

}  // namespace
}  // namespace perfmodel
