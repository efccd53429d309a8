// Layers of experts in the graphs of decoders.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "../scratch.hpp"
#include "graph_comparison.hpp"
#include "perfmodel/graph/build_transformers.hpp"
#include "perfmodel/graph/model_size.hpp"
#include "perfmodel/graph/read_execution_graph.hpp"
#include "perfmodel/graph/rewrites/resize.hpp"
#include "perfmodel/graph/rewrites/training.hpp"
#include "perfmodel/graph/write_execution_graph.hpp"

namespace perfmodel {
namespace build_experts_test {

template <class Config>
Config small(Config config) {
  config.batch = 6;
  config.sequence = 64;
  config.layers = 2;
  config.hidden = 120;
  config.heads = 3;
  config.feed_forward = 136;
  config.vocabulary = 500;
  return config;
}

LlamaConfig llama(const ExpertsConfig& experts = {}) {
  LlamaConfig config = small(llama_preset("llama-7b").value());
  config.kv_heads = 3;
  config.experts = experts;
  return config;
}

GptConfig gpt(const ExpertsConfig& experts = {}) {
  GptConfig config = small(gpt_preset("gpt2").value());
  config.experts = experts;
  return config;
}

std::size_t count(const ExecutionGraph& graph, std::string_view name) {
  return static_cast<std::size_t>(std::ranges::count_if(
      graph.nodes, [&](const Node& node) { return graph.name(node) == name; }));
}

TEST(BuiltExperts, MixtralHasTheParametersOfItsPaper) {
  // A layer: queries and the output 2 H^2, keys and values 2 H^2 / 4, experts 3 E H F, router H E,
  // norms 2 H. 46.7e9 and 140.6e9 in Jiang et al. 2024 and in Mistral's announcement.
  const auto formula = [](double l, double h, double kv, double f, double v) {
    return l * (2 * h * h + 2 * h * kv + 24 * h * f + 8 * h + 2 * h) + 2 * v * h + h;
  };
  for (const auto& [name, expected] : {std::pair{"mixtral-8x7b", std::int64_t{46702792704}},
                                       {"mixtral-8x22b", std::int64_t{140630071296}}}) {
    LlamaConfig config = llama_preset(name).value();
    config.sequence = 16;
    config.training.optimizer = TrainingOptions::Optimizer::kNoOptimizer;
    const std::int64_t found = model_size(build_llama(config).value()).parameters;
    EXPECT_EQ(found, expected) << name;
    const auto real = [](std::int64_t size) { return static_cast<double>(size); };
    EXPECT_EQ(real(found), formula(real(config.layers), real(config.hidden),
                                   real(config.hidden / config.heads * config.kv_heads),
                                   real(config.feed_forward), real(config.vocabulary)));
  }
}

TEST(BuiltExperts, ParametersAreThoseOfTheDenseModelWithItsLayersReplaced) {
  const std::int64_t h = 120, f = 136, layers = 2;
  const auto of = [](const ExecutionGraph& graph) { return model_size(graph).parameters; };
  const std::int64_t dense = of(build_llama(llama()).value());
  EXPECT_EQ(of(build_llama(llama({.experts = 5})).value()),
            dense + layers * (5 * 3 * h * f + 5 * h - 3 * h * f));
  EXPECT_EQ(of(build_llama(llama({.experts = 5, .hidden = 24, .shared = 2})).value()),
            dense + layers * (5 * 3 * h * 24 + 5 * h + 3 * h * 2 * 24 - 3 * h * f));
  // Two products, whose biases are gone.
  EXPECT_EQ(of(build_gpt(gpt({.experts = 5})).value()),
            of(build_gpt(gpt()).value()) + layers * (5 * 2 * h * f + 5 * h - (2 * h * f + f + h)));
}

// Each token goes through top_k experts, whatever their number: forward and twice backward.
TEST(BuiltExperts, FlopCountsTheExpertsThatTakeAToken) {
  const double tokens = 6 * 64, layers = 2, h = 120;
  const auto of = [](const ExecutionGraph& graph) { return model_size(graph).matrix_flop; };
  const double dense = of(build_llama(llama()).value());
  for (std::int64_t experts : {1, 5, 16}) {
    const double router = 6 * tokens * h * static_cast<double>(experts) * layers;
    EXPECT_EQ(of(build_llama(llama({.experts = experts, .top_k = 1})).value()), dense + router);
    if (experts < 4) continue;
    // Four of a quarter of the width are one.
    EXPECT_EQ(of(build_llama(llama({.experts = experts, .top_k = 4, .hidden = 34})).value()),
              dense + router);
    // So are one and one for all tokens, of half the width each.
    EXPECT_EQ(
        of(build_llama(llama({.experts = experts, .top_k = 1, .hidden = 68, .shared = 1})).value()),
        dense + router);
  }
}

TEST(BuiltExperts, OneProductServesAllExperts) {
  const ExecutionGraph graph = build_llama(llama({.experts = 5})).value();
  EXPECT_EQ(count(graph, "aten::_grouped_mm"), 2U * 3 * 3);  // layers, products, both passes
  EXPECT_EQ(count(graph, "aten::topk"), 2U);
  EXPECT_EQ(count(graph, "aten::nonzero"), 0U);  // nothing waits for the device
  EXPECT_EQ(count(build_gpt(gpt({.experts = 5})).value(), "aten::_grouped_mm"), 2U * 2 * 3);
  for (const Node& node : graph.nodes) {
    if (graph.name(node) != "aten::_grouped_mm") continue;
    const Tensor& rows = graph.tensors[graph.inputs(node)[0].index];
    const Tensor& ends = graph.tensors[graph.inputs(node)[2].index];
    EXPECT_EQ(std::ranges::count(graph.shape(rows), 6 * 64 * 2), 1);  // top-2
    EXPECT_EQ(ends.dtype, DType::kInt32);
    EXPECT_EQ(ends.numel, 5);
  }
}

TEST(BuiltExperts, BalanceLossOfEachLayerReachesItsRouter) {
  const ExecutionGraph without = build_llama(llama({.experts = 5})).value();
  const ExecutionGraph with = build_llama(llama({.experts = 5, .balance_loss = 0.01})).value();
  EXPECT_EQ(count(without, "aten::one_hot"), 0U);
  EXPECT_EQ(count(with, "aten::one_hot"), 2U);
  EXPECT_EQ(model_size(with).parameters, model_size(without).parameters);
  EXPECT_EQ(model_size(with).matrix_flop, model_size(without).matrix_flop);
  // The chances of a layer get a second gradient.
  EXPECT_EQ(count(with, "SoftmaxBackward0"), count(without, "SoftmaxBackward0"));
  EXPECT_EQ(count(with, "MeanBackward1"), count(without, "MeanBackward1") + 2);
}

TEST(BuiltExperts, BackwardFunctionsHavePartners) {
  for (const ExecutionGraph& graph :
       {build_llama(llama({.experts = 5, .shared = 1, .balance_loss = 0.01})).value(),
        build_gpt(gpt({.experts = 4, .top_k = 1})).value()}) {
    const auto partners = forward_partners(graph);
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
      const Node& node = graph.nodes[i];
      if (node.scope != Scope::kBackward || node.seq_id < 0) continue;
      ASSERT_GE(partners[i], 0) << graph.name(node) << " " << node.seq_id;
      const std::string_view forward =
          graph.name(graph.nodes[static_cast<std::size_t>(partners[i])]);
      if (graph.name(node) == "GroupedMmBackward0") {
        EXPECT_EQ(forward, "aten::_grouped_mm");
      }
      if (graph.name(node) == "TopkBackward0") {
        EXPECT_EQ(forward, "aten::topk");
      }
      if (graph.name(node) == "IndexAddBackward0") {
        EXPECT_EQ(forward, "aten::index_add_");
      }
    }
  }
}

TEST(BuiltExperts, AnotherBatchIsTheModelBuiltWithIt) {
  const ExpertsConfig experts = {.experts = 5, .shared = 1, .balance_loss = 0.01};
  for (std::int64_t batch : {3, 10}) {
    LlamaConfig other = llama(experts);
    other.batch = batch;
    const auto made = set_batch_size(build_llama(llama(experts)).value(), {.batch = batch});
    ASSERT_TRUE(made) << to_string(made.error());
    const ComparisonOptions options{.leave_out = [](const ExecutionGraph& graph, const Node& node) {
      return node.parent >= 0 && graph.name(node) == "aten::empty" &&
             graph.name(graph.nodes[static_cast<std::size_t>(node.parent)]) ==
                 "aten::embedding_dense_backward";  // scratch, rounded
    }};
    const GraphComparison comparison = compare_graphs(*made, build_llama(other).value(), options);
    EXPECT_TRUE(comparison.same()) << comparison;
  }
}

TEST(BuiltExperts, DataParallelReducesTheWeightsOfAllExperts) {
  const ExecutionGraph one = build_llama(llama({.experts = 5})).value();
  const auto graph = rewrite_data_parallel(one, {.world_size = 4});
  ASSERT_TRUE(graph) << to_string(graph.error());
  std::int64_t reduced = 0;
  for (const Node& node : graph->nodes) {
    if (graph->name(node) != "c10d::allreduce_") continue;
    for_each_tensor(*graph, graph->inputs(node),
                    [&](const Tensor& bucket) { reduced += bucket.numel; });
  }
  EXPECT_EQ(reduced, model_size(one).parameters);
}

TEST(BuiltExperts, AutocastLowersTheirProducts) {
  const auto graph = rewrite_precision(build_llama(llama({.experts = 5})).value(),
                                       {.precision = PrecisionOptions::Precision::kBf16});
  ASSERT_TRUE(graph) << to_string(graph.error());
  std::size_t products = 0;
  for (const Node& node : graph->nodes) {
    if (graph->name(node) != "aten::_grouped_mm" || node.children_count > 0) continue;
    ++products;
    for (std::size_t i : {0U, 1U}) {
      EXPECT_EQ(graph->tensors[graph->inputs(node)[i].index].dtype, DType::kBFloat16);
    }
  }
  EXPECT_EQ(products, 2U * 3 * 3);
}

TEST(BuiltExperts, WrittenAndReadBackAreTheSame) {
  const ExecutionGraph graph = build_llama(llama({.experts = 5, .balance_loss = 0.01})).value();
  const std::string file = test_support::scratch_file("built_experts.json");
  ASSERT_TRUE(write_execution_graph(graph, file, {.generator = "test"}));
  const auto read = read_execution_graph(file);
  ASSERT_TRUE(read) << to_string(read.error());
  const GraphComparison comparison = compare_graphs(graph, *read);
  EXPECT_TRUE(comparison.same()) << comparison;
}

std::string refusal(const ExpertsConfig& experts, bool on_gpu = true) {
  LlamaConfig config = llama(experts);
  if (!on_gpu) config.training.pytorch.device = {.kind = Device::Kind::kCpu, .index = -1};
  const auto graph = build_llama(config);
  return graph ? "" : graph.error().message;
}

TEST(BuiltExperts, RefuseWithAReason) {
  EXPECT_EQ(refusal({.experts = 4, .top_k = 5}), "top-k: expected 1 to the 4 experts, found 5");
  EXPECT_EQ(refusal({.experts = 4, .top_k = 0}), "top-k: expected 1 to the 4 experts, found 0");
  EXPECT_EQ(refusal({.experts = -1}), "experts: expected at least 0, found -1");
  EXPECT_EQ(refusal({.hidden = 64}),
            "experts: expected a number of them with their width, shared experts or balance "
            "loss, found 0");
  EXPECT_EQ(refusal({.experts = 4}, false),
            "experts: expected PyTorch 2 on a GPU (their products are one op there), found "
            "another");
}

}  // namespace build_experts_test
}  // namespace perfmodel
