// fp8 and fp4: products of linear layers in 8 and 4 bits, the rest in bf16.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "../scratch.hpp"
#include "graph_comparison.hpp"
#include "perfmodel/graph/build_model.hpp"
#include "perfmodel/graph/build_transformers.hpp"
#include "perfmodel/graph/detail/static_memory.hpp"
#include "perfmodel/graph/model_size.hpp"
#include "perfmodel/graph/read_execution_graph.hpp"
#include "perfmodel/graph/rewrites/resize.hpp"
#include "perfmodel/graph/rewrites/training.hpp"
#include "perfmodel/graph/write_execution_graph.hpp"

namespace perfmodel {
namespace rewrite_narrow_precision_test {

using Precision = PrecisionOptions::Precision;
using Scaling = PrecisionOptions::Scaling;

constexpr PrecisionOptions kFp8 = {.precision = Precision::kFp8};
constexpr PrecisionOptions kFp4 = {.precision = Precision::kFp4, .scaling = Scaling::kNv16};

template <class Config>
Config small(Config config, std::int64_t batch = 4) {
  config.batch = batch;
  config.sequence = 64;
  config.layers = 2;
  config.hidden = 256;
  config.heads = 4;
  config.feed_forward = 512;
  config.vocabulary = 640;
  return config;
}

ExecutionGraph llama(std::int64_t batch = 4, std::int64_t experts = 0) {
  LlamaConfig config = small(llama_preset("llama-7b").value(), batch);
  config.kv_heads = 4;
  config.experts.experts = experts;
  return build_llama(config).value();
}

ExecutionGraph gpt() { return build_gpt(small(gpt_preset("gpt2").value())).value(); }

ExecutionGraph rewritten(const ExecutionGraph& graph, const PrecisionOptions& options) {
  auto made = rewrite_precision(graph, options);
  if (!made) {
    ADD_FAILURE() << to_string(made.error());
    return {};
  }
  return std::move(*made);
}

std::string refusal(const ExecutionGraph& graph, const PrecisionOptions& options) {
  const auto made = rewrite_precision(graph, options);
  return made ? "" : made.error().message;
}

std::size_t count(const ExecutionGraph& graph, std::string_view name) {
  return static_cast<std::size_t>(std::ranges::count_if(graph.nodes, [&](const Node& node) {
    return graph.name(node) == name && node.children_count == 0;
  }));
}

std::vector<std::int64_t> sizes(const ExecutionGraph& graph, const Argument& argument) {
  const auto shape = graph.shape(graph.tensors[argument.index]);
  return {shape.begin(), shape.end()};
}

DType type(const ExecutionGraph& graph, const Argument& argument) {
  return graph.tensors[argument.index].dtype;
}

TEST(NarrowPrecision, ProductsOfLinearLayersAloneAreNarrow) {
  const ExecutionGraph graph = rewritten(llama(), kFp8);
  // Seven linear layers of two layers, each with the gradients of its input and its weight.
  EXPECT_EQ(count(graph, "aten::_scaled_mm"), 2U * 7 * 3);
  EXPECT_EQ(count(graph, "aten::mm"), 3U);            // the head
  EXPECT_EQ(count(graph, "aten::bmm"), 2U * 6 + 1U);  // attention, angles of positions
  // Input, weight and gradient of each layer.
  EXPECT_EQ(count(graph, "transformer_engine::quantize"), 2U * 7 * 3);
  EXPECT_EQ(count(graph, "transformer_engine::compute_amax"), 0U);
  for (const Node& node : graph.nodes) {
    const auto inputs = graph.inputs(node);
    if (graph.name(node) == "aten::_scaled_mm") {
      EXPECT_EQ(type(graph, inputs[0]), DType::kFloat8);
      EXPECT_EQ(type(graph, inputs[1]), DType::kFloat8);
      EXPECT_EQ(type(graph, inputs[2]), DType::kFloat32);
      EXPECT_EQ(type(graph, graph.outputs(node)[0]), DType::kBFloat16);
      EXPECT_EQ(sizes(graph, inputs[0])[1], sizes(graph, inputs[1])[0]);
    } else if (graph.name(node) == "torch::autograd::AccumulateGrad") {
      EXPECT_EQ(type(graph, inputs[0]), DType::kFloat32);
    }
  }
}

TEST(NarrowPrecision, HeadsAndRoutersStayWide) {
  // 16 experts: their number alone would allow 8 bits.
  const ExecutionGraph graph = rewritten(llama(4, 16), kFp8);
  EXPECT_EQ(count(graph, "aten::mm"), 3U + 2U * 3);
  EXPECT_EQ(count(graph, "aten::_scaled_mm"), 2U * 4 * 3);
  EXPECT_EQ(count(graph, "aten::_grouped_mm"), 0U);
  EXPECT_EQ(count(graph, "aten::_scaled_grouped_mm"), 2U * 3 * 3);
  // GPT's head is the table of words, whose half copy no other op reads.
  const ExecutionGraph tied = rewritten(gpt(), kFp8);
  EXPECT_EQ(count(tied, "aten::mm"), 3U);
  EXPECT_EQ(count(tied, "aten::_scaled_mm"), 2U * 4 * 3);
  EXPECT_EQ(count(tied, "aten::addmm"), 0U);
}

TEST(NarrowPrecision, SizeOfTheModelStays) {
  for (const ExecutionGraph& before : {llama(), llama(4, 8), gpt()}) {
    const ModelSize was = model_size(before);
    for (const PrecisionOptions& options :
         {kFp8, PrecisionOptions{Precision::kFp8, Scaling::kBlock128}, kFp4}) {
      const ModelSize is = model_size(rewritten(before, options));
      EXPECT_EQ(is.parameters, was.parameters);
      EXPECT_EQ(is.matrix_flop, was.matrix_flop);
    }
  }
}

// fp32 parameters, gradients and states; the narrow copies are the step's own.
TEST(NarrowPrecision, MemoryBetweenStepsStays) {
  const StaticMemory was = static_memory(rewritten(llama(), {.precision = Precision::kBf16}));
  for (const PrecisionOptions& options : {kFp8, kFp4}) {
    const StaticMemory is = static_memory(rewritten(llama(), options));
    EXPECT_EQ(is.parameters, was.parameters);
    EXPECT_EQ(is.gradients, was.gradients);
    EXPECT_EQ(is.optimizer_state, was.optimizer_state);
  }
}

TEST(NarrowPrecision, WeightsAreQuantisedOnceInPlaceOfTheirHalfCopies) {
  const ExecutionGraph half = rewritten(llama(), {.precision = Precision::kBf16});
  const ExecutionGraph graph = rewritten(llama(), kFp8);
  EXPECT_EQ(count(half, "aten::_scaled_mm"), 0U);
  std::size_t of_weights = 0;
  for (const Node& node : graph.nodes) {
    if (graph.name(node) != "transformer_engine::quantize") continue;
    const auto inputs = graph.inputs(node), outputs = graph.outputs(node);
    const bool weight = type(graph, inputs[0]) == DType::kFloat32;
    of_weights += weight;
    EXPECT_EQ(weight, node.seq_id >= 0);  // the number of the half copy
    const auto x = sizes(graph, inputs[0]);
    EXPECT_EQ(sizes(graph, outputs[0]), x);
    EXPECT_EQ(sizes(graph, outputs[1]), (std::vector{x[1], x[0]}));
    EXPECT_EQ(type(graph, outputs[0]), DType::kFloat8);
    EXPECT_EQ(type(graph, outputs[1]), DType::kFloat8);
    EXPECT_EQ(sizes(graph, outputs[2]), std::vector<std::int64_t>{1});
  }
  EXPECT_EQ(of_weights, 2U * 7);
  const auto casts = [](const ExecutionGraph& made) {
    return std::ranges::count_if(
        made.nodes, [&](const Node& node) { return made.name(node) == "ToCopyBackward0"; });
  };
  EXPECT_EQ(casts(graph), casts(half));
}

TEST(NarrowPrecision, SequenceNumbersHavePartners) {
  for (const ExecutionGraph& before : {llama(), llama(4, 8), gpt()}) {
    const ExecutionGraph graph = rewritten(before, kFp8);
    const auto partners = forward_partners(graph);
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
      const Node& node = graph.nodes[i];
      if (node.scope != Scope::kBackward || node.seq_id < 0) continue;
      ASSERT_GE(partners[i], 0) << graph.name(node);
    }
  }
}

TEST(NarrowPrecision, EveryTensorThatIsReadWasMadeOrIsAParameter) {
  for (const ExecutionGraph& before : {llama(), llama(4, 8), gpt()}) {
    std::set<std::int64_t> outside;  // storages that bf16 takes from outside
    const auto from_outside = [](const ExecutionGraph& graph) {
      std::set<std::int64_t> made, taken;
      std::size_t found = 0;
      for (const Node& node : graph.nodes) {
        for_each_tensor(graph, graph.inputs(node), [&](const Tensor& tensor) {
          if (tensor.on_gpu() && !made.contains(tensor.storage_id)) {
            found += taken.insert(tensor.storage_id).second;
          }
        });
        for_each_tensor(graph, graph.outputs(node),
                        [&](const Tensor& tensor) { made.insert(tensor.storage_id); });
      }
      return found;
    };
    EXPECT_EQ(from_outside(rewritten(before, kFp8)),
              from_outside(rewritten(before, {.precision = Precision::kBf16})));
  }
}

TEST(NarrowPrecision, ScalesAreThoseOfTheRecipe) {
  struct Case {
    Scaling scaling;
    std::vector<std::int64_t> of_input, of_weight;  // [256, 256] of queries, both [rows, columns]
    std::size_t maxima;
  };
  const std::size_t all = 2 * 7 * 3;
  for (const Case& each :
       {Case{Scaling::kDelayed, {1}, {1}, 0}, Case{Scaling::kCurrent, {1}, {1}, all},
        Case{Scaling::kToken, {256, 1}, {256, 1}, 0}, Case{Scaling::kBlock128, {256, 2}, {2, 2}, 0},
        Case{Scaling::kMx, {256, 8}, {256, 8}, 0}}) {
    const ExecutionGraph graph =
        rewritten(llama(), {.precision = Precision::kFp8, .scaling = each.scaling});
    EXPECT_EQ(count(graph, "transformer_engine::compute_amax"), each.maxima);
    const auto first = std::ranges::find_if(
        graph.nodes, [&](const Node& node) { return graph.name(node) == "aten::_scaled_mm"; });
    ASSERT_NE(first, graph.nodes.end());
    const auto inputs = graph.inputs(*first);
    EXPECT_EQ(sizes(graph, inputs[2]), each.of_input);
    EXPECT_EQ(sizes(graph, inputs[3]), each.of_weight);
  }
}

TEST(NarrowPrecision, FourBitsAreHalfAsManyElements) {
  const ExecutionGraph graph = rewritten(llama(), kFp4);
  EXPECT_EQ(count(graph, "aten::_scaled_mm"), 2U * 7 * 3);
  const auto first = std::ranges::find_if(
      graph.nodes, [&](const Node& node) { return graph.name(node) == "aten::_scaled_mm"; });
  ASSERT_NE(first, graph.nodes.end());
  const auto inputs = graph.inputs(*first);
  EXPECT_EQ(type(graph, inputs[0]), DType::kFloat4);
  EXPECT_EQ(sizes(graph, inputs[0]), (std::vector<std::int64_t>{256, 128}));
  EXPECT_EQ(sizes(graph, inputs[1]), (std::vector<std::int64_t>{128, 256}));
  EXPECT_EQ(sizes(graph, inputs[2]), (std::vector<std::int64_t>{256, 16}));
  EXPECT_EQ(sizes(graph, graph.outputs(*first)[0]), (std::vector<std::int64_t>{256, 256}));
}

TEST(NarrowPrecision, GraphsInBf16AreTakenAsTheyAre) {
  const ExecutionGraph half = rewritten(llama(), {.precision = Precision::kBf16});
  EXPECT_EQ(execution_graph_json(rewritten(half, kFp8)),
            execution_graph_json(rewritten(llama(), kFp8)));
}

TEST(NarrowPrecision, ForwardPassesNeedNoCopiesAlongColumns) {
  LlamaConfig config = small(llama_preset("llama-7b").value());
  config.kv_heads = 4;
  config.training.phase = TrainingOptions::Phase::kForward;
  const ExecutionGraph graph = rewritten(build_llama(config).value(), kFp8);
  EXPECT_EQ(count(graph, "aten::_scaled_mm"), 2U * 7);
  for (const Node& node : graph.nodes) {
    if (graph.name(node) != "transformer_engine::quantize") continue;
    EXPECT_EQ(graph.tensors[graph.outputs(node)[1].index].dtype, DType::kUnknown);
  }
}

// Steps of a recurrent decoder read the same weights; the first one needs no gradient of its state.
TEST(NarrowPrecision, SharedWeightsAreQuantisedOnceForAllThatReadThem) {
  Seq2seqConfig config;
  config.source_vocabulary = config.target_vocabulary = 640;
  config.embedding = config.hidden = config.attention = 64;
  config.source_steps = 6;
  config.target_steps = 5;
  config.batch = 16;
  const ExecutionGraph graph = rewritten(build_seq2seq(config).value(), kFp8);
  EXPECT_GT(count(graph, "aten::_scaled_mm"), 0U);
  std::map<std::int64_t, int> copies;  // by weight
  for (const Node& node : graph.nodes) {
    if (graph.name(node) != "transformer_engine::quantize") continue;
    const Tensor& x = graph.tensors[graph.inputs(node)[0].index];
    if (x.dtype == DType::kFloat32) ++copies[x.id];
  }
  EXPECT_FALSE(copies.empty());
  for (const auto& [id, number] : copies) EXPECT_EQ(number, 1) << id;
}

TEST(NarrowPrecision, AnotherBatchIsThatOfTheModelBuiltWithIt) {
  for (const PrecisionOptions& options :
       {kFp8, PrecisionOptions{Precision::kFp8, Scaling::kToken},
        PrecisionOptions{Precision::kFp8, Scaling::kBlock128}, kFp4}) {
    for (std::int64_t experts : {0, 8}) {
      const auto made = set_batch_size(rewritten(llama(4, experts), options), {.batch = 6});
      ASSERT_TRUE(made) << to_string(made.error());
      const ComparisonOptions compared{
          .leave_out = [](const ExecutionGraph& graph, const Node& node) {
            return node.parent >= 0 && graph.name(node) == "aten::empty" &&
                   graph.name(graph.nodes[static_cast<std::size_t>(node.parent)]) ==
                       "aten::embedding_dense_backward";  // scratch, rounded
          }};
      const GraphComparison comparison =
          compare_graphs(*made, rewritten(llama(6, experts), options), compared);
      EXPECT_TRUE(comparison.same()) << comparison;
    }
  }
}

TEST(NarrowPrecision, WrittenAndReadBackAreTheSame) {
  for (const PrecisionOptions& options : {kFp8, kFp4}) {
    const ExecutionGraph graph = rewritten(llama(4, 8), options);
    const std::string file = test_support::scratch_file("narrow.json");
    ASSERT_TRUE(write_execution_graph(graph, file, {.generator = "test"}));
    const auto read = read_execution_graph(file);
    ASSERT_TRUE(read) << to_string(read.error());
    const GraphComparison comparison = compare_graphs(graph, *read);
    EXPECT_TRUE(comparison.same()) << comparison;
  }
}

TEST(NarrowPrecision, RefusesWithAReason) {
  EXPECT_EQ(refusal(llama(), {.precision = Precision::kBf16, .scaling = Scaling::kNv16}),
            "precision: expected 4 bits for scales of 16 numbers, found another precision");
  MlpConfig odd = mlp_preset("mnist").value();
  odd.widths = {700, 250, 10};
  const char* none =
      "precision: expected products of linear layers whose sizes are whole multiples of what the "
      "type asks for, found none in the forward pass";
  EXPECT_EQ(refusal(build_mlp(odd).value(), kFp8), none);
  EXPECT_EQ(refusal(rewritten(llama(), kFp8), kFp8), none);  // twice
  MlpConfig on_cpu = mlp_preset("mnist").value();
  on_cpu.training.pytorch.device = {.kind = Device::Kind::kCpu, .index = -1};
  EXPECT_EQ(refusal(build_mlp(on_cpu).value(), kFp8),
            "precision: expected tensors on a GPU for types of 8 or 4 bits, found none");
}

}  // namespace rewrite_narrow_precision_test
}  // namespace perfmodel
