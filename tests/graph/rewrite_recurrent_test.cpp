// Cells of recurrent layers in single ops, and with one kernel per pass.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "build/emit/pointwise.hpp"
#include "perfmodel/graph/build_model.hpp"
#include "perfmodel/graph/rewrites/fusion.hpp"
#include "perfmodel/predictors/detail/lower.hpp"
#include "perfmodel/predictors/gpu.hpp"

namespace perfmodel {
namespace rewrite_recurrent_test {

using testing::HasSubstr;

ExecutionGraph build(RecurrentCell cell, RecurrentForm form, std::int64_t layers,
                     std::int64_t batch, std::int64_t hidden, std::int64_t steps = 4) {
  LstmConfig config;
  config.cell = cell;
  config.form = form;
  config.layers = layers;
  config.batch = batch;
  config.embedding = config.hidden = hidden;
  config.steps = steps;
  config.vocabulary = 100;
  config.dropout = 0;
  return build_lstm(config).value();
}

ExecutionGraph fused(const ExecutionGraph& graph) {
  auto made = rewrite_recurrent_cells(graph);
  if (!made) {
    ADD_FAILURE() << to_string(made.error());
    return {};
  }
  return std::move(*made);
}

struct Sum {
  int kernels = 0;
  double us = 0, products_us = 0;
};
Sum sum_of(const ExecutionGraph& graph) {
  static const Gpu gpu =
      find_gpu("titan-xp", std::filesystem::path(PERFMODEL_SOURCE_DIR) / "data" / "gpus").value();
  Sum sum;
  Lowering lowering(graph, gpu, nullptr);
  for (const std::int32_t op : top_level_ops(graph)) {
    for (const KernelWork& work : lowering.lower(op).work) {
      const double us = KernelModels::heuristic().price(work, gpu).time.count();
      ++sum.kernels;
      sum.us += us;
      if (work.family == KernelFamily::kGemm) sum.products_us += us;
    }
  }
  return sum;
}

// What PyTorch records of such cells is what `build` writes (`RecurrentOnCpu` holds it against
// recordings). LSTM forward: add, 3 sigmoid, 2 tanh, 3 mul, add: 10 kernels become 1. Backward: two
// products of h', one of each activation, two of each other product, the cat of the gates, and the
// sum at c' that all steps but the last have: 13; the first step has no gradient for its c.
TEST(RecurrentCells, LstmLaunchesAreThoseOfItsOps) {
  constexpr int kLayers = 2, kSteps = 4;
  const ExecutionGraph before =
      build(RecurrentCell::kLstm, RecurrentForm::kUnfused, kLayers, 16, 64, kSteps);
  const Sum old = sum_of(before), now = sum_of(fused(before));
  const int forward = kSteps * (10 - 1), backward = kSteps * (13 - 1) - 2;
  EXPECT_EQ(old.kernels - now.kernels, kLayers * (forward + backward));
  // What is left of the step is what it was: the products keep their times.
  EXPECT_DOUBLE_EQ(now.products_us, old.products_us);
}

// The library's cells compute the same products and the same pointwise kernels, but the sums of the
// gradient of the biases: one for both in an LSTM.
TEST(RecurrentCells, GruIsThatOfTheLibrarysCells) {
  const Sum made = sum_of(fused(build(RecurrentCell::kGru, RecurrentForm::kUnfused, 2, 16, 64)));
  const Sum cells = sum_of(build(RecurrentCell::kGru, RecurrentForm::kCells, 2, 16, 64));
  EXPECT_EQ(made.kernels, cells.kernels);
  EXPECT_NEAR(made.us, cells.us, 0.01 * cells.us);
}

// 9 B H numbers read (two vectors of gates, c), 6 written (h, c, the gates); 8 and 5 backward.
TEST(RecurrentCells, PointwiseTimeIsBytesOverBandwidth) {
  const Gpu gpu =
      find_gpu("titan-xp", std::filesystem::path(PERFMODEL_SOURCE_DIR) / "data" / "gpus").value();
  constexpr double kNumbers = 2048.0 * 4096;  // 8.4 million: 503 MB a pass
  const ExecutionGraph graph =
      fused(build(RecurrentCell::kLstm, RecurrentForm::kUnfused, 1, 2048, 4096, 2));
  Lowering lowering(graph, gpu, nullptr);
  int found = 0;
  for (const std::int32_t op : top_level_ops(graph)) {
    if (graph.name(graph.nodes[static_cast<std::size_t>(op)]) != "aten::_thnn_fused_lstm_cell")
      continue;
    const LoweredOp lowered = lowering.lower(op);
    ASSERT_EQ(lowered.work.size(), 1U);
    EXPECT_DOUBLE_EQ(lowered.work[0].bytes_read.value, 9 * kNumbers * 4);
    EXPECT_DOUBLE_EQ(lowered.work[0].bytes_written.value, 6 * kNumbers * 4);
    constexpr double kReached = 0.8;  // of GDDR5X's data sheet
    const double by_hand = 15 * kNumbers * 4 / (kReached * gpu.dram_bandwidth.value * 1e-6);
    EXPECT_NEAR(KernelModels::heuristic().price(lowered.work[0], gpu).time.count(), by_hand,
                0.05 * by_hand);
    ++found;
  }
  EXPECT_EQ(found, 2);
}

TEST(RecurrentCells, LittleIsGainedWhereProductsDominate) {
  const auto gain = [](std::int64_t batch, std::int64_t hidden) {
    const ExecutionGraph before =
        build(RecurrentCell::kLstm, RecurrentForm::kUnfused, 1, batch, hidden);
    return sum_of(before).us / sum_of(fused(before)).us;
  };
  EXPECT_GT(gain(16, 128), 1.4);
  EXPECT_LT(gain(128, 2048), 1.2);
}

ExecutionGraph called(const ExecutionGraph& graph, RecurrentCall call) {
  auto made = rewrite_recurrent_layers(graph, call);
  if (!made) {
    ADD_FAILURE() << to_string(made.error());
    return {};
  }
  return std::move(*made);
}

// Times of the products and of the recurrent layers, and what they are.
std::vector<std::pair<KernelFamily, double>> layers_of(const ExecutionGraph& graph) {
  static const Gpu gpu =
      find_gpu("titan-xp", std::filesystem::path(PERFMODEL_SOURCE_DIR) / "data" / "gpus").value();
  std::vector<std::pair<KernelFamily, double>> found;
  Lowering lowering(graph, gpu, nullptr);
  for (const std::int32_t op : top_level_ops(graph)) {
    for (const KernelWork& work : lowering.lower(op).work) {
      if (work.family != KernelFamily::kGemm && work.family != KernelFamily::kRecurrent) continue;
      found.emplace_back(work.family, KernelModels::heuristic().price(work, gpu).time.count());
    }
  }
  return found;
}

// The graph that `build` writes for the library has the same products and layers in the same order.
TEST(RecurrentLayersAsCalls, AreThoseOfTheLibrarysGraph) {
  for (const RecurrentCell cell : {RecurrentCell::kLstm, RecurrentCell::kGru}) {
    const ExecutionGraph made =
        called(build(cell, RecurrentForm::kUnfused, 2, 16, 64), RecurrentCall::kLibrary);
    EXPECT_EQ(layers_of(made), layers_of(build(cell, RecurrentForm::kLibrary, 2, 16, 64)));
  }
}

// L layers of T steps side by side take L + T - 1 steps where nothing but latency counts.
TEST(RecurrentLayersAsCalls, WavefrontTakesLayersAndStepsTogether) {
  constexpr int kLayers = 4, kSteps = 10;
  const ExecutionGraph before =
      build(RecurrentCell::kLstm, RecurrentForm::kUnfused, kLayers, 8, 64, kSteps);
  const auto recurrent = [](const ExecutionGraph& graph) {
    double sum = 0;
    for (const auto& [family, us] : layers_of(graph)) {
      if (family == KernelFamily::kRecurrent) return us;  // forward, the first
      sum += us;
    }
    return sum;
  };
  const double one = recurrent(called(before, RecurrentCall::kLibrary));
  const double all = recurrent(called(before, RecurrentCall::kWavefront));
  EXPECT_NEAR(all / one, (kLayers + kSteps - 1.0) / kSteps, 0.01);
}

// Attention feeds a decoder step by step: a library takes the encoder alone.
TEST(RecurrentLayersAsCalls, SayWhatTheyCannotTake) {
  Seq2seqConfig config;
  config.bidirectional = false;
  config.encoder_form = config.decoder_form = RecurrentForm::kUnfused;
  const ExecutionGraph half = called(build_seq2seq(config).value(), RecurrentCall::kLibrary);
  ASSERT_EQ(half.warnings.size(), 1U);
  EXPECT_THAT(half.warnings[0], HasSubstr("these cells are left"));
  const auto calls = std::ranges::count_if(half.nodes, [&](const Node& node) {
    return half.name(node).starts_with("aten::_cudnn_rnn");
  });
  EXPECT_EQ(calls, 2);  // forward and backward
  config.encoder_form = RecurrentForm::kLibrary;
  const auto none =
      rewrite_recurrent_layers(build_seq2seq(config).value(), RecurrentCall::kLibrary);
  ASSERT_FALSE(none.has_value());
  EXPECT_THAT(none.error().message, HasSubstr("from one sequence or from the layer below"));
  const auto step = rewrite_recurrent_layers(
      build(RecurrentCell::kLstm, RecurrentForm::kUnfused, 1, 8, 32, 1), RecurrentCall::kLibrary);
  EXPECT_THAT(step.error().message, HasSubstr("two steps or more"));
}

// Ops on [8, 32] tensors, with their names as written.
using Ops = std::function<void(GraphBuilder&, TensorRef gates, TensorRef memory)>;
ExecutionGraph make(const Ops& ops) {
  PyTorch pytorch;
  pytorch.device = {.kind = Device::Kind::kGpu, .index = 0};
  GraphBuilder graph(pytorch);
  graph.switch_thread(GraphBuilder::kMainThread);
  graph.begin_label("ProfilerStep#0");
  const TensorRef gates = graph.new_tensor(DType::kFloat32, {8, 128});
  const TensorRef memory = graph.new_tensor(DType::kFloat32, {8, 32});
  ops(graph, gates, memory);
  graph.end_op();
  return graph.finish();
}

std::vector<TensorRef> pieces(GraphBuilder& graph, TensorRef gates) {
  std::vector<TensorRef> made;
  for (std::int64_t i = 0; i < 4; ++i)
    made.push_back(graph.new_view(gates, {8, 32}, {128, 1}, 32 * i));
  graph.leaf_op("aten::chunk", {gates, 4, 1}, {Value(made)});
  return made;
}
TensorRef tanh(GraphBuilder& graph, TensorRef x) { return unary(graph, "aten::tanh", x); }
TensorRef mul(GraphBuilder& graph, TensorRef a, TensorRef b) {
  return binary(graph, "aten::mul.Tensor", a, b);
}

TEST(RecurrentCells, OperandsStandInAnyOrder) {
  const ExecutionGraph graph = make([](GraphBuilder& graph, TensorRef gates, TensorRef memory) {
    const auto g = pieces(graph, gates);
    const TensorRef added = mul(graph, tanh(graph, g[0]), sigmoid(graph, g[3]));
    const TensorRef kept = mul(graph, memory, sigmoid(graph, g[1]));
    const TensorRef next = add(graph, added, kept);
    mul(graph, tanh(graph, next), sigmoid(graph, g[2]));
  });
  EXPECT_EQ(sum_of(fused(graph)).kernels, 1);
}

TEST(RecurrentCells, SaysWhichOpBroke) {
  const auto error = [](const Ops& ops) {
    const auto made = rewrite_recurrent_cells(make(ops));
    return made ? std::string("none") : made.error().message;
  };
  EXPECT_THAT(
      error([](GraphBuilder& graph, TensorRef gates, TensorRef memory) {
        const auto g = pieces(graph, gates);
        const TensorRef kept = mul(graph, memory, sigmoid(graph, g[1]));
        const TensorRef next =
            add(graph, kept, mul(graph, sigmoid(graph, g[0]), tanh(graph, g[3])));
        const TensorRef normed = graph.new_tensor(DType::kFloat32, {8, 32});
        graph.leaf_op("aten::layer_norm", {next, Shape{32}, kNone, kNone, 1e-5, false}, {normed});
        mul(graph, sigmoid(graph, g[2]), tanh(graph, normed));
      }),
      HasSubstr("found aten::layer_norm"));
  EXPECT_THAT(error([](GraphBuilder& graph, TensorRef gates, TensorRef memory) {
                const auto g = pieces(graph, gates);
                const TensorRef kept = mul(graph, memory, sigmoid(graph, g[1]));
                const TensorRef next =
                    add(graph, kept, mul(graph, sigmoid(graph, g[0]), tanh(graph, g[3])));
                unary(graph, "aten::exp", kept);
                mul(graph, sigmoid(graph, g[2]), tanh(graph, next));
              }),
              HasSubstr("read outside, found aten::exp"));
  const auto library =
      rewrite_recurrent_cells(build(RecurrentCell::kLstm, RecurrentForm::kLibrary, 1, 8, 32));
  EXPECT_THAT(library.error().message, HasSubstr("found aten::_cudnn_rnn"));
}

}  // namespace rewrite_recurrent_test
}  // namespace perfmodel
