// Cells of recurrent layers in single ops, with one kernel per pass, and layers as calls.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "builders/emit/pointwise.hpp"
#include "perfmodel/graph/build_model.hpp"
#include "perfmodel/graph/rewrites/fusion.hpp"
#include "perfmodel/graph/rewrites/memory.hpp"
#include "perfmodel/predictors/detail/lower.hpp"
#include "perfmodel/predictors/gpu.hpp"
#include "step/step_view.hpp"

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

const Gpu& titan_xp() {
  static const Gpu gpu =
      find_gpu("titan-xp", std::filesystem::path(PERFMODEL_SOURCE_DIR) / "data" / "gpus").value();
  return gpu;
}

struct Sum {
  int kernels = 0;
  double us = 0, products_us = 0;
};
Sum sum_of(const ExecutionGraph& graph) {
  const Gpu& gpu = titan_xp();
  Sum sum;
  Lowering lowering(graph, gpu, nullptr);
  for (const std::int32_t op : top_level_ops(graph)) {
    for (const KernelWork& work : lowering.lower(op).work) {
      if (work.family == KernelFamily::kPart) continue;  // sums of split products
      const double us = KernelModels::heuristic().price(work, gpu).time.count();
      ++sum.kernels;
      sum.us += us;
      if (work.family == KernelFamily::kGemm) sum.products_us += us;
    }
  }
  return sum;
}

ExecutionGraph called(const ExecutionGraph& graph, RecurrentCall call) {
  auto made = rewrite_recurrent_layers(graph, call);
  if (!made) {
    ADD_FAILURE() << to_string(made.error());
    return {};
  }
  return std::move(*made);
}

// Kernels of the step outside of the recurrent layers: the library's graph without its calls (a
// product and the layer forward, two products and the layer backward, per layer) and states.
int kernels_beside(const ExecutionGraph& unfused, int layers, int states) {
  return sum_of(called(unfused, RecurrentCall::kLibrary)).kernels - states - 5 * layers;
}

constexpr int kTwoLayers = 2, kFourSteps = 4, kBatch = 16, kHidden = 96;

// PyTorch records such cells as `build` writes them (`RecurrentOnCpu` compares with recordings).
// LSTM forward: add, 3 sigmoid, 2 tanh, 3 mul, add: 10 kernels and 2 products per step. Backward:
// two products of h', one of each activation, two of each other product, the cat of the gates, and
// the sum at c' that all steps except the last have: 13; the first step has no gradient for its c.
// Products 4, 3 in the first step; sums of 2 biases; 4 gradients of weights and biases are added to
// the gradients of later steps, and the gradients of h'. Results are joined, gradients too.
TEST(RecurrentCells, LstmLaunchesAreThoseOfItsOps) {
  const ExecutionGraph before =
      build(RecurrentCell::kLstm, RecurrentForm::kUnfused, kTwoLayers, kBatch, kHidden, kFourSteps);
  const int beside = kernels_beside(before, kTwoLayers, 2);
  const int states = 2, rest = kFourSteps - 1;
  const int old_forward = states + 12 * kFourSteps;
  const int old_backward =
      (13 * kFourSteps - 2) + (4 * kFourSteps - 1) + 2 * kFourSteps + 4 * rest + rest;
  EXPECT_EQ(sum_of(before).kernels, beside + kTwoLayers * (old_forward + old_backward) + 2);
  // Fused, layer after layer: a product of all inputs, then two kernels per step; backward a kernel
  // per step, product and sum in all but one, then three products and two sums.
  const ExecutionGraph after = fused(before);
  const int forward = states + 1 + 2 * kFourSteps, backward = kFourSteps + 2 * rest + 3 + 2;
  EXPECT_EQ(sum_of(after).kernels, beside + kTwoLayers * (forward + backward));
  EXPECT_TRUE(after.warnings.empty());
}

// A GRU has one state, and what goes past its product is added in a kernel of its own.
TEST(RecurrentCells, GruLaunchesAreThoseOfItsOps) {
  const ExecutionGraph before =
      build(RecurrentCell::kGru, RecurrentForm::kUnfused, kTwoLayers, kBatch, kHidden, kFourSteps);
  const int beside = kernels_beside(before, kTwoLayers, 1);
  const int forward = 1 + 1 + 2 * kFourSteps, backward = kFourSteps + 3 * (kFourSteps - 1) + 3 + 2;
  EXPECT_EQ(sum_of(fused(before)).kernels, beside + kTwoLayers * (forward + backward));
}

