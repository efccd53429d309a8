#include "perfmodel/graph/build_recommenders.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <string>

#include "../scratch.hpp"
#include "perfmodel/graph/model_size.hpp"
#include "perfmodel/graph/read_execution_graph.hpp"
#include "perfmodel/graph/write_execution_graph.hpp"

namespace perfmodel {
namespace build_dlrm_test {

using Shape = std::vector<std::int64_t>;

// Bottom 4-6-2, three tables of dim 2, top 5-1, batch 8: small enough to count by hand.
// Interaction: 4 vectors, 6 pairs, 2 + 6 = 8 values into the top MLP.
DlrmConfig small_config() {
  DlrmConfig config;
  config.bottom_mlp = {4, 6, 2};
  config.top_mlp = {5, 1};
  config.tables = {{.num_rows = 100, .dim = 2, .pooling_factor = 3},
                   {.num_rows = 7, .dim = 2, .pooling_factor = 1},
                   {.num_rows = 50, .dim = 2, .pooling_factor = 2.5}};
  config.batch = 8;
  return config;
}

DlrmConfig small_bags() {
  DlrmConfig config = small_config();
  config.table_batched = false;
  return config;
}

ExecutionGraph build(const DlrmConfig& config) {
  auto graph = build_dlrm(config);
  if (!graph) {
    ADD_FAILURE() << to_string(graph.error());
    return {};
  }
  return std::move(*graph);
}

std::vector<const Node*> named(const ExecutionGraph& graph, std::string_view name) {
  std::vector<const Node*> found;
  for (const Node& node : graph.nodes) {
    if (graph.name(node) == name) found.push_back(&node);
  }
  return found;
}

std::size_t count(const ExecutionGraph& graph, std::string_view name) {
  return named(graph, name).size();
}

Shape shape_of(const ExecutionGraph& graph, const Argument& argument) {
  EXPECT_EQ(argument.kind, Argument::Kind::kTensor);
  const auto sizes = graph.shape(graph.tensors[argument.index]);
  return {sizes.begin(), sizes.end()};
}

Shape input_shape(const ExecutionGraph& graph, const Node& node, std::size_t i) {
  return shape_of(graph, graph.inputs(node)[i]);
}

Shape output_shape(const ExecutionGraph& graph, const Node& node) {
  return shape_of(graph, graph.outputs(node)[0]);
}

// 2 m n k of every matrix product on one thread (1: forward, 2: backward).
std::int64_t gemm_flop(const ExecutionGraph& graph, int thread) {
  std::int64_t flop = 0;
  for (const Node& node : graph.nodes) {
    const auto name = graph.name(node);
    if (node.thread != thread) continue;
    if (name == "aten::mm" || name == "aten::bmm" || name == "aten::addmm") {
      const Shape a = input_shape(graph, node, name == "aten::addmm" ? 1 : 0);
      std::int64_t product = 2 * a.back();
      for (std::int64_t size : output_shape(graph, node)) product *= size;
      flop += product;
    }
  }
  return flop;
}

std::filesystem::path scratch_folder() { return test_support::scratch() / "build_dlrm"; }

std::filesystem::path scratch(const std::string& name) {
  std::filesystem::create_directories(scratch_folder());
  return scratch_folder() / name;
}

struct RemoveScratch : testing::Environment {
  void TearDown() override { std::filesystem::remove_all(scratch_folder()); }
};
[[maybe_unused]] const auto* const kRemoveScratch =
    testing::AddGlobalTestEnvironment(new RemoveScratch);

std::string bytes_of(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::filesystem::path written(const std::string& name, const std::string& text) {
  const auto file = scratch(name);
  std::ofstream(file, std::ios::binary) << text;
  return file;
}

class BuiltDlrm : public testing::TestWithParam<std::pair<std::string, DlrmConfig>> {};

DlrmConfig with(DlrmConfig config, const std::function<void(DlrmConfig&)>& change) {
  change(config);
  return config;
}

INSTANTIATE_TEST_SUITE_P(
    AllKinds, BuiltDlrm,
    testing::Values(
        std::pair{"Batched", small_config()}, std::pair{"Bags", small_bags()},
        std::pair{"Adagrad",
                  with(small_config(),
                       [](auto& c) { c.optimizer = DlrmConfig::Optimizer::kRowwiseAdagrad; })},
        std::pair{"Cat", with(small_config(), [](auto& c) { c.interaction_dot = false; })},
        std::pair{"CatBags", with(small_bags(), [](auto& c) { c.interaction_dot = false; })},
        std::pair{"OneRow", with(small_config(), [](auto& c) { c.batch = 1; })},
        std::pair{"Default", *dlrm_preset("default")}, std::pair{"Mlperf", *dlrm_preset("mlperf")},
        std::pair{"Ddp", *dlrm_preset("ddp")}),
    [](const auto& instance) { return instance.param.first; });

TEST_P(BuiltDlrm, IdsRiseAndParentsComeFirst) {
  const ExecutionGraph graph = build(GetParam().second);
  std::set<std::int64_t> tensor_ids;
  for (const Tensor& tensor : graph.tensors) tensor_ids.insert(tensor.id);
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    if (i > 0) {
      EXPECT_GT(node.id, graph.nodes[i - 1].id);
      EXPECT_LT(node.parent_id, node.id);
    }
    EXPECT_FALSE(node.is_orphan);
    EXPECT_FALSE(tensor_ids.contains(node.id)) << "an op and a tensor share an id";
  }
}

TEST_P(BuiltDlrm, ForwardRunsOnThreadOneAndBackwardOnThreadTwo) {
  const ExecutionGraph graph = build(GetParam().second);
  for (const Node& node : graph.nodes) {
    const bool backward = node.scope == Scope::kBackward ||
                          graph.name(node).starts_with("autograd::engine::evaluate_function");
    if (backward) {
      EXPECT_EQ(node.thread, 2) << graph.name(node);
    }
    if (node.parent > 0 && !graph.nodes[static_cast<std::size_t>(node.parent)].is_structural) {
      EXPECT_EQ(node.thread, graph.nodes[static_cast<std::size_t>(node.parent)].thread);
    }
  }
  ASSERT_EQ(iterations(graph).size(), 1U);
  EXPECT_EQ(iterations(graph)[0].name, "ProfilerStep#0");
}

TEST_P(BuiltDlrm, EveryBackwardFunctionHasItsForwardOp) {
  const ExecutionGraph graph = build(GetParam().second);
  // Names of backward functions come from these ops: "ReluBackward0" belongs to "aten::relu".
  const std::map<std::string, std::string> forward_names = {
      {"TBackward0", "aten::t"},
      {"AddmmBackward0", "aten::addmm"},
      {"ReluBackward0", "aten::relu"},
      {"SigmoidBackward0", "aten::sigmoid"},
      {"CatBackward0", "aten::cat"},
      {"ViewBackward0", "aten::view"},
      {"TransposeBackward0", "aten::transpose"},
      {"BmmBackward0", "aten::bmm"},
      {"SliceBackward0", "aten::slice"},
      {"IndexBackward0", "aten::index"},
      {"BinaryCrossEntropyBackward0", "aten::binary_cross_entropy"},
      {"EmbeddingBagBackward0", "aten::_embedding_bag"},
      {"torch::autograd::CppNode<SplitLookupFunction_sgd_Op>",
       "fbgemm::split_embedding_codegen_lookup_sgd_function"},
      {"torch::autograd::CppNode<SplitLookupFunction_rowwise_adagrad_Op>",
       "fbgemm::split_embedding_codegen_lookup_rowwise_adagrad_function"}};
  const auto partners = forward_partners(graph);
  std::size_t backward = 0;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    if (node.scope != Scope::kBackward) continue;
    const std::string name(graph.name(node));
    if (name == "torch::autograd::AccumulateGrad") {
      EXPECT_EQ(node.seq_id, -1);
      continue;
    }
    ++backward;
    ASSERT_GE(partners[i], 0) << name;
    ASSERT_TRUE(forward_names.contains(name)) << name;
    EXPECT_EQ(graph.name(graph.nodes[static_cast<std::size_t>(partners[i])]),
              forward_names.at(name));
  }
  EXPECT_GT(backward, 0U);
}

TEST_P(BuiltDlrm, GpuStoragesAreMadeBeforeTheyAreReadUnlessTheyPersist) {
  const DlrmConfig& config = GetParam().second;
  const ExecutionGraph graph = build(config);
  std::set<std::int64_t> made, persistent;
  for (const Node& node : graph.nodes) {
    for_each_tensor(graph, graph.inputs(node), [&](const Tensor& tensor) {
      if (tensor.on_gpu() && !made.contains(tensor.storage_id))
        persistent.insert(tensor.storage_id);
    });
    for_each_tensor(graph, graph.outputs(node), [&](const Tensor& tensor) {
      if (tensor.on_gpu()) made.insert(tensor.storage_id);
    });
  }
  // Weight and bias per layer, the two index tensors of the dot interaction, tables. FBGEMM's op
  // knows the weights, 8 tensors of bookkeeping, 2 of the bounds check; Adagrad adds 4 there and
  // one sum per parameter.
  const std::size_t layers = config.bottom_mlp.size() - 1 + config.top_mlp.size();
  const bool adagrad = config.optimizer == DlrmConfig::Optimizer::kRowwiseAdagrad;
  std::size_t expected = 2 * layers + (config.interaction_dot ? 2 : 0);
  expected += config.table_batched ? 1 + 8 + 2 : config.tables.size();
  if (adagrad) expected += 4 + 2 * layers;
  EXPECT_EQ(persistent.size(), expected);
}

TEST_P(BuiltDlrm, BackwardHasTwiceTheMatrixProductsExceptForTheInput) {
  const DlrmConfig& config = GetParam().second;
  const ExecutionGraph graph = build(config);
  // Forward: the MLPs and [B, M, D] x [B, D, M].
  std::vector<std::int64_t> top = {interaction_width(config)};
  top.insert(top.end(), config.top_mlp.begin(), config.top_mlp.end());
  std::int64_t forward = 0;
  for (const auto& widths : {config.bottom_mlp, top}) {
    for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
      forward += 2 * config.batch * widths[i] * widths[i + 1];
    }
  }
  const auto vectors = static_cast<std::int64_t>(config.tables.size()) + 1;
  if (config.interaction_dot) {
    forward += 2 * config.batch * vectors * vectors * config.bottom_mlp.back();
  }
  EXPECT_EQ(gemm_flop(graph, 1), forward);
  // The gradient of the dense features is not needed.
  const std::int64_t no_input_gradient =
      2 * config.batch * config.bottom_mlp[0] * config.bottom_mlp[1];
  EXPECT_EQ(gemm_flop(graph, 2), 2 * forward - no_input_gradient);
}

