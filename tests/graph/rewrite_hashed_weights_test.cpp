// Weights that are looked up by a hash.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>

#include "perfmodel/graph/build_model.hpp"
#include "perfmodel/graph/build_transformers.hpp"
#include "perfmodel/graph/rewrites/memory.hpp"
#include "perfmodel/predictors/detail/lower.hpp"
#include "perfmodel/predictors/gpu.hpp"

namespace perfmodel {
namespace rewrite_hashed_weights_test {

using testing::HasSubstr;
using Scheme = HashedWeightOptions::Scheme;

ExecutionGraph mlp(TrainingOptions::Optimizer optimizer = TrainingOptions::Optimizer::kAdam) {
  MlpConfig config;
  config.widths = {1024, 2048, 512};
  config.training.optimizer = optimizer;
  return build_mlp(config).value();
}

ExecutionGraph hashed(const ExecutionGraph& graph, const HashedWeightOptions& options) {
  auto made = rewrite_hashed_weights(graph, options);
  if (!made) {
    ADD_FAILURE() << to_string(made.error());
    return {};
  }
  return std::move(*made);
}

std::string error(const ExecutionGraph& graph, const HashedWeightOptions& options) {
  const auto made = rewrite_hashed_weights(graph, options);
  return made ? "none" : made.error().message;
}

struct Work {
  std::map<std::string, int> kernels;  // by op
  double optimizer_bytes = 0;
};
Work work_of(const ExecutionGraph& graph) {
  static const Gpu gpu =
      find_gpu("a100-sxm-40gb", std::filesystem::path(PERFMODEL_SOURCE_DIR) / "data" / "gpus")
          .value();
  Work sum;
  Lowering lowering(graph, gpu, nullptr);
  for (const Node& node : graph.nodes) {
    if (graph.name(node).starts_with("hashed::")) ++sum.kernels[std::string(graph.name(node))];
  }
  for (const std::int32_t op : top_level_ops(graph)) {
    const std::string_view name = graph.name(graph.nodes[static_cast<std::size_t>(op)]);
    for (const KernelWork& work : lowering.lower(op).work) {
      if (name.find("_foreach") != name.npos) sum.optimizer_bytes += work.bytes().value;
    }
  }
  return sum;
}

// Two layers: a product each forward and, except in the first, backward; a gradient each.
TEST(HashedWeights, ProductsOfLinearLayersAndTheirGradients) {
  const Work work = work_of(hashed(mlp(), {.pattern = "aten::linear", .compression = 64}));
  EXPECT_EQ(work.kernels,
            (std::map<std::string, int>{
                {"hashed::addmm", 2}, {"hashed::mm", 1}, {"hashed::weight_gradient", 2}}));
}

// Weights of 2,097,152 and 1,048,576 numbers, arrays of a 64th; biases of 2,560 stay.
TEST(HashedWeights, OptimizerMovesTheArraysAlone) {
  const ExecutionGraph before = mlp();
  const double dense = work_of(before).optimizer_bytes;
  const double arrays =
      work_of(hashed(before, {.pattern = "aten::linear", .compression = 64})).optimizer_bytes;
  constexpr double kWeights = 2097152 + 1048576, kBiases = 2560;
  EXPECT_NEAR(arrays / dense, (kWeights / 64 + kBiases) / (kWeights + kBiases), 1e-3);
}

TEST(HashedWeights, LayersThatThePatternDoesNotMeanStay) {
  BertConfig config = bert_preset("bert-base").value();
  config.layers = 1;
  config.batch = 2;
  config.sequence = 16;
  const ExecutionGraph graph = build_bert(config).value();
  const Work work = work_of(
      hashed(graph, {.pattern = "aten::embedding", .compression = 100, .scheme = Scheme::kRobe}));
  EXPECT_GE(work.kernels.at("hashed::embedding"), 1);
  EXPECT_EQ(work.kernels.at("hashed::embedding_gradient"), work.kernels.at("hashed::embedding"));
  EXPECT_FALSE(work.kernels.contains("hashed::mm") && work.kernels.at("hashed::mm") > 1);
}

TEST(HashedWeights, BadInput) {
  const ExecutionGraph graph = mlp();
  EXPECT_EQ(error(graph, {.pattern = "aten::linear", .compression = 0.5}),
            "hash-weights: expected a compression of at least 1, found 0.5");
  EXPECT_THAT(error(graph, {.pattern = "aten::conv2d"}), HasSubstr("near: "));
  EXPECT_THAT(error(graph, {.pattern = "aten::linear", .compression = 1e6}),
              HasSubstr("found 3 for a weight [2048, 1024] at compression 1000000"));
  EXPECT_THAT(error(graph, {.pattern = "aten::linear", .scheme = Scheme::kRobe}),
              HasSubstr("expected a layer with a weight matrix"));
}

}  // namespace rewrite_hashed_weights_test
}  // namespace perfmodel
