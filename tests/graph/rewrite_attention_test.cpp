#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "graph_comparison.hpp"
#include "perfmodel/graph/build_transformers.hpp"
#include "perfmodel/graph/detail/decoder_layers.hpp"
#include "perfmodel/graph/read_execution_graph.hpp"
#include "perfmodel/graph/rewrites/fusion.hpp"
#include "perfmodel/graph/rewrites/memory.hpp"
#include "perfmodel/graph/rewrites/retarget.hpp"
#include "perfmodel/graph/rewrites/training.hpp"

namespace perfmodel {
namespace rewrite_attention_test {

template <class Config>
Config small(Config config) {
  config.layers = 2;
  config.hidden = 128;
  config.heads = 2;
  config.feed_forward = 256;
  config.vocabulary = 500;
  config.batch = 2;
  config.sequence = 64;
  return config;
}

ExecutionGraph in_bf16(const ExecutionGraph& graph) {
  return rewrite_precision(graph, {.precision = PrecisionOptions::Precision::kBf16}).value();
}

ExecutionGraph gpt() { return build_gpt(small(gpt_preset("gpt2").value())).value(); }
ExecutionGraph bert() { return build_bert(small(bert_preset("bert-base").value())).value(); }

std::int64_t count(const ExecutionGraph& graph, std::string_view name) {
  return std::ranges::count_if(graph.nodes,
                               [&](const Node& node) { return graph.name(node) == name; });
}

std::string refusal(const Result<ExecutionGraph>& made) { return made ? "" : made.error().message; }

TEST(Attention, BecomesOneOpForwardAndOneBackward) {
  const ExecutionGraph graph = in_bf16(gpt());
  const ExecutionGraph made = rewrite_attention(graph, AttentionBackend::kFlash).value();
  EXPECT_EQ(count(made, "aten::_flash_attention_forward"), 2);  // one per layer
  EXPECT_EQ(count(made, "aten::_flash_attention_backward"), 2);
  EXPECT_EQ(count(made, "aten::bmm"), 0);
  EXPECT_EQ(count(made, "aten::softmax"), 0);
  // Nothing reads the sliced causal mask and its numbers any more.
  EXPECT_EQ(count(made, "aten::full"), 0);
  EXPECT_TRUE(made.warnings.size() == graph.warnings.size());
  for (std::size_t i = 0; i < made.nodes.size(); ++i) {
    if (made.name(made.nodes[i]) != "aten::_flash_attention_forward") continue;
    EXPECT_EQ(made.inputs(made.nodes[i])[8].integer, 1);  // causal
  }
}

// The built one transposes where the eager one permutes; both are views.
TEST(Attention, IsTheBuiltOne) {
  GptConfig config = small(gpt_preset("gpt2").value());
  config.attention = TransformerConfig::Attention::kFlash;
  const ExecutionGraph built = in_bf16(build_gpt(config).value());
  const ExecutionGraph made = rewrite_attention(in_bf16(gpt()), AttentionBackend::kFlash).value();
  const auto is_view = [](const ExecutionGraph& graph, const Node& node) {
    const std::string_view name = graph.name(node);
    return name == "aten::permute" || name == "aten::transpose" ||
           name.ends_with("PermuteBackward0") || name.ends_with("TransposeBackward0");
  };
  const auto comparison =
      compare_graphs(built, made, {.sequence = false, .scalars = false, .leave_out = is_view});
  EXPECT_EQ(comparison.only_first, 0u) << comparison;
  EXPECT_EQ(comparison.only_second, 0u) << comparison;
}

// Rotary tables stay in fp32 under autocast, so rotated queries and keys do: autocast casts them as
// it calls the library's op.
TEST(Attention, OfRotatedQueriesIsCastByAutocast) {
  DecoderLayersConfig config = small(DecoderLayersConfig{});
  config.kv_heads = 1;
  config.head_width = 64;
  config.fused = false;
  const ExecutionGraph eager = in_bf16(build_decoder_layers(config).value());
  const ExecutionGraph made = rewrite_attention(eager, AttentionBackend::kFlash).value();
  config.attention = DecoderLayersConfig::Attention::kFlash;
  const ExecutionGraph built = in_bf16(build_decoder_layers(config).value());
  for (const std::string_view name : {"aten::_flash_attention_forward", "aten::_to_copy",
                                      "aten::_flash_attention_backward", "aten::mul"}) {
    EXPECT_EQ(count(made, name), count(built, name)) << name;
  }
  for (const Node& node : made.nodes) {
    if (made.name(node) != "aten::_flash_attention_forward") continue;
    EXPECT_EQ(made.tensors[made.inputs(node)[0].index].dtype, DType::kBFloat16);
  }
}

TEST(Attention, OfOneKernelTwiceChangesNothing) {
  const ExecutionGraph made = rewrite_attention(in_bf16(gpt()), AttentionBackend::kFlash).value();
  const ExecutionGraph again = rewrite_attention(made, AttentionBackend::kFlash).value();
  EXPECT_TRUE(compare_graphs(made, again).same());
}

TEST(Attention, PaddingIsLeftOutWithAWarning) {
  const ExecutionGraph graph = in_bf16(bert());
  const ExecutionGraph flash = rewrite_attention(graph, AttentionBackend::kFlash).value();
  ASSERT_FALSE(flash.warnings.empty());
  EXPECT_NE(flash.warnings.back().find("flash kernels read no padding: 2 masks"),
            std::string::npos);
  const ExecutionGraph efficient = rewrite_attention(graph, AttentionBackend::kEfficient).value();
  EXPECT_EQ(efficient.warnings.size(), graph.warnings.size());
}

// Recordings of a CPU hold numbers as tensors of one element, some with the address of a larger
// tensor that is gone.
TEST(Attention, TakesNumbersWithTheIdOfALargerTensor) {
  ExecutionGraph graph = bert();
  const std::int64_t id = std::ranges::find_if(graph.tensors, [](const Tensor& tensor) {
                            return tensor.numel > 1;
                          })->id;
  int changed = 0;
  for (const Node& node : graph.nodes) {
    if (graph.name(node) != "aten::div" || node.scope == Scope::kBackward) continue;
    Argument& number = graph.arguments[node.inputs_begin + 1];
    number = {.kind = Argument::Kind::kTensor,
              .index = static_cast<std::uint32_t>(graph.tensors.size())};
    Tensor& tensor = graph.tensors.emplace_back();
    tensor.id = id;
    tensor.numel = 1;
    tensor.dtype = DType::kFloat64;
    ++changed;
  }
  ASSERT_GE(changed, 2);
  const auto made = rewrite_attention(graph, AttentionBackend::kEfficient);
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(count(*made, "aten::_efficient_attention_forward"), 2);
}

TEST(Attention, RelativePositionsNeedTheEfficientKernel) {
  T5Config config = small(t5_preset("t5-base").value());
  const ExecutionGraph graph = in_bf16(build_t5(config).value());
  EXPECT_NE(refusal(rewrite_attention(graph, AttentionBackend::kFlash)).find("efficient takes it"),
            std::string::npos);
  const ExecutionGraph made = rewrite_attention(graph, AttentionBackend::kEfficient).value();
  EXPECT_EQ(count(made, "aten::bmm"), 0);
  // The table of positions still learns.
  EXPECT_EQ(count(made, "torch::autograd::AccumulateGrad"),
            count(graph, "torch::autograd::AccumulateGrad"));
}

TEST(Attention, IsRefusedByName) {
  EXPECT_NE(refusal(rewrite_attention(gpt(), AttentionBackend::kFlash)).find("--precision"),
            std::string::npos);
  const auto checkpointed = rewrite_checkpointing(in_bf16(gpt()), {.layers = 1}).value();
  EXPECT_NE(refusal(rewrite_attention(checkpointed, AttentionBackend::kFlash)).find("checkpoint"),
            std::string::npos);
}

TEST(Attention, GoesBackToOpsOfItsOwn) {
  const ExecutionGraph flash = rewrite_attention(in_bf16(gpt()), AttentionBackend::kFlash).value();
  const ExecutionGraph math = rewrite_attention(flash, AttentionBackend::kMath).value();
  EXPECT_EQ(count(math, "aten::_scaled_dot_product_attention_math"), 2);
  EXPECT_EQ(count(math, "aten::_safe_softmax"), 2);
  EXPECT_EQ(count(math, "aten::bmm"), 2 * 6);  // two products forward, four backward
  const ExecutionGraph back = rewrite_attention(math, AttentionBackend::kFlash).value();
  EXPECT_EQ(count(back, "aten::bmm"), 0);
  EXPECT_EQ(count(back, "aten::_flash_attention_backward"), 2);
}

}  // namespace rewrite_attention_test
}  // namespace perfmodel