TEST_P(BuiltDlrm, WrittenAndReadBackIsTheSameGraph) {
  const ExecutionGraph graph = build(GetParam().second);
  const auto file = scratch("round_trip_" + GetParam().first + ".json");
  ASSERT_TRUE(write_execution_graph(graph, file));
  const auto read = read_execution_graph(file);
  ASSERT_TRUE(read) << to_string(read.error());
  EXPECT_TRUE(read->built);
  EXPECT_EQ(read->schema, "1.1.1-chakra.0.0.4");
  EXPECT_TRUE(read->warnings.empty());
  ASSERT_EQ(read->nodes.size(), graph.nodes.size());
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    EXPECT_EQ(read->nodes[i].id, graph.nodes[i].id);
    EXPECT_EQ(read->nodes[i].parent, graph.nodes[i].parent);
    EXPECT_EQ(read->nodes[i].is_label, graph.nodes[i].is_label);
    EXPECT_EQ(read->name(read->nodes[i]), graph.name(graph.nodes[i]));
  }
  EXPECT_EQ(execution_graph_json(*read), execution_graph_json(graph));
}

TEST(BuildDlrm, CountsOpsOfTheSmallModel) {
  const ExecutionGraph graph = build(small_config());
  EXPECT_EQ(count(graph, "aten::linear"), 4U);  // 2 bottom, 2 top
  EXPECT_EQ(count(graph, "aten::addmm"), 4U);
  EXPECT_EQ(count(graph, "aten::relu"), 3U);        // not after the last layer
  EXPECT_EQ(count(graph, "aten::mm"), 2 * 4U - 1);  // one less for the first layer
  EXPECT_EQ(count(graph, "aten::bmm"), 3U);
  EXPECT_EQ(count(graph, "aten::cat"), 2U);
  EXPECT_EQ(count(graph, "aten::sigmoid_backward"), 1U);
  EXPECT_EQ(count(graph, "torch::autograd::AccumulateGrad"), 2 * 4U);
  EXPECT_EQ(count(graph, "fbgemm::split_embedding_codegen_lookup_sgd_function"), 1U);
  EXPECT_EQ(count(graph, "aten::_foreach_add_"), 1U);
  EXPECT_EQ(count(graph, "aten::embedding_bag"), 0U);
  EXPECT_EQ(count(graph, "Optimizer.zero_grad#SGD.zero_grad"), 1U);
  EXPECT_EQ(count(graph, "Optimizer.step#SGD.step"), 1U);
  // Dense features, indices, offsets, labels.
  EXPECT_EQ(count(graph, "aten::_to_copy"), 4U);
}