double product_flop(const ExecutionGraph& graph) {
  const Gpu& gpu = titan_xp();
  double flop = 0;
  Lowering lowering(graph, gpu, nullptr);
  for (const std::int32_t op : top_level_ops(graph)) {
    for (const KernelWork& work : lowering.lower(op).work) {
      if (work.family == KernelFamily::kGemm) flop += work.flop.value;
    }
  }
  return flop;
}

// Products are as in the single ops, except for the first state's: zeros have no weight gradient.
TEST(RecurrentCells, ProductsOfAllStepsAreThoseOfTheSteps) {
  for (const RecurrentCell cell : {RecurrentCell::kLstm, RecurrentCell::kGru}) {
    const ExecutionGraph before =
        build(cell, RecurrentForm::kUnfused, kTwoLayers, kBatch, kHidden, kFourSteps);
    const double gates = cell == RecurrentCell::kLstm ? 4 : 3;
    const double of_zeros = kTwoLayers * 2.0 * kBatch * gates * kHidden * kHidden;
    EXPECT_DOUBLE_EQ(product_flop(fused(before)), product_flop(before) - of_zeros);
    EXPECT_LT(sum_of(fused(before)).products_us, sum_of(before).products_us);
  }
}

std::vector<std::array<std::int64_t, 3>> products_of(const ExecutionGraph& graph) {
  const Gpu& gpu = titan_xp();
  std::vector<std::array<std::int64_t, 3>> found;
  Lowering lowering(graph, gpu, nullptr);
  for (const std::int32_t op : top_level_ops(graph)) {
    for (const KernelWork& work : lowering.lower(op).work) {
      if (const auto* shape = std::get_if<GemmShape>(&work.shape)) {
        found.push_back({shape->m, shape->n, shape->k});
      }
    }
  }
  return found;
}

// W x in the place of x W^T: m and n of every product that has the batch in it change places, and
// four tensors [T][B][H] are turned, each read and written once.
TEST(RecurrentCells, HiddenMajorLayoutSwapsProductsAndTurnsBothEnds) {
  const ExecutionGraph before =
      build(RecurrentCell::kLstm, RecurrentForm::kUnfused, kTwoLayers, kBatch, kHidden, kFourSteps);
  const ExecutionGraph batch = fused(before);
  const ExecutionGraph hidden =
      rewrite_recurrent_cells(before, RecurrentLayout::kHiddenMajor).value();
  const std::int64_t columns = kFourSteps * kBatch, rest = columns - kBatch, gates = 4 * kHidden;
  const auto count = [](const ExecutionGraph& graph, std::array<std::int64_t, 3> product) {
    return std::ranges::count(products_of(graph), product);
  };
  for (const auto& [m, n, k, times] :
       {std::tuple{columns, gates, std::int64_t{kHidden}, kTwoLayers},  // inputs
        std::tuple{std::int64_t{kBatch}, gates, std::int64_t{kHidden}, kTwoLayers * kFourSteps},
        std::tuple{std::int64_t{kBatch}, std::int64_t{kHidden}, gates,
                   kTwoLayers * (kFourSteps - 1)},
        std::tuple{columns, std::int64_t{kHidden}, gates, kTwoLayers}}) {  // products with inputs
    EXPECT_EQ(count(batch, {m, n, k}), times) << m << " " << n << " " << k;
    EXPECT_EQ(count(batch, {n, m, k}), 0);
    EXPECT_EQ(count(hidden, {n, m, k}), times);
    EXPECT_EQ(count(hidden, {m, n, k}), 0);
  }
  for (const std::int64_t k : {columns, rest}) {  // gradients of the weights: as before
    EXPECT_EQ(count(batch, {gates, kHidden, k}), kTwoLayers);
    EXPECT_EQ(count(hidden, {gates, kHidden, k}), kTwoLayers);
  }
  EXPECT_EQ(sum_of(hidden).kernels, sum_of(batch).kernels + 4);
  EXPECT_DOUBLE_EQ(product_flop(hidden), product_flop(batch));
}

