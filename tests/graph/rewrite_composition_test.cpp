// Rewrites that touch different things give the same graph in any order; written and read again, a
// rewritten graph is the same.
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "../scratch.hpp"
#include "graph_comparison.hpp"
#include "perfmodel/graph/build_model.hpp"
#include "perfmodel/graph/build_recommenders.hpp"
#include "perfmodel/graph/build_transformers.hpp"
#include "perfmodel/graph/read_execution_graph.hpp"
#include "perfmodel/graph/rewrite.hpp"
#include "perfmodel/graph/rewrites/resize.hpp"
#include "perfmodel/graph/rewrites/retarget.hpp"
#include "perfmodel/graph/rewrites/training.hpp"
#include "perfmodel/graph/write_execution_graph.hpp"

namespace perfmodel {
namespace rewrite_composition_test {

constexpr std::int64_t kOtherBatch = 22;

NamedRewrite batch() {
  return {"--batch", [](const ExecutionGraph& graph) {
            return set_batch_size(graph, {.batch = kOtherBatch});
          }};
}

NamedRewrite optimizer(TrainingOptions::Implementation implementation) {
  return {"--optimizer", [implementation](const ExecutionGraph& graph) {
            return rewrite_optimizer(graph, {.optimizer = TrainingOptions::Optimizer::kAdamW,
                                             .implementation = implementation});
          }};
}

NamedRewrite precision() {
  return {"--precision", [](const ExecutionGraph& graph) {
            return rewrite_precision(graph, {.precision = PrecisionOptions::Precision::kBf16});
          }};
}

NamedRewrite data_parallel() {
  return {"--data-parallel",
          [](const ExecutionGraph& graph) { return rewrite_data_parallel(graph, {}); }};
}

NamedRewrite on_gpu() {
  return {"--retarget", [](const ExecutionGraph& graph) { return retarget(graph); }};
}

struct Model {
  std::string name;
  std::function<Result<ExecutionGraph>(const PyTorch&)> build;
};

std::vector<Model> models() {
  const auto transformer = [](auto config, const PyTorch& pytorch) {
    config.layers = 2;
    config.hidden = 96;
    config.heads = 3;
    config.feed_forward = 136;
    config.vocabulary = 500;
    config.batch = 6;
    config.sequence = 64;
    config.training.pytorch = pytorch;
    return config;
  };
  return {{"mlp",
           [](const PyTorch& pytorch) {
             MlpConfig config = mlp_preset("mnist").value();
             config.training.pytorch = pytorch;
             return build_mlp(config);
           }},
          {"resnet18",
           [](const PyTorch& pytorch) {
             ResnetConfig config = resnet_preset("resnet18").value();
             config.batch = 16;
             config.training.pytorch = pytorch;
             return build_resnet(config);
           }},
          {"lstm",
           [](const PyTorch& pytorch) {
             LstmConfig config;
             config.embedding = config.hidden = 72;
             config.training.pytorch = pytorch;
             return build_lstm(config);
           }},
          {"bert",
           [transformer](const PyTorch& pytorch) {
             return build_bert(transformer(bert_preset("bert-base").value(), pytorch));
           }},
          {"gpt", [transformer](const PyTorch& pytorch) {
             return build_gpt(transformer(gpt_preset("gpt2").value(), pytorch));
           }}};
}

void expect_any_order(const ExecutionGraph& graph, const NamedRewrite& one,
                      const NamedRewrite& other) {
  SCOPED_TRACE(one.name + " and " + other.name);
  const auto first = apply_rewrites(graph, std::vector{one, other});
  const auto second = apply_rewrites(graph, std::vector{other, one});
  ASSERT_TRUE(first) << first.error().message;
  ASSERT_TRUE(second) << second.error().message;
  const auto comparison = compare_graphs(*first, *second);
  EXPECT_TRUE(comparison.same()) << comparison;
  EXPECT_FALSE(graph_difference(graph, *first).none());
}

TEST(Composition, RewritesOfDifferentThingsCommute) {
  const auto fused = optimizer(TrainingOptions::Implementation::kFused);
  for (const Model& model : models()) {
    SCOPED_TRACE(model.name);
    const auto graph = model.build({});
    ASSERT_TRUE(graph) << graph.error().message;
    expect_any_order(*graph, batch(), fused);
    expect_any_order(*graph, batch(), precision());
    expect_any_order(*graph, batch(), data_parallel());
    expect_any_order(*graph, fused, precision());
    expect_any_order(*graph, fused, data_parallel());
  }
}

TEST(Composition, WhatARecordingOfACpuIsAskedMayComeBeforeOrBehindRetarget) {
  const auto foreach = optimizer(TrainingOptions::Implementation::kForeach);
  for (const Model& model : models()) {
    if (model.name == "lstm") continue;  // a CPU unrolls it
    SCOPED_TRACE(model.name);
    const auto graph = model.build({.device = {.kind = Device::Kind::kCpu}});
    ASSERT_TRUE(graph) << graph.error().message;
    expect_any_order(*graph, batch(), on_gpu());
    expect_any_order(*graph, foreach, on_gpu());
  }
}

// DDP fills its buckets in the order in which gradients come, and under autocast a layer's weight
// and bias come the other way round: the order of these two is the program's.
TEST(Composition, PrecisionMovesGradientsBetweenBuckets) {
  const ExecutionGraph graph = models()[0].build({}).value();
  const auto first = apply_rewrites(graph, std::vector{precision(), data_parallel()}).value();
  const auto second = apply_rewrites(graph, std::vector{data_parallel(), precision()}).value();
  EXPECT_FALSE(compare_graphs(first, second).same());
  const auto reduced = [](const ExecutionGraph& made) {
    std::int64_t elements = 0;
    for (const Node& node : made.nodes) {
      if (made.name(node) != "nccl:all_reduce") continue;
      elements += made.tensors[made.inputs(node)[0].index].numel;
    }
    return elements;
  };
  EXPECT_EQ(reduced(first), reduced(second));
}

// The region of the model holds all of its ops, also those that autocast wraps.
TEST(Composition, TheModelOfDataParallelBeginsWithItsFirstOp) {
  const ExecutionGraph graph = models()[0].build({}).value();
  const auto made = apply_rewrites(graph, std::vector{precision(), data_parallel()}).value();
  for (const Node& node : made.nodes) {
    if (made.name(node) != "aten::linear") continue;
    std::int32_t up = node.parent;
    while (up >= 0 && !made.nodes[static_cast<std::size_t>(up)].is_label) {
      up = made.nodes[static_cast<std::size_t>(up)].parent;
    }
    EXPECT_EQ(made.name(made.nodes[static_cast<std::size_t>(up)]),
              "DistributedDataParallel.forward");
  }
}

TEST(Composition, WrittenAndReadAgainAllOfThemAreTheSame) {
  const auto file = test_support::scratch() / "rewritten.json.gz";
  for (const Model& model : models()) {
    SCOPED_TRACE(model.name);
    const auto made = apply_rewrites(
        model.build({}).value(),
        std::vector{batch(), precision(), optimizer(TrainingOptions::Implementation::kFused),
                    data_parallel()});
    ASSERT_TRUE(made) << made.error().message;
    ASSERT_TRUE(write_execution_graph(*made, file));
    const auto read = read_execution_graph(file);
    ASSERT_TRUE(read) << to_string(read.error());
    EXPECT_TRUE(execution_graph_json(*read) == execution_graph_json(*made));
  }
}

}  // namespace rewrite_composition_test
}  // namespace perfmodel