TEST(BuildDlrm, ShapesOfLookupAndInteraction) {
  const ExecutionGraph graph = build(small_config());
  const Node& lookup = *named(graph, "fbgemm::split_embedding_codegen_lookup_sgd_function").at(0);
  EXPECT_EQ(input_shape(graph, lookup, 1), Shape{157 * 2});                 // all weights
  EXPECT_EQ(graph.inputs(lookup)[7].integer, 6);                            // sum of dims
  EXPECT_EQ(graph.inputs(lookup)[10].integer, 8);                           // 157 < 2^8
  EXPECT_EQ(input_shape(graph, lookup, 11), Shape{8 * 3 + 8 + 8 * 5 / 2});  // indices
  EXPECT_EQ(input_shape(graph, lookup, 12), Shape{3 * 8 + 1});              // offsets
  EXPECT_EQ(output_shape(graph, lookup), (Shape{8, 6}));
  EXPECT_EQ(output_shape(graph, *named(graph, "aten::bmm").at(0)), (Shape{8, 4, 4}));
  EXPECT_EQ(output_shape(graph, *named(graph, "aten::index").at(0)), (Shape{8, 6}));
  EXPECT_EQ(output_shape(graph, *named(graph, "aten::cat").at(1)), (Shape{8, 8}));
  EXPECT_EQ(input_shape(graph, *named(graph, "aten::linear").at(2), 1), (Shape{5, 8}));
}

TEST(BuildDlrm, BagsHaveSparseGradientsAndAPlainLoop) {
  const ExecutionGraph graph = build(small_bags());
  EXPECT_EQ(count(graph, "aten::embedding_bag"), 3U);
  EXPECT_EQ(count(graph, "EmbeddingBagBackward0"), 3U);
  EXPECT_EQ(count(graph, "aten::index_add_"), 3U);
  EXPECT_EQ(count(graph, "aten::_foreach_add_"), 0U);
  const Node& first = *named(graph, "aten::embedding_bag").at(0);
  EXPECT_EQ(input_shape(graph, first, 0), (Shape{100, 2}));
  EXPECT_EQ(input_shape(graph, first, 1), Shape{24});
  EXPECT_EQ(input_shape(graph, first, 2), Shape{8});
  EXPECT_EQ(output_shape(graph, first), (Shape{8, 2}));
  const Node& gather = *named(graph, "aten::index_select").at(2);  // tables backwards
  EXPECT_EQ(output_shape(graph, gather), (Shape{24, 2}));
  // A sparse tensor has neither storage nor device.
  const Node& made = *named(graph, "aten::embedding_sparse_backward").at(0);
  const Tensor& sparse = graph.tensors[graph.outputs(made)[0].index];
  EXPECT_EQ(sparse.storage_id, 0);
  EXPECT_EQ(sparse.dtype, DType::kFloat32);
}