// The result of all steps, and the gradient of the sequence: of ops that are gone.
TEST(RecurrentCells, LayersGiveTheTensorsThatOthersRead) {
  const ExecutionGraph before =
      build(RecurrentCell::kLstm, RecurrentForm::kUnfused, kTwoLayers, kBatch, kHidden, kFourSteps);
  const ExecutionGraph after = fused(before);
  const StepView step(after);
  for (const std::string_view name : {"aten::stack", "UnbindBackward0"}) {
    const auto op = std::ranges::find_if(
        before.nodes, [&](const Node& node) { return before.name(node) == name; });
    ASSERT_NE(op, before.nodes.end());
    const Node& giver = name == "aten::stack" ? *op : before.node(before.children(*op).front());
    const std::int64_t id = before.tensors[before.outputs(giver)[0].index].id;
    const auto mention =
        std::ranges::find_if(after.tensors, [&](const Tensor& one) { return one.id == id; });
    ASSERT_NE(mention, after.tensors.end()) << name;
    EXPECT_GE(step.tensors().maker(step.tensors().of(*mention)), 0) << name;
  }
}

TEST(RecurrentCells, HiddenMajorLayoutNeedsWholeLayers) {
  const auto step =
      rewrite_recurrent_cells(build(RecurrentCell::kLstm, RecurrentForm::kUnfused, 1, 8, 32, 1),
                              RecurrentLayout::kHiddenMajor);
  ASSERT_FALSE(step.has_value());
  EXPECT_THAT(step.error().message, HasSubstr("two steps or more"));
  // Without it, such a cell is fused by itself, and that is said.
  const ExecutionGraph alone =
      fused(build(RecurrentCell::kLstm, RecurrentForm::kUnfused, 1, 8, 32, 1));
  ASSERT_EQ(alone.warnings.size(), 1U);
  EXPECT_THAT(alone.warnings[0], HasSubstr("products of 1 cells stay one per step"));
}

// A hashed weight has fewer numbers than the layers' products read: the cells alone are fused.
TEST(RecurrentCells, ProductsWithHashedWeightsStay) {
  const ExecutionGraph hashed =
      rewrite_hashed_weights(build(RecurrentCell::kGru, RecurrentForm::kUnfused, 1, 8, 32),
                             {.pattern = "aten::linear", .compression = 2})
          .value();
  const ExecutionGraph graph = fused(hashed);
  ASSERT_EQ(graph.warnings.size(), 1U);
  EXPECT_THAT(graph.warnings[0], HasSubstr("products of 4 cells stay one per step"));
  const auto products = [](const ExecutionGraph& of) {
    return std::ranges::count_if(
        of.nodes, [&](const Node& node) { return of.name(node) == "hashed::addmm"; });
  };
  EXPECT_EQ(products(graph), products(hashed));
  const auto library = rewrite_recurrent_cells(hashed, RecurrentLayout::kHiddenMajor);
  ASSERT_FALSE(library.has_value());
  EXPECT_THAT(library.error().message, HasSubstr("expected a product of the input and one of the "
                                                 "state in front of each cell, found 0"));
}

// A decoder that attention feeds stays step by step, in contrast to the encoder's layers.
TEST(RecurrentCells, DecodersKeepTheirProductsAndTheGraphSaysSo) {
  Seq2seqConfig config;
  config.bidirectional = false;
  config.encoder_form = config.decoder_form = RecurrentForm::kUnfused;
  const ExecutionGraph graph = fused(build_seq2seq(config).value());
  ASSERT_EQ(graph.warnings.size(), 1U);
  EXPECT_THAT(graph.warnings[0], HasSubstr("cells stay one per step"));
  const auto chunks = std::ranges::count_if(
      graph.nodes, [&](const Node& node) { return graph.name(node) == "aten::chunk"; });
  EXPECT_EQ(chunks, 0);  // every cell is fused
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
    constexpr double kReached = 0.8;  // share of GDDR5X's data sheet
    const double by_hand = 15 * kNumbers * 4 / (kReached * gpu.dram_bandwidth.value * 1e-6);
    EXPECT_NEAR(KernelModels::heuristic().price(lowered.work[0], gpu).time.count(), by_hand,
                0.05 * by_hand);
    ++found;
  }
  EXPECT_EQ(found, 2);
}

