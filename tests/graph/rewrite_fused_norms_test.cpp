#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>

#include "builders/emit/autograd_tape.hpp"
#include "builders/emit/norm.hpp"
#include "graph_comparison.hpp"
#include "perfmodel/graph/build_transformers.hpp"
#include "perfmodel/graph/rewrites/fusion.hpp"
#include "perfmodel/graph/rewrites/memory.hpp"
#include "perfmodel/graph/rewrites/training.hpp"

namespace perfmodel {
namespace rewrite_fused_norms_test {

LlamaConfig small_llama(bool fused) {
  LlamaConfig config = llama_preset("llama-7b").value();
  config.layers = 2;
  config.hidden = 64;
  config.heads = config.kv_heads = 4;
  config.feed_forward = 128;
  config.vocabulary = 100;
  config.sequence = 8;
  config.fused_norms = fused;
  return config;
}

std::int64_t count(const ExecutionGraph& graph, std::string_view name) {
  return std::ranges::count_if(graph.nodes,
                               [&](const Node& node) { return graph.name(node) == name; });
}

TEST(FusedNorms, AreThoseThatTheBuilderWrites) {
  const ExecutionGraph built = build_llama(small_llama(true)).value();
  const ExecutionGraph made = rewrite_fused_norms(build_llama(small_llama(false)).value()).value();
  // Two of a layer, and the last one.
  EXPECT_EQ(count(made, "aten::_fused_rms_norm"), 5);
  // Numbers of autograd close up in the built one; eps was a wrapped number; Hugging Face's `.to`
  // of a tensor that has the type stays.
  ComparisonOptions options{.sequence = false, .scalars = false};
  options.leave_out = [](const ExecutionGraph& graph, const Node& node) {
    return graph.name(node) == "aten::to";
  };
  const GraphComparison comparison = compare_graphs(built, made, options);
  EXPECT_TRUE(comparison.same()) << comparison.report;
}

TEST(FusedNorms, TakeInTheCastsOfHalfTypes) {
  const ExecutionGraph half =
      rewrite_precision(build_llama(small_llama(false)).value(),
                        {.precision = PrecisionOptions::Precision::kBf16, .master_weights = true})
          .value();
  const ExecutionGraph made = rewrite_fused_norms(half).value();
  EXPECT_EQ(count(made, "aten::_fused_rms_norm"), 5);
  EXPECT_EQ(count(made, "aten::_fused_rms_norm_backward"), 5);
  EXPECT_EQ(count(made, "aten::rsqrt"), 0);
}

TEST(FusedNorms, CoverEncoderAndDecoderOfT5) {
  const ExecutionGraph graph = build_t5(t5_preset("t5-small").value()).value();
  const ExecutionGraph made = rewrite_fused_norms(graph).value();
  // Two of an encoder's layer, three of a decoder's, and the last ones.
  const std::int64_t norms = 6 * (2 + 3) + 2;
  EXPECT_EQ(count(made, "aten::_fused_rms_norm"), norms);
  EXPECT_EQ(count(made, "FusedRmsNormBackward0"), norms);
}

// (x - mean) / sqrt(var + eps) * weight + bias, as programs write it.
ExecutionGraph layer_norm_in_single_ops(bool unbiased) {
  GraphBuilder graph{PyTorch{}};
  graph.switch_thread(GraphBuilder::kMainThread);
  const auto tensor = [&](Shape shape) { return graph.new_tensor(DType::kFloat32, shape); };
  const TensorRef x = tensor({4, 8}), weight = tensor({8}), bias = tensor({8});
  const TensorRef mean = tensor({4, 1}), var = tensor({4, 1}), sum = tensor({4, 1}),
                  root = tensor({4, 1}), centred = tensor({4, 8}), normed = tensor({4, 8}),
                  scaled = tensor({4, 8}), out = tensor({4, 8}), used = tensor({4, 8});
  graph.begin_label("step");
  const auto op = [&](const char* name, std::vector<Value> inputs, TensorRef made) {
    graph.begin_plain(name, std::move(inputs));
    graph.end_op({made});
  };
  op("aten::mean", {x, Shape{-1}, true, kNone}, mean);
  op("aten::sub", {x, mean, 1}, centred);
  op("aten::var", {x, Shape{-1}, unbiased, true}, var);
  op("aten::add", {var, 1e-6, 1}, sum);
  op("aten::sqrt", {sum}, root);
  op("aten::div", {centred, root}, normed);
  op("aten::mul", {weight, normed}, scaled);
  op("aten::add", {scaled, bias, 1}, out);
  op("aten::relu", {out}, used);
  graph.close();
  return graph.finish();
}

TEST(FusedNorms, LayerNormsDivideByN) {
  const ExecutionGraph made = rewrite_fused_norms(layer_norm_in_single_ops(false)).value();
  EXPECT_EQ(count(made, "aten::native_layer_norm"), 1);
  EXPECT_EQ(count(made, "aten::div"), 0);
  // x, shape, weight, bias, eps.
  for (const Node& node : made.nodes) {
    if (made.name(node) != "aten::native_layer_norm") continue;
    EXPECT_EQ(made.inputs(node).size(), 5U);
    EXPECT_DOUBLE_EQ(made.inputs(node)[4].real, 1e-6);
  }
  // torch.var divides by n - 1 by default.
  const auto other = rewrite_fused_norms(layer_norm_in_single_ops(true));
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().message,
            "fuse-norms: expected RMS or layer norms in single ops on a GPU, found none");
}

TEST(FusedNorms, RefuseWhatIsFusedOrCheckpointed) {
  const auto fused = rewrite_fused_norms(build_llama(small_llama(true)).value());
  ASSERT_FALSE(fused);
  EXPECT_NE(fused.error().message.find("found aten::_fused_rms_norm, a norm in one kernel"),
            std::string::npos);
  const ExecutionGraph checkpoints =
      rewrite_checkpointing(build_llama(small_llama(false)).value(), {.every = 1}).value();
  const auto behind = rewrite_fused_norms(checkpoints);
  ASSERT_FALSE(behind);
  EXPECT_NE(behind.error().message.find("expected a graph without checkpoints"), std::string::npos);
}

}  // namespace rewrite_fused_norms_test
}  // namespace perfmodel