TEST(BuildDlrm, GradientsOfTheInteractionAreAddedWhereTheyMeet) {
  const ExecutionGraph graph = build(small_config());
  // The stacked vectors are read twice (in place: the first gradient is a fresh tensor), and so is
  // the bottom MLP's output (both gradients are slices, so their sum is a new tensor).
  std::map<std::string, std::string> sums;
  for (const Node& node : graph.nodes) {
    const std::string name(graph.name(node));
    if (node.thread != 2 || (name != "aten::add" && name != "aten::add_")) continue;
    const std::string parent(graph.name(graph.nodes[static_cast<std::size_t>(node.parent)]));
    if (parent != "aten::_index_put_impl_") sums[name] = parent;
  }
  const std::string wrapper = "autograd::engine::evaluate_function: ";
  EXPECT_EQ(sums,
            (std::map<std::string, std::string>{{"aten::add_", wrapper + "TransposeBackward0"},
                                                {"aten::add", wrapper + "CatBackward0"}}));
}

TEST(BuildDlrm, BackwardRunsInReverseWithParametersFirst) {
  const ExecutionGraph graph = build(small_config());
  std::vector<std::string> order;
  for (const Node& node : graph.nodes) {
    if (node.scope == Scope::kBackward) order.emplace_back(graph.name(node));
  }
  const std::string accumulate = "torch::autograd::AccumulateGrad";
  const std::vector<std::string> start = {"BinaryCrossEntropyBackward0",
                                          "SigmoidBackward0",
                                          "AddmmBackward0",
                                          accumulate,
                                          "TBackward0",
                                          accumulate,
                                          "ReluBackward0"};
  ASSERT_GT(order.size(), start.size());
  EXPECT_TRUE(std::equal(start.begin(), start.end(), order.begin()));
  EXPECT_EQ(order.back(), accumulate);
}

TEST(BuildDlrm, AdagradKeepsOneNumberPerRow) {
  DlrmConfig config = small_config();
  config.optimizer = DlrmConfig::Optimizer::kRowwiseAdagrad;
  const ExecutionGraph graph = build(config);
  const Node& lookup =
      *named(graph, "fbgemm::split_embedding_codegen_lookup_rowwise_adagrad_function").at(0);
  EXPECT_EQ(input_shape(graph, lookup, 20), Shape{157});
  EXPECT_EQ(count(graph, "aten::_foreach_addcdiv_"), 1U);
  EXPECT_EQ(count(graph, "Optimizer.step#Adagrad.step"), 1U);
}

TEST(BuildDlrm, PresetsAreThoseOfThePaper) {
  const auto preset = dlrm_preset("mlperf");
  ASSERT_TRUE(preset);
  EXPECT_EQ(preset->tables.size(), 26U);
  std::int64_t rows = 0;
  for (const EmbeddingTable& table : preset->tables) rows += table.num_rows;
  EXPECT_EQ(rows, 187'767'399);
  EXPECT_EQ(interaction_width(*preset), 128 + 27 * 26 / 2);
  EXPECT_EQ(interaction_width(*dlrm_preset("default")), 64 + 9 * 8 / 2);
  EXPECT_EQ(dlrm_preset("ddp")->tables[0].num_rows, 80'000);
  const auto unknown = dlrm_preset("dlrm2");
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, ErrorCode::kUnknownName);
  EXPECT_EQ(unknown.error().message,
            "expected a DLRM preset (default, mlperf, ddp, dcnv2), found \"dlrm2\"");
}

struct Layers {
  std::int64_t weights = 0, biases = 0;
};

Layers layers(const std::vector<std::int64_t>& widths) {
  Layers sum;
  for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
    sum.weights += widths[i] * widths[i + 1];
    sum.biases += widths[i + 1];
  }
  return sum;
}