// Time of kernels that read and write a weight's size: sums of its gradients over the steps.
double sums_of_weight_gradients_us(const ExecutionGraph& graph, double weight_bytes) {
  double us = 0;
  Lowering lowering(graph, titan_xp(), nullptr);
  for (const std::int32_t op : top_level_ops(graph)) {
    if (!graph.name(graph.nodes[static_cast<std::size_t>(op)]).starts_with("autograd::")) continue;
    for (const KernelWork& work : lowering.lower(op).work) {
      if (work.family != KernelFamily::kElementwise || work.bytes_written.value != weight_bytes) {
        continue;
      }
      us += KernelModels::heuristic().price(work, titan_xp()).time.count();
    }
  }
  return us;
}

// At a batch of 128 and 2,048 units the sums of the weights' gradients, which one product over all
// steps makes needless, are a quarter of the step; without them, products dominate.
TEST(RecurrentCells, LittleIsGainedWhereProductsDominate) {
  const auto gain = [](std::int64_t batch, std::int64_t hidden, bool with_sums) {
    const ExecutionGraph before =
        build(RecurrentCell::kLstm, RecurrentForm::kUnfused, 1, batch, hidden);
    const double weight_bytes = 16.0 * static_cast<double>(hidden * hidden);
    const double sums = with_sums ? 0 : sums_of_weight_gradients_us(before, weight_bytes);
    return (sum_of(before).us - sums) / sum_of(fused(before)).us;
  };
  EXPECT_GT(gain(16, 128, true), 1.4);
  EXPECT_LT(gain(128, 2048, false), 1.2);
  EXPECT_LT(gain(1024, 2048, true), 1.2);
  EXPECT_GT(gain(128, 2048, true), 1.2);
}

// Times of the products and of the recurrent layers, and what they are.
std::vector<std::pair<KernelFamily, double>> layers_of(const ExecutionGraph& graph) {
  const Gpu& gpu = titan_xp();
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

// A gradient that is none of the result: layers cannot be joined, cells can.
TEST(RecurrentLayersAsCalls, GradientsHaveTheSizesOfTheirTensors) {
  ExecutionGraph graph = build(RecurrentCell::kGru, RecurrentForm::kUnfused, 1, 8, 32);
  const auto function = std::ranges::find_if(
      graph.nodes, [&](const Node& node) { return graph.name(node) == "StackBackward0"; });
  ASSERT_NE(function, graph.nodes.end());
  graph.tensors[graph.inputs(*function)[0].index].rank = 2;
  const auto layers = rewrite_recurrent_layers(graph, RecurrentCall::kLibrary);
  ASSERT_FALSE(layers.has_value());
  EXPECT_THAT(layers.error().message, HasSubstr("expected a gradient of the sizes of its tensor, "
                                                "found another at aten::stack"));
  const ExecutionGraph cells = fused(graph);
  ASSERT_EQ(cells.warnings.size(), 1U);
  EXPECT_THAT(cells.warnings[0], HasSubstr("cells stay one per step"));
}

TEST(RecurrentLayersAsCalls, NeedTheGradientOfTheirResult) {
  ExecutionGraph graph = build(RecurrentCell::kGru, RecurrentForm::kUnfused, 1, 8, 32);
  const auto function = std::ranges::find_if(
      graph.nodes, [&](const Node& node) { return graph.name(node) == "StackBackward0"; });
  ASSERT_NE(function, graph.nodes.end());
  graph.arguments[function->inputs_begin].kind = Argument::Kind::kNone;
  for (const auto call : {RecurrentCall::kLibrary, RecurrentCall::kWavefront}) {
    const auto layers = rewrite_recurrent_layers(graph, call);
    ASSERT_FALSE(layers.has_value());
    EXPECT_THAT(layers.error().message, HasSubstr("expected the gradient of the layers' result, "
                                                  "found none at aten::stack"));
  }
  EXPECT_THAT(fused(graph).warnings, testing::ElementsAre(HasSubstr("cells stay one per step")));
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
