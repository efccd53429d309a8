// Pointwise ops in the kernels of neighbouring ops.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "builders/emit/pointwise.hpp"
#include "builders/emit/reduction.hpp"
#include "perfmodel/graph/build_model.hpp"
#include "perfmodel/graph/build_transformers.hpp"
#include "perfmodel/graph/rewrites/fusion.hpp"
#include "perfmodel/predictors/detail/lower.hpp"
#include "perfmodel/predictors/gpu.hpp"

namespace perfmodel {
namespace rewrite_post_scheduling_test {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

constexpr std::int64_t kSize = 512;
constexpr double kBytes = 4.0 * kSize * kSize;  // one float32 tensor

using Ops = std::function<void(GraphBuilder&, TensorRef x, TensorRef w, TensorRef y)>;

ExecutionGraph make(const Ops& ops) {
  PyTorch pytorch;
  pytorch.device = {.kind = Device::Kind::kGpu, .index = 0};
  GraphBuilder graph(pytorch);
  graph.switch_thread(GraphBuilder::kMainThread);
  graph.begin_label("ProfilerStep#0");
  const TensorRef x = graph.new_tensor(DType::kFloat32, {kSize, kSize});
  const TensorRef w = graph.new_tensor(DType::kFloat32, {kSize, kSize});
  const TensorRef y = graph.new_tensor(DType::kFloat32, {kSize, kSize});
  ops(graph, x, w, y);
  graph.end_op();
  return graph.finish();
}

TensorRef mm(GraphBuilder& graph, TensorRef a, TensorRef b) {
  const TensorRef out = graph.new_tensor(DType::kFloat32, {kSize, kSize});
  graph.leaf_op("aten::mm", {a, b}, {out});
  return out;
}
TensorRef tanh(GraphBuilder& graph, TensorRef x) { return unary(graph, "aten::tanh", x); }
TensorRef mul(GraphBuilder& graph, TensorRef a, TensorRef b) {
  return binary(graph, "aten::mul.Tensor", a, b);
}

ExecutionGraph fused(const ExecutionGraph& graph) {
  auto made = rewrite_post_scheduling_fusion(graph);
  if (!made) {
    ADD_FAILURE() << to_string(made.error());
    return {};
  }
  return std::move(*made);
}

// "aten::mm" with what runs in its kernel, counted.
std::map<std::string, int> groups(const ExecutionGraph& graph) {
  std::map<std::string, int> counts;
  for (const Node& node : graph.nodes) {
    const std::string backend(graph.names.text(node.kernel_backend));
    if (backend.starts_with("post_scheduling")) {
      ++counts[std::string(graph.name(node)) + " " + backend.substr(16)];
    }
  }
  return counts;
}

struct Work {
  double flop = 0, bytes = 0;
  int kernels = 0;
};
Work work_of(const ExecutionGraph& graph) {
  static const Gpu gpu =
      find_gpu("a100-sxm-40gb", std::filesystem::path(PERFMODEL_SOURCE_DIR) / "data" / "gpus")
          .value();
  Work sum;
  Lowering lowering(graph, gpu, nullptr);
  for (const std::int32_t op : top_level_ops(graph)) {
    for (const KernelWork& work : lowering.lower(op).work) {
      sum.flop += work.flop.value;
      sum.bytes += work.bytes().value;
      ++sum.kernels;
    }
  }
  return sum;
}

// A fusion has as many FLOP and saves the bytes that no longer go through memory.
void expect_saved(const ExecutionGraph& before, double bytes, int kernels) {
  const Work old = work_of(before), now = work_of(fused(before));
  EXPECT_DOUBLE_EQ(now.flop, old.flop);
  EXPECT_DOUBLE_EQ(old.bytes - now.bytes, bytes);
  EXPECT_EQ(old.kernels - now.kernels, kernels);
}

TEST(PostScheduling, EpiloguesRunInTheKernelOfTheirProduct) {
  const ExecutionGraph before =
      make([](GraphBuilder& graph, TensorRef x, TensorRef w, TensorRef y) {
        add(graph, tanh(graph, mm(graph, x, w)), y);
      });
  EXPECT_THAT(groups(fused(before)), ElementsAre(Pair("aten::mm 1:0:_fused_tanh_add", 1)));
  // Two results are neither written nor read: 4 tensors. Two launches are gone.
  expect_saved(before, 4 * kBytes, 2);
  const ExecutionGraph after = fused(before);
  EXPECT_EQ(top_level_ops(after).size(), 1U);
  EXPECT_EQ(groups(fused(after)), groups(after));  // once more changes nothing
}

TEST(PostScheduling, AResultWithTwoReadersStays) {
  const ExecutionGraph before = make([](GraphBuilder& graph, TensorRef x, TensorRef w, TensorRef) {
    const TensorRef product = mm(graph, x, w);
    tanh(graph, product);
    sum(graph, product, {0}, false);
  });
  EXPECT_THAT(groups(fused(before)), IsEmpty());
}

TEST(PostScheduling, WhatComesAfterTheAnchorCannotBeReadInIt) {
  // y is only there after the first product, so that the sum runs in the second one.
  const ExecutionGraph before =
      make([](GraphBuilder& graph, TensorRef x, TensorRef w, TensorRef y) {
        const TensorRef first = mm(graph, x, w), second = mm(graph, y, w);
        add(graph, first, second);
      });
  EXPECT_THAT(groups(fused(before)), ElementsAre(Pair("aten::mm 1:0:_fused_add", 1)));
  expect_saved(before, 2 * kBytes, 1);
  const ExecutionGraph after = fused(before);
  const Node* last = nullptr;
  for (const Node& node : after.nodes) {
    if (after.name(node) == "aten::mm") last = &node;
  }
  EXPECT_NE(last->kernel_backend, 0U);
}

TEST(PostScheduling, UpdatesInPlace) {
  const ExecutionGraph before = make([](GraphBuilder& graph, TensorRef x, TensorRef w, TensorRef) {
    const TensorRef product = mm(graph, x, w);
    graph.leaf_op("aten::tanh_", {product}, {product});
    sum(graph, product, {0}, false);
  });
  EXPECT_THAT(groups(fused(before)), ElementsAre(Pair("aten::mm 0:0:_fused_tanh", 1)));
  expect_saved(before, 2 * kBytes, 1);
}

TEST(PostScheduling, ProloguesMakeAnOperandOfOneAnchor) {
  const ExecutionGraph before =
      make([](GraphBuilder& graph, TensorRef x, TensorRef w, TensorRef y) {
        sum(graph, mm(graph, mul(graph, x, y), w), {0}, false);
      });
  EXPECT_THAT(groups(fused(before)), ElementsAre(Pair("aten::mm 1:0:_fused_mul", 1)));
  expect_saved(before, 2 * kBytes, 1);
  const ExecutionGraph shared =
      make([](GraphBuilder& graph, TensorRef x, TensorRef w, TensorRef y) {
        const TensorRef operand = mul(graph, x, y);
        sum(graph, mm(graph, operand, w), {0}, false);
        sum(graph, operand, {0}, false);
      });
  EXPECT_THAT(groups(fused(shared)), IsEmpty());
}

TEST(PostScheduling, ChainsThatAreLeftMerge) {
  const ExecutionGraph before =
      make([](GraphBuilder& graph, TensorRef x, TensorRef w, TensorRef y) {
        const TensorRef product = mm(graph, x, w);
        sum(graph, product, {0}, false);
        sum(graph, product, {1}, false);
        const TensorRef chain = tanh(graph, mul(graph, x, y));
        sum(graph, chain, {0}, false);
        sum(graph, chain, {1}, false);
      });
  const ExecutionGraph after = fused(before);
  EXPECT_THAT(groups(after), IsEmpty());
  int kernels = 0;
  for (const Node& node : after.nodes) {
    kernels += after.name(node) == "triton_poi_fused_mul_tanh_0";
  }
  EXPECT_EQ(kernels, 1);
  expect_saved(before, 2 * kBytes, 1);
}

// --- models, worked out by hand ----------------------------------------------------------------

// ResNet-18 has 20 norms. ReLU follows the norm of the stem and the first of each of 8 blocks; sum
// and ReLU follow the second one or, in the 3 blocks with a convolution on the shortcut, the
// shortcut's norm, which comes later. Gradients are no anchors.
TEST(PostScheduling, ResNet) {
  const ExecutionGraph before = build_resnet(*resnet_preset("resnet18")).value();
  EXPECT_THAT(groups(fused(before)),
              ElementsAre(Pair("aten::cudnn_batch_norm 0:0:_fused_clamp_min", 9),
                          Pair("aten::cudnn_batch_norm 1:0:_fused_add_clamp_min", 8)));
  EXPECT_DOUBLE_EQ(work_of(fused(before)).flop, work_of(before).flop);
}

// A layer of BERT: the mask is added to the scores that softmax alone reads; both linear layers in
// front of a residual take dropout (whose mask is written) and the sum. GELU stays: its input is
// saved. In front of the layer, the norm of the embeddings takes its dropout.
TEST(PostScheduling, BertLayer) {
  BertConfig config = *bert_preset("bert-base");
  config.layers = 1;
  const ExecutionGraph before = build_bert(config).value();
  EXPECT_THAT(groups(fused(before)),
              ElementsAre(Pair("aten::_softmax 1:0:_fused_add", 1),
                          Pair("aten::addmm 1:1:_fused_native_dropout_add", 2),
                          Pair("aten::native_layer_norm 0:1:_fused_native_dropout", 1)));
  // The ones of the mask cost nothing where they are read; a fill counts one FLOP per element.
  const double ones = 1.0 * config.batch * config.sequence;
  EXPECT_DOUBLE_EQ(work_of(fused(before)).flop, work_of(before).flop - ones);
}

// A layer of GPT-2: its linear layers are products followed by a view, which ends a group, so that
// dropout and residual merge among themselves. The positions' lookup takes the sum with the tokens'
// and dropout.
TEST(PostScheduling, GptLayer) {
  GptConfig config = *gpt_preset("gpt2");
  config.layers = 1;
  const ExecutionGraph before = build_gpt(config).value();
  const ExecutionGraph after = fused(before);
  EXPECT_THAT(groups(after),
              ElementsAre(Pair("aten::index_select 1:1:_fused_add_native_dropout", 1)));
  int merged = 0;
  for (const Node& node : after.nodes) {
    merged += after.name(node).starts_with("triton_poi_fused_native_dropout_add_");
  }
  EXPECT_EQ(merged, 2);
  // A generated kernel draws four random numbers for each that it keeps (lower/ops/triton.cpp);
  // the kernel of aten::native_dropout keeps all.
  EXPECT_GT(work_of(after).flop, work_of(before).flop);
}

}  // namespace rewrite_post_scheduling_test
}  // namespace perfmodel