// Three products per weight, except in the first layer, whose input needs no gradient; in addition,
// dot products of M vectors of width D.
TEST(BuildDlrm, PresetsHaveTheParametersAndProductsOfTheirClosedForm) {
  for (const char* name : {"default", "mlperf", "ddp"}) {
    const DlrmConfig config = *dlrm_preset(name);
    const auto vectors = static_cast<std::int64_t>(config.tables.size()) + 1;
    const std::int64_t dim = config.bottom_mlp.back();
    std::vector<std::int64_t> behind = {dim + vectors * (vectors - 1) / 2};
    behind.insert(behind.end(), config.top_mlp.begin(), config.top_mlp.end());
    const Layers bottom = layers(config.bottom_mlp), top = layers(behind);
    std::int64_t parameters = bottom.weights + bottom.biases + top.weights + top.biases;
    for (const EmbeddingTable& table : config.tables) parameters += table.num_rows * table.dim;
    const ModelSize size = model_size(build(config));
    EXPECT_EQ(size.parameters, parameters) << name;
    const std::int64_t first = config.bottom_mlp[0] * config.bottom_mlp[1];
    const std::int64_t products =
        3 * (bottom.weights + top.weights) - first + 3 * vectors * vectors * dim;
    EXPECT_EQ(size.matrix_flop, 2.0 * static_cast<double>(config.batch * products)) << name;
  }
  EXPECT_EQ(model_size(build(*dlrm_preset("mlperf"))).parameters, 24'036'595'969);
}

// W and V of 3 layers of rank 512 and the biases, over 27 vectors of 128.
TEST(BuildDlrm, Dcnv2HasTheParametersAndProductsOfItsClosedForm) {
  const DlrmConfig config = *dlrm_preset("dcnv2");
  const std::int64_t batch = 8192, width = 27 * 128, cross = 3 * 2 * width * 512;
  const Layers bottom = layers({13, 512, 256, 128});
  const Layers top = layers({width, 1024, 1024, 512, 256, 1});
  std::int64_t rows = 0;
  for (const EmbeddingTable& table : config.tables) rows += table.num_rows;
  EXPECT_EQ(rows, 204'184'588);
  EXPECT_EQ(interaction_width(config), width);
  const ModelSize size = model_size(build(config));
  EXPECT_EQ(size.parameters, rows * 128 + cross + 3 * width + bottom.weights + bottom.biases +
                                 top.weights + top.biases);
  const double weights = static_cast<double>(cross + bottom.weights + top.weights);
  EXPECT_EQ(size.matrix_flop, 2.0 * batch * (3.0 * weights - 13 * 512));
}

TEST(BuildDlrm, Dcnv2MayBeCalledByItsRelease) {
  EXPECT_EQ(dlrm_preset("mlperf-v3")->tables.size(), 26U);
  EXPECT_EQ(dlrm_preset("mlperf-v3")->cross.layers, dlrm_preset("dcnv2")->cross.layers);
}

TEST(BuildDlrm, ElementwiseAdagradKeepsOneNumberPerWeight) {
  DlrmConfig config = small_config();
  config.optimizer = DlrmConfig::Optimizer::kAdagrad;
  const ExecutionGraph graph = build(config);
  const Node& lookup =
      *named(graph, "fbgemm::split_embedding_codegen_lookup_adagrad_function").at(0);
  EXPECT_EQ(input_shape(graph, lookup, 20), Shape{157 * 2});
}

TEST(BuildDlrm, AdamKeepsTwoNumbersPerWeight) {
  DlrmConfig config = small_config();
  config.optimizer = DlrmConfig::Optimizer::kAdam;
  config.training.learning_rate = 0.125;
  const ExecutionGraph graph = build(config);
  const Node& lookup = *named(graph, "fbgemm::split_embedding_codegen_lookup_adam_function").at(0);
  EXPECT_EQ(input_shape(graph, lookup, 20), Shape{157 * 2});
  EXPECT_EQ(input_shape(graph, lookup, 24), Shape{157 * 2});
  EXPECT_EQ(graph.inputs(lookup)[28].real, 0.125);
  EXPECT_EQ(count(graph, "torch::autograd::CppNode<SplitLookupFunction_adam_Op>"), 1U);
  EXPECT_EQ(count(graph, "Optimizer.step#Adam.step"), 1U);
}

// With dense gradients, every parameter has one: tables, then weights and biases.
TEST(BuildDlrm, SingleTablesWithDenseGradientsTakeAnyOptimizer) {
  using Optimizer = DlrmConfig::Optimizer;
  for (Optimizer optimizer : {Optimizer::kSgd, Optimizer::kAdagrad, Optimizer::kAdam}) {
    DlrmConfig config = small_config();
    config.table_batched = false;
    config.sparse_gradients = false;
    config.optimizer = optimizer;
    config.training.implementation = TrainingOptions::Implementation::kLoop;
    const ExecutionGraph graph = build(config);
    const auto tables = config.tables.size();
    EXPECT_EQ(count(graph, "aten::_embedding_bag_dense_backward"), tables);
    EXPECT_EQ(count(graph, "aten::_embedding_bag_sparse_backward"), 0U);
    if (optimizer == Optimizer::kSgd) continue;
    const auto layers = config.bottom_mlp.size() - 1 + config.top_mlp.size();
    EXPECT_EQ(count(graph, "aten::addcdiv_"), tables + 2 * layers);
  }
}

// Rows of three tables that merges of sparse gradients read back in a step on a GPU: how many there
// are, and before PyTorch 2.0 the least and the largest index of each sparse tensor that is made.
TEST(BuildDlrm, SparseOptimizersReadNumbersBack) {
  using Optimizer = DlrmConfig::Optimizer;
  const auto counts = [](Optimizer optimizer, int major, int minor) {
    DlrmConfig config = small_config();
    config.table_batched = false;
    config.optimizer = optimizer;
    config.training.pytorch.major = major;
    config.training.pytorch.minor = minor;
    const ExecutionGraph graph = build(config);
    std::size_t extremes = 0;
    for (const Node& node : graph.nodes) {
      if (graph.name(node) != "aten::copy_") continue;
      const auto copied = graph.inputs(node);
      const bool reads =
          graph.tensors[copied[0].index].on_cpu() && graph.tensors[copied[1].index].on_gpu();
      extremes += reads ? 1 : 0;
    }
    EXPECT_EQ(count(graph, "aten::_coalesce"), config.tables.size());
    return extremes / config.tables.size();
  };
  EXPECT_EQ(counts(Optimizer::kSparseAdam, 1, 13), 6U);  // three sparse tensors
  EXPECT_EQ(counts(Optimizer::kAdagrad, 1, 13), 4U);     // two
  EXPECT_EQ(counts(Optimizer::kSparseAdam, 2, 4), 0U);
  EXPECT_EQ(counts(Optimizer::kAdagrad, 2, 4), 0U);
}

TEST(BuildDlrm, SparseAdamLeavesTheMlpsToAdam) {
  DlrmConfig config = small_config();
  config.table_batched = false;
  config.optimizer = DlrmConfig::Optimizer::kSparseAdam;
  const ExecutionGraph graph = build(config);
  EXPECT_EQ(count(graph, "Optimizer.step#Adam.step"), 1U);
  EXPECT_EQ(count(graph, "Optimizer.step#SparseAdam.step"), 1U);
  EXPECT_EQ(count(graph, "Optimizer.zero_grad#SparseAdam.zero_grad"), 1U);
  EXPECT_EQ(count(graph, "aten::sparse_mask"), 2 * config.tables.size());
}

TEST(BuildDlrm, TheMlpsMayHaveAnotherOptimizer) {
  DlrmConfig config = small_config();
  config.dense_optimizer = TrainingOptions::Optimizer::kAdam;
  const ExecutionGraph graph = build(config);
  EXPECT_EQ(count(graph, "Optimizer.step#Adam.step"), 1U);
  EXPECT_EQ(count(graph, "fbgemm::split_embedding_codegen_lookup_sgd_function"), 1U);
}

TEST(BuildDlrm, BadConfigsAreRefusedByName) {
  const auto message = [](const std::function<void(DlrmConfig&)>& spoil) {
    const auto graph = build_dlrm(with(small_config(), spoil));
    return graph ? std::string("built") : graph.error().message;
  };
  EXPECT_EQ(message([](DlrmConfig&) {}), "built");
  EXPECT_EQ(message([](DlrmConfig& c) { c.batch = 0; }), "batch: expected at least 1, found 0");
  EXPECT_EQ(message([](DlrmConfig& c) { c.tables.clear(); }),
            "tables: expected at least one, found none");
  EXPECT_EQ(message([](DlrmConfig& c) { c.tables[1].dim = 4; }),
            "table 1: expected dim 2, the last width of the bottom MLP (dot products need equal "
            "vectors), found 4");
  EXPECT_EQ(message([](DlrmConfig& c) { c.tables[2].num_rows = 0; }),
            "table 2: expected positive rows and dim, found 0 x 2");
  EXPECT_EQ(message([](DlrmConfig& c) { c.tables[0].pooling_factor = 0; }),
            "table 0: expected a positive pooling factor, found 0");
  EXPECT_EQ(
      message([](DlrmConfig& c) { c.bottom_mlp = {4}; }),
      "bottom MLP: expected the width of its input and of at least one layer, found 1 widths");
  EXPECT_EQ(message([](DlrmConfig& c) {
              c.top_mlp = {5, 2};
            }),
            "top MLP: expected a last width of 1, found 2");
  EXPECT_EQ(message([](DlrmConfig& c) {
              c.top_mlp = {-5, 1};
            }),
            "top MLP: expected positive widths, found -5 at position 0");
  EXPECT_EQ(message([](DlrmConfig& c) { c.tables[0].num_rows = std::int64_t{1} << 61; }),
            "tables: expected less than 2^60 elements and lookups, found more");
  EXPECT_EQ(message([](DlrmConfig& c) {
              c.table_batched = false;
              c.optimizer = DlrmConfig::Optimizer::kRowwiseAdagrad;
            }),
            "optimizer: expected batched tables for row-wise Adagrad, found one nn.EmbeddingBag "
            "per table");
  EXPECT_EQ(message([](DlrmConfig& c) {
              c.training.pytorch.device = Device{.kind = Device::Kind::kCpu};
            }),
            "tables: expected a GPU for batched tables, found a CPU");
  EXPECT_EQ(message([](DlrmConfig& c) {
              c.table_batched = false;
              c.optimizer = DlrmConfig::Optimizer::kAdam;
            }),
            "optimizer: expected batched tables or dense gradients for Adam, found one "
            "nn.EmbeddingBag per table with sparse gradients");
  EXPECT_EQ(message([](DlrmConfig& c) {
              c.table_batched = c.sparse_gradients = false;
              c.dense_optimizer = TrainingOptions::Optimizer::kAdam;
            }),
            "optimizer: expected batched tables or sparse gradients for an optimizer of the MLPs "
            "alone, found one nn.EmbeddingBag per table with dense gradients");
  EXPECT_EQ(message([](DlrmConfig& c) { c.optimizer = DlrmConfig::Optimizer::kSparseAdam; }),
            "optimizer: expected sparse gradients of one nn.EmbeddingBag per table for SparseAdam, "
            "found batched tables");
  EXPECT_EQ(message([](DlrmConfig& c) {
              c.table_batched = false;
              c.training.weight_decay = 0.5;
            }),
            "weight decay: expected none with sparse gradients, found 0.5");
  EXPECT_EQ(message([](DlrmConfig& c) { c.cross = {.layers = 2, .rank = 0}; }),
            "cross: expected 0 to 1024 layers of rank 1 to 2^30, found 2 of rank 0");
  // Tables of any dim are fine where vectors only stand side by side.
  EXPECT_EQ(message([](DlrmConfig& c) {
              c.tables[1].dim = 4;
              c.interaction_dot = false;
            }),
            "built");
}

TEST(WriteExecutionGraph, GzipHoldsTheSameTextAndNoTime) {
  const ExecutionGraph graph = build(small_config());
  const auto file = scratch("graph.json.gz"), again = scratch("again.json.gz");
  ASSERT_TRUE(write_execution_graph(graph, file, {.generator = "perfmodel build \"dlrm\""}));
  ASSERT_TRUE(write_execution_graph(graph, again, {.generator = "perfmodel build \"dlrm\""}));
  EXPECT_EQ(bytes_of(file), bytes_of(again));
  EXPECT_EQ(bytes_of(file).substr(4, 4), std::string(4, '\0'));
  const auto read = read_execution_graph(file);
  ASSERT_TRUE(read) << to_string(read.error());
  EXPECT_EQ(execution_graph_json(*read), execution_graph_json(graph));
}

TEST(WriteExecutionGraph, LeavesNothingBehindOnFailure) {
  const ExecutionGraph graph = build(small_config());
  const auto nowhere = scratch("no") / "such" / "folder.json";
  const auto missing = write_execution_graph(graph, nowhere);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kIo);
  EXPECT_EQ(missing.error().file, nowhere);

  const auto folder = scratch("taken");
  std::filesystem::create_directories(folder / "target.json" / "inside");
  EXPECT_FALSE(write_execution_graph(graph, folder / "target.json"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);
}

TEST(WriteExecutionGraph, OldSchemasAreWrittenInTheNewOne) {
  const auto file = written("old.json", R"json({"schema": "1.0.1", "pid": 7, "nodes": [
    {"name": "aten::add", "id": 4, "rf_id": 2, "parent": 1, "fw_parent": 0, "seq_id": 3, "scope": 0,
     "tid": 1, "fw_tid": 0, "op_schema": "aten::add.Tensor(...)",
     "inputs": [[2, 3, 1, 6, 8, "cpu"], 0.5, "<None>", ["a\"b", true], "cuda:0", [9, 0, 0, 0, 0, ""]],
     "input_shapes": [[2, 3], [], [], [[], []], [], []],
     "input_types": ["Tensor(long int)", "Double", "None", "GenericList[String,Bool]", "Device",
                     "Tensor(nullptr (uninitialized))"],
     "outputs": [], "output_shapes": [], "output_types": []},
    {"name": "root", "id": 1, "rf_id": 0, "parent": 1, "fw_parent": 0, "seq_id": -1, "scope": 7,
     "tid": 0, "fw_tid": 0, "op_schema": "", "inputs": [], "input_shapes": [], "input_types": [],
     "outputs": [], "output_shapes": [], "output_types": []}]})json");
  const auto graph = read_execution_graph(file);
  ASSERT_TRUE(graph) << to_string(graph.error());
  const std::string text = execution_graph_json(*graph);
  EXPECT_EQ(text.find("\"built\""), std::string::npos);
  EXPECT_NE(text.find("\"schema\": \"1.1.1-chakra.0.0.4\", \"pid\": 7"), std::string::npos);
  const std::string inputs =
      R"json("inputs": {"values": [[2,3,1,6,8,"cpu"],0.5,"<None>",["a\"b",true],"cuda:0",)json"
      R"json([9,0,0,0,0,""]], "shapes": [[2,3],[],[],[[],[]],[],[]], "types": [)json"
      R"json("Tensor(long)","Double","None","GenericList[String,Bool]","Device",)json"
      R"json("Tensor(nullptr (uninitialized))"], "strides": [[3,1],[],[],[[],[]],[],[]]})json";
  EXPECT_NE(text.find(inputs), std::string::npos) << text;
}

