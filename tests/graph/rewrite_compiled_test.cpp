// A step as torch.compile makes it: regions and kernels (docs/rewrites.md, "Compilation").
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "perfmodel/graph/build_recommenders.hpp"
#include "perfmodel/graph/build_transformers.hpp"
#include "perfmodel/graph/detail/storage_lifetimes.hpp"
#include "perfmodel/graph/rewrites/fusion.hpp"
#include "perfmodel/graph/rewrites/memory.hpp"
#include "perfmodel/graph/rewrites/training.hpp"

namespace perfmodel {
namespace {

using Precision = PrecisionOptions::Precision;

ExecutionGraph gpt(double dropout = 0, std::int64_t vocabulary = 1000) {
  GptConfig config = gpt_preset("gpt2").value();
  config.layers = 2;
  config.hidden = 256;
  config.heads = 4;
  config.feed_forward = 1024;
  config.vocabulary = vocabulary;
  config.batch = 64;
  config.sequence = config.positions = 128;
  config.dropout = dropout;
  return build_gpt(config).value();
}

ExecutionGraph compile(const ExecutionGraph& graph, const CompileRewrite& rewrite = {}) {
  auto made = rewrite_compiled(graph, rewrite);
  if (!made) ADD_FAILURE() << made.error().message;
  return made ? std::move(*made) : ExecutionGraph();
}

std::int64_t count(const ExecutionGraph& graph, std::string_view prefix) {
  return std::ranges::count_if(
      graph.nodes, [&](const Node& node) { return graph.name(node).starts_with(prefix); });
}

TEST(RewriteCompiled, MakesOneRegionWithOneBackwardFunction) {
  const ExecutionGraph graph = compile(gpt());
  EXPECT_EQ(count(graph, "Torch-Compiled Region: 0/0"), 1);
  EXPECT_EQ(count(graph, "CompiledFunction"), 2);  // and CompiledFunctionBackward
  EXPECT_EQ(count(graph, "autograd::engine::evaluate_function: CompiledFunctionBackward"), 1);
  EXPECT_EQ(count(graph, "aten::layer_norm"), 0);
  EXPECT_EQ(count(graph, "aten::cross_entropy_loss"), 0);
  EXPECT_EQ(count(graph, "CUDAGraph.replay"), 0);
}

TEST(RewriteCompiled, LeavesTheLossAndTheOptimizer) {
  const ExecutionGraph before = gpt();
  const ExecutionGraph graph = compile(before, {.extent = CompileExtent::kModel});
  EXPECT_EQ(count(graph, "aten::cross_entropy_loss"), 1);
  EXPECT_EQ(count(graph, "Optimizer.step"), count(before, "Optimizer.step"));
  EXPECT_EQ(count(graph, "torch::autograd::AccumulateGrad"),
            count(before, "torch::autograd::AccumulateGrad"));
}

TEST(RewriteCompiled, CompilesTheOptimizerIfAsked) {
  const ExecutionGraph graph = compile(gpt(), {.extent = CompileExtent::kStep});
  EXPECT_GE(count(graph, "triton_for_fused"), 1);
  EXPECT_EQ(count(graph, "Torch-Compiled Region"), 2);
}

// Two layers and the last norm: 5 norms. Each has one kernel for the gradient of its input, one for
// parts of the sums for weight and bias, and one for each of both sums.
TEST(RewriteCompiled, FusesNormsWithWhatIsOnTheirRows) {
  const ExecutionGraph graph = compile(gpt());
  EXPECT_EQ(count(graph, "triton_red_fused_native_layer_norm_backward"), 5);
  EXPECT_EQ(count(graph, "triton_per_fused_add_native_layer_norm_backward") +
                count(graph, "triton_per_fused_native_layer_norm_backward") +
                count(graph, "triton_per_fused_add_embedding_dense_backward"),
            15);
}

TEST(RewriteCompiled, ReplaysOneGraphPerPassIfAsked) {
  const ExecutionGraph graph = compile(gpt(), {.mode = CompileMode::kReduceOverhead});
  ASSERT_EQ(count(graph, "CUDAGraph.replay"), 2);
  for (const Node& node : graph.nodes) {
    if (graph.name(node) != "CUDAGraph.replay") continue;
    EXPECT_TRUE(graph.name(node.parent).starts_with("CompiledFunction"));
    EXPECT_GT(node.children_count, 10U);
  }
}

// GELU and its gradient: their loops run in the products whose results they read.
TEST(RewriteCompiled, PutsLoopsIntoProductsIfAsked) {
  const auto products = [](const ExecutionGraph& graph) {
    return count(graph, "aten::mm") + count(graph, "aten::addmm") + count(graph, "aten::bmm") +
           count(graph, "triton_tem_fused");
  };
  const ExecutionGraph apart = compile(gpt(), {.mode = CompileMode::kReduceOverhead});
  const ExecutionGraph joined = compile(gpt(), {.mode = CompileMode::kMaxAutotune});
  EXPECT_EQ(count(apart, "triton_tem_fused"), 0);
  EXPECT_EQ(count(joined, "triton_tem_fused_add_addmm_mul_pow_tanh"), 2);
  EXPECT_EQ(count(joined, "triton_tem_fused"), 4);
  EXPECT_EQ(products(joined), products(apart));
  EXPECT_EQ(count(apart, "triton_poi") - count(joined, "triton_poi"),
            count(joined, "triton_tem_fused"));
  EXPECT_EQ(count(joined, "CUDAGraph.replay"), 2);
}

std::int64_t activations(const ExecutionGraph& graph) {
  std::int64_t bytes = 0;
  for (const StorageLifetime& storage : storage_lifetimes(graph).storages) {
    if (storage.purpose == MemoryPurpose::kActivations) bytes += storage.bytes;
  }
  return bytes;
}

TEST(RewriteCompiled, KeepsFewerActivations) {
  const ExecutionGraph before = gpt();
  EXPECT_LT(activations(compile(before)), activations(before));
}

TEST(RewriteCompiled, DrawsSeedsOnce) {
  EXPECT_EQ(count(compile(gpt()), "aten::random_"), 0);
  EXPECT_EQ(count(compile(gpt(0.1)), "aten::random_"), 1);
}

// FBGEMM's lookup has no op below its backward function: the kernels are the function's own.
TEST(RewriteCompiled, KeepsBackwardFunctionsOfLibraries) {
  const ExecutionGraph before =
      build_dlrm({.bottom_mlp = {4, 8}, .top_mlp = {11, 1}, .tables = {{100, 8, 2}}, .batch = 2})
          .value();
  constexpr const char* kFunction = "torch::autograd::CppNode<SplitLookupFunction_";
  ASSERT_EQ(count(before, kFunction), 1);
  EXPECT_EQ(count(compile(before), kFunction), 1);
}

// A layer's product of queries and keys, with values, and three of four linear layers run again:
// nothing reads the fourth's result. Parameters get their gradients after the region.
TEST(RewriteCompiled, RunsCheckpointsAgainInTheBackwardFunction) {
  const ExecutionGraph before = gpt();
  const auto checkpointed = rewrite_checkpointing(before, {.every = 1});
  ASSERT_TRUE(checkpointed) << checkpointed.error().message;
  const ExecutionGraph plain = compile(before), again = compile(*checkpointed);
  const auto products = [](const ExecutionGraph& graph) {
    return count(graph, "aten::mm") + count(graph, "aten::addmm") + count(graph, "aten::bmm");
  };
  EXPECT_EQ(products(again), products(plain) + 2 * (2 + 3));
  EXPECT_EQ(count(again, "CheckpointFunction"), 0);
  EXPECT_EQ(count(again, "CompiledFunctionBackward"), 1);
  EXPECT_EQ(count(again, "torch::autograd::AccumulateGrad"),
            count(before, "torch::autograd::AccumulateGrad"));
  EXPECT_LT(activations(again), activations(plain) / 2);
}

// With a vocabulary of 1,003 these are the logits, the gradients of their inputs and of the weight.
// Two copies of the logits' gradient are one kernel, copies of the weight one in each pass.
TEST(RewriteCompiled, PadsHalfProductsWhoseRowsAreNotAligned) {
  const auto padded_products = [](std::int64_t vocabulary, bool half) {
    ExecutionGraph graph = gpt(0, vocabulary);
    if (half) graph = rewrite_precision(graph, {.precision = Precision::kBf16}).value();
    graph = compile(graph);
    EXPECT_EQ(count(graph, "triton_poi_fused_mm"), half && vocabulary % 8 != 0 ? 3 : 0);
    return std::ranges::count_if(graph.nodes, [&](const Node& node) {
      if (graph.name(node) != "aten::mm") return false;
      bool is_padded = false;
      for_each_tensor(graph, graph.inputs(node), [&](const Tensor& operand) {
        is_padded |= std::ranges::count(graph.shape(operand), 1008) > 0;
      });
      return is_padded;
    });
  };
  EXPECT_EQ(padded_products(1003, true), 3);
  EXPECT_EQ(padded_products(1003, false), 0);
  EXPECT_EQ(padded_products(1000, true), 0);
}

// The vectors of the tables and the dense features: a kernel each beyond eight, else one for all.
TEST(RewriteCompiled, WritesThePartsOfAWideCatOneByOne) {
  const auto kernels = [](std::size_t tables) {
    DlrmConfig config{.bottom_mlp = {4, 8}, .top_mlp = {11, 1}, .batch = 2};
    config.tables.assign(tables, {100, 8, 2});
    config.table_batched = false;
    const ExecutionGraph graph = compile(build_dlrm(config).value());
    return std::ranges::count_if(graph.nodes, [&](const Node& node) {
      const std::string_view name = graph.name(node);
      return name.starts_with("triton_poi") && name.find("_cat") != name.npos;
    });
  };
  EXPECT_EQ(kernels(8) - kernels(7), 9 - 1);
}

TEST(RewriteCompiled, RefusesByName) {
  const auto message = [](const ExecutionGraph& graph) {
    const auto made = rewrite_compiled(graph);
    return made ? std::string("made") : made.error().message;
  };
  EXPECT_NE(message(compile(gpt())).find("expected a program that is not compiled, found"),
            std::string::npos);
  ExecutionGraph torn = gpt();
  for (Node& node : torn.nodes) {
    if (torn.name(node) != "aten::layer_norm") continue;
    torn.tensors[torn.inputs(node)[0].index].device.kind = Device::Kind::kCpu;
    break;
  }
  EXPECT_NE(message(torn).find("expected each tensor on one device, found aten::"),
            std::string::npos);
}

}  // namespace
}  // namespace perfmodel
