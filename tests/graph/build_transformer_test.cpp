#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "graph_comparison.hpp"
#include "perfmodel/graph/build_torch_encoder.hpp"
#include "perfmodel/graph/read_execution_graph.hpp"

namespace perfmodel {
namespace {

TransformerConfig recorded_layer() {
  TransformerConfig config;
  config.batch = 4;
  config.sequence = 64;
  config.layers = 1;
  config.hidden = 128;
  config.heads = 4;
  config.feed_forward = 512;
  config.vocabulary = 1000;
  config.training.pytorch = {.major = 1, .minor = 13, .device = {.kind = Device::Kind::kCpu}};
  config.training.pytorch.mkl = false;
  config.training.resident_input = true;
  config.training.regions = TrainingOptions::Regions::kLossInForward;
  config.training.step_label.clear();
  return config;
}

TEST(BuiltTorchEncoder, EqualsTheRecordingOpByOp) {
  const char* folder = std::getenv("PERFMODEL_PUBLIC_DATA");
  if (folder == nullptr) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  const auto recorded = read_execution_graph(std::filesystem::path(folder) /
                                             "traces_cpu/bert_layer_adamw.et.json.gz");
  ASSERT_TRUE(recorded) << to_string(recorded.error());
  const auto built = build_torch_encoder(recorded_layer());
  ASSERT_TRUE(built) << to_string(built.error());
  ComparisonOptions options;
  options.leave_out = [](const ExecutionGraph& graph, const Node& node) {
    return graph.name(node).starts_with("Optimizer.step#");  // compared by its own test
  };
  const GraphComparison comparison = compare_graphs(*recorded, *built, options);
  EXPECT_TRUE(comparison.same()) << comparison;
  EXPECT_GT(comparison.equal, 1000U);
}

}  // namespace
}  // namespace perfmodel