TEST(WriteExecutionGraph, RecordedGraphsKeepTheirText) {
  const char* data = std::getenv("PERFMODEL_PUBLIC_DATA");
  if (data == nullptr) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  for (const char* name : {"dlrm_v100_rank0of8_et", "resnet50_ddp_et_1.0.3",
                           "resnet50_ddp_et_1.1.1", "triton_pt2_et_1.1.1"}) {
    const auto source = std::filesystem::path(data) / "traces" / (std::string(name) + ".json.gz");
    const auto graph = read_execution_graph(source);
    ASSERT_TRUE(graph) << to_string(graph.error());
    const auto copy = scratch(std::string(name) + ".json.gz");
    ASSERT_TRUE(write_execution_graph(*graph, copy));
    const auto read = read_execution_graph(copy);
    ASSERT_TRUE(read) << to_string(read.error());
    EXPECT_EQ(execution_graph_json(*read), execution_graph_json(*graph)) << name;
  }
}

TEST(WriteExecutionGraph, StridesAreThoseOfAsStrided) {
  const std::string text = execution_graph_json(build(small_config()));
  // The transposed [2, 6] weight of the second layer; everything else is dense.
  EXPECT_NE(text.find("\"shapes\": [[6,2]], \"types\": [\"Tensor(float)\"], \"strides\": [[1,6]]"),
            std::string::npos);
}

TEST(ReadEmbeddingTables, CsvAndJsonAgree) {
  const auto csv = read_embedding_tables(
      written("tables.csv", "table,rows,dim,pooling\r\nuser,1000,64,1.5\n\nitem, 20 ,128,30\n"));
  const auto json = read_embedding_tables(
      written("tables.json", R"([{"table": "user", "rows": 1000, "dim": 64, "pooling": 1.5},
                         {"rows": 20, "dim": 128, "pooling": 30}])"));
  ASSERT_TRUE(csv) << to_string(csv.error());
  ASSERT_TRUE(json) << to_string(json.error());
  for (const auto& tables : {*csv, *json}) {
    ASSERT_EQ(tables.size(), 2U);
    EXPECT_EQ(tables[0].num_rows, 1000);
    EXPECT_EQ(tables[0].dim, 64);
    EXPECT_EQ(tables[0].pooling_factor, 1.5);
    EXPECT_EQ(tables[1].num_rows, 20);
    EXPECT_EQ(tables[1].pooling_factor, 30);
  }
}

TEST(ReadEmbeddingTables, CsvMayHaveCommentsAndQuotedCells) {
  const auto tables = read_embedding_tables(
      written("quoted.csv", "# of two days\ntable,rows,dim,pooling\n\"a, b\",10,\"4\",1\n"));
  ASSERT_TRUE(tables) << to_string(tables.error());
  ASSERT_EQ(tables->size(), 1U);
  EXPECT_EQ(tables->front().num_rows, 10);
  EXPECT_EQ(tables->front().dim, 4);
}

TEST(ReadEmbeddingTables, RanksMayBeGiven) {
  const auto csv =
      read_embedding_tables(written("ranks.csv", "rows,dim,pooling,rank\n10,4,1,0\n20,4,2,-1\n"));
  const auto json = read_embedding_tables(
      written("ranks.json", R"([{"rows": 10, "dim": 4, "pooling": 1, "rank": 0},
                               {"rows": 20, "dim": 4, "pooling": 2, "rank": -1}])"));
  ASSERT_TRUE(csv) << to_string(csv.error());
  ASSERT_TRUE(json) << to_string(json.error());
  for (const auto& tables : {*csv, *json}) {
    EXPECT_EQ(tables[0].rank, 0);
    EXPECT_EQ(tables[1].rank, -1);
  }
  const auto bad = read_embedding_tables(written("bad.csv", "rows,dim,pooling,rank\n10,4,1,all\n"));
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().message, "expected a rank or -1, found \"all\"");
}

TEST(ReadEmbeddingTables, ErrorsSayWhere) {
  const auto error = [](const std::string& name, const std::string& text) {
    const auto file = written(name, text);
    const auto tables = read_embedding_tables(file);
    if (tables) return std::string("read");
    const std::string all = to_string(tables.error());
    return all.substr(std::min(all.size(), file.string().size()));
  };
  EXPECT_EQ(error("bad.csv", "table,rows,dim,pooling\na,10,64,1\nb,ten,64,1\n"),
            ":3:3: rows: expected a positive integer, found \"ten\"");
  EXPECT_EQ(error("bad.csv", "rows,dim,pooling\n10,64,-1\n"),
            ":2:7: pooling: expected a positive number, found \"-1\"");
  EXPECT_EQ(error("bad.csv", "rows,dim,pooling\n10,64\n"), ":2:4: expected 3 cells, found 2");
  EXPECT_EQ(error("bad.csv", "rows,dim,pooling\n10,64,1,1\n"), ":2:9: expected 3 cells, found 4");
  EXPECT_EQ(error("bad.csv", "rows,dim,pooling\n10,,1\n"),
            ":2:4: dim: expected a positive integer, found nothing");
  EXPECT_EQ(error("bad.csv", "\n"), ": expected a header, found an empty file");
  EXPECT_EQ(error("bad.csv", "rows,dim\n10,64\n"),
            ":1:1: pooling: expected this column, found none");
  EXPECT_EQ(error("bad.csv", "rows,dim,L\n"),
            ":1:10: expected a column table, rows, dim, pooling or rank, found \"L\"");
  EXPECT_EQ(error("bad.csv", "rows,dim,pooling\n"), ":1:1: expected tables, found only a header");
  EXPECT_EQ(error("bad.json", "[{\"rows\": 10,\n \"dim\": 64, \"pooling\": }]"),
            ":2:24: expected JSON, found a syntax error");
  EXPECT_EQ(error("bad.json", R"([{"rows": 10, "dim": 64, "pooling": 1}, {"rows": 0.5, "dim": 64,
                                "pooling": 1}])"),
            ": /1/rows: expected a positive integer, found 0.5");
  EXPECT_EQ(error("bad.json", R"([{"rows": 10, "dim": 64}])"),
            ": /0: expected key \"pooling\", found none");
  EXPECT_EQ(
      error("bad.json", R"([{"rows": 10, "dim": 64, "pooling": 1, "dims": 2}])"),
      ": /0/dims: expected one of the keys table, rows, dim, pooling, rank, found another one");
  EXPECT_EQ(error("bad.json", "{}"), ": expected a list of tables, found object");
  EXPECT_EQ(error("bad.txt", ""), ": expected a name that ends in .json or .csv, found \".txt\"");
  EXPECT_FALSE(read_embedding_tables(scratch("absent.csv")));
}

}  // namespace build_dlrm_test
}  // namespace perfmodel
