// Many embedding bags as one FBGEMM lookup: the builders write both.
#include "perfmodel/graph/rewrites/fusion.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>

#include "../scratch.hpp"
#include "builders/emit/activation.hpp"
#include "builders/emit/concat.hpp"
#include "builders/emit/embedding.hpp"
#include "builders/emit/index.hpp"
#include "builders/emit/loss.hpp"
#include "builders/emit/matmul.hpp"
#include "builders/emit/pointwise.hpp"
#include "builders/emit/reduction.hpp"
#include "builders/emit/views.hpp"
#include "builders/models/training_step.hpp"
#include "graph_comparison.hpp"
#include "perfmodel/graph/build_model.hpp"
#include "perfmodel/graph/build_recommenders.hpp"
#include "perfmodel/graph/read_execution_graph.hpp"
#include "perfmodel/graph/rewrites/retarget.hpp"
#include "perfmodel/graph/rewrites/training.hpp"
#include "perfmodel/graph/write_execution_graph.hpp"
#include "vision_layers.hpp"

namespace perfmodel {
namespace rewrite_table_fusion_test {

using testing::StartsWith;
using Optimizer = TableFusionRewrite::Optimizer;

ExecutionGraph value(Result<ExecutionGraph> graph) {
  if (!graph) {
    ADD_FAILURE() << to_string(graph.error());
    return {};
  }
  return std::move(*graph);
}

ExecutionGraph fused(const ExecutionGraph& graph, const TableFusionRewrite& rewrite = {}) {
  return value(rewrite_table_fusion(graph, rewrite));
}

std::string refusal(const ExecutionGraph& graph) {
  const auto made = rewrite_table_fusion(graph);
  return made ? "" : made.error().message;
}

DlrmConfig dlrm(const char* preset, bool batched) {
  DlrmConfig config = *dlrm_preset(preset);
  config.table_batched = batched;
  return config;
}

std::size_t count(const ExecutionGraph& graph, std::string_view name) {
  std::size_t found = 0;
  for (const Node& node : graph.nodes) found += graph.name(node) == name;
  return found;
}

// Every preset, dot products and vectors side by side, both kinds of copies: no op differs.
TEST(TableFusion, IsTheBatchedModelOpByOp) {
  for (const char* preset : {"default", "mlperf", "ddp"}) {
    for (const bool dot : {true, false}) {
      for (const bool pinned : {true, false}) {
        DlrmConfig config = dlrm(preset, false);
        config.interaction_dot = dot;
        config.training.pinned_input = pinned;
        const ExecutionGraph made = fused(value(build_dlrm(config)));
        config.table_batched = true;
        const auto comparison = compare_graphs(value(build_dlrm(config)), made);
        EXPECT_TRUE(comparison.same()) << preset << "\n" << comparison;
      }
    }
  }
}

// Tables of unlike widths.
TEST(TableFusion, KeepsEveryWidth) {
  DlrmConfig config = dlrm("ddp", false);
  config.interaction_dot = false;
  for (std::size_t i = 0; i < config.tables.size(); ++i) {
    config.tables[i].dim = 4 * static_cast<std::int64_t>(i + 1);
    config.tables[i].num_rows = 1000 + static_cast<std::int64_t>(i);
    config.tables[i].pooling_factor = 1.5 * static_cast<double>(i + 1);
  }
  const ExecutionGraph made = fused(value(build_dlrm(config)));
  config.table_batched = true;
  const auto comparison = compare_graphs(value(build_dlrm(config)), made);
  EXPECT_TRUE(comparison.same()) << comparison;
}

// The MLPs keep their optimizer; Adagrad for them is another rewrite.
TEST(TableFusion, MayTrainTablesByRowwiseAdagrad) {
  const ExecutionGraph made =
      fused(value(build_dlrm(dlrm("ddp", false))), {.optimizer = Optimizer::kRowwiseAdagrad});
  OptimizerRewrite adagrad;
  adagrad.optimizer = TrainingOptions::Optimizer::kAdagrad;
  const ExecutionGraph both = value(rewrite_optimizer(made, adagrad));
  DlrmConfig config = dlrm("ddp", true);
  config.optimizer = DlrmConfig::Optimizer::kRowwiseAdagrad;
  const auto comparison = compare_graphs(value(build_dlrm(config)), both);
  EXPECT_TRUE(comparison.same()) << comparison;
}

TEST(TableFusion, ReadsAsItWasWritten) {
  const auto file = test_support::scratch() / "table_fusion_test.json.gz";
  const ExecutionGraph made = fused(value(build_dlrm(dlrm("ddp", false))));
  ASSERT_TRUE(write_execution_graph(made, file));
  const auto comparison = compare_graphs(made, value(read_execution_graph(file)));
  EXPECT_TRUE(comparison.same()) << comparison;
  std::filesystem::remove(file);
}

Argument copied(ExecutionGraph& graph, const Argument& argument);

std::uint32_t copied(ExecutionGraph& graph, std::uint32_t begin, std::uint32_t count) {
  std::vector<Argument> made;
  for (std::uint32_t i = begin; i < begin + count; ++i) {
    made.push_back(copied(graph, Argument(graph.arguments[i])));
  }
  graph.arguments.insert(graph.arguments.end(), made.begin(), made.end());
  return static_cast<std::uint32_t>(graph.arguments.size()) - count;
}

Argument copied(ExecutionGraph& graph, const Argument& argument) {
  Argument made = argument;
  if (made.kind == Argument::Kind::kList) made.index = copied(graph, made.index, made.count);
  return made;
}

// The same step once more, with the ids of the same tensors, as a recording may have them;
// autograd's numbers go on.
ExecutionGraph twice(ExecutionGraph graph) {
  const std::vector<Node> once = graph.nodes;
  std::int64_t last_sequence = -1;
  for (const Node& node : once) last_sequence = std::max(last_sequence, node.seq_id);
  const std::int64_t shift = once.back().id;
  for (const Node& node : once) {
    if (node.is_structural) continue;
    Node& made = graph.nodes.emplace_back(node);
    made.id += shift;
    made.rf_id += shift;
    const bool top = once[static_cast<std::size_t>(node.parent)].is_structural;
    if (!top) made.parent_id += shift;
    if (made.seq_id >= 0) made.seq_id += last_sequence + 1;
    if (graph.name(node) == "ProfilerStep#0") made.name = graph.names.intern("ProfilerStep#1");
    made.inputs_begin = copied(graph, node.inputs_begin, node.inputs_count);
    made.outputs_begin = copied(graph, node.outputs_begin, node.outputs_count);
  }
  graph.built = false;  // ids of built graphs are versions
  index_graph(graph);
  return graph;
}

TEST(TableFusion, OfEveryStep) {
  const ExecutionGraph bags = twice(value(build_dlrm(dlrm("ddp", false))));
  ASSERT_EQ(iterations(bags).size(), 2u);
  const auto comparison = compare_graphs(twice(value(build_dlrm(dlrm("ddp", true)))), fused(bags));
  EXPECT_TRUE(comparison.same()) << comparison;
}

TEST(TableFusion, NeedsTwoBags) {
  constexpr const char* kNone =
      "table fusion: expected at least two aten::embedding_bag in a step, found 0";
  EXPECT_EQ(refusal(value(build_mlp(*mlp_preset("mnist")))), kNone);
  EXPECT_EQ(refusal(value(build_dlrm(dlrm("default", true)))), kNone);
  EXPECT_EQ(refusal(fused(value(build_dlrm(dlrm("default", false))))), kNone);
  DlrmConfig one = dlrm("default", false);
  one.tables.resize(1);
  EXPECT_EQ(refusal(value(build_dlrm(one))),
            "table fusion: expected at least two aten::embedding_bag in a step, found 1");
}

// Three bags of a forward pass and the ops after them, by hand.
struct HandMade {
  PyTorch pytorch = {};
  TrainingOptions::Phase phase = TrainingOptions::Phase::kTraining;
  TrainingOptions::Optimizer optimizer = TrainingOptions::Optimizer::kSgd;
  TrainingOptions::ZeroGrad zero_grad = TrainingOptions::ZeroGrad::kDefault;
  std::int64_t last_batch = 8;
  bool resident = false;
  int cat_axis = 1;
  using Compute = std::function<TensorRef(TrainingStep&, TensorRef)>;
  Compute make_indices = [](TrainingStep&, TensorRef indices) { return indices; };
  Compute make_offsets = [](TrainingStep&, TensorRef offsets) { return offsets; };
  /// Takes weights and vectors, after the bags.
  std::function<void(TrainingStep&, const std::vector<TensorRef>&, const std::vector<TensorRef>&)>
      look = [](auto&...) {};
  /// In place of the cat.
  std::function<TensorRef(TrainingStep&, const std::vector<TensorRef>&)> join = nullptr;
  bool batched = false;
};

ExecutionGraph make(const HandMade& what) {
  TrainingOptions options;
  options.pytorch = what.pytorch;
  options.phase = what.phase;
  options.optimizer = what.optimizer;
  options.zero_grad = what.zero_grad;
  options.resident_input = what.resident;
  TrainingStep step(options);
  AutogradTape& tape = step.tape();
  std::vector<TensorRef> weights;
  for (std::int64_t rows : {100, 200, 300}) {
    if (!what.batched) weights.push_back(step.parameter({rows, 4}));
  }
  const LinearLayer top = make_linear_layer(step, 12, 1);
  return step.run([&] {
    std::vector<TensorRef> vectors;
    if (what.batched) {
      TableBatch tables;
      tables.rows = {100, 200, 300};
      tables.dims = {4, 4, 4};
      tables.learning_rate = 0.01;
      const TensorRef indices = step.input(DType::kInt64, {96});
      vectors.push_back(
          table_batched_lookup(tape, tables, 8, indices, step.input(DType::kInt64, {3 * 8 + 1})));
    }
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const std::int64_t batch = i + 1 == weights.size() ? what.last_batch : 8;
      const TensorRef indices = what.make_indices(step, step.input(DType::kInt64, {32}));
      const TensorRef offsets = what.make_offsets(step, step.input(DType::kInt64, {batch}));
      vectors.push_back(embedding_bag(tape, weights[i], indices, offsets));
    }
    what.look(step, weights, vectors);
    const TensorRef joined =
        what.join ? what.join(step, vectors) : cat(tape, vectors, what.cat_axis);
    return binary_cross_entropy(tape, sigmoid(tape, apply(step, top, joined)),
                                step.input(DType::kFloat32, {8, 1}));
  });
}

// Here, copies per table are between the bags. The old PyTorch is recognized by its schema.
TEST(TableFusion, FusesWhateverStandsAroundTheBags) {
  using Phase = TrainingOptions::Phase;
  using Step = TrainingOptions::Optimizer;
  constexpr PyTorch kOld{.major = 1, .minor = 13}, kNew{};
  for (const PyTorch& pytorch : {kOld, kNew}) {
    for (const bool resident : {true, false}) {
      for (const auto phase : {Phase::kTraining, Phase::kForward}) {
        for (const auto optimizer : {Step::kSgd, Step::kNoOptimizer}) {
          HandMade what{.pytorch = pytorch, .phase = phase, .optimizer = optimizer};
          what.zero_grad = TrainingOptions::ZeroGrad::kToNone;
          what.resident = resident;
          ExecutionGraph before = make(what);
          if (pytorch.before(2, 0)) {
            before.built = false;
            before.schema = "1.0.1";
          }
          what.batched = true;
          const auto comparison = compare_graphs(make(what), fused(before));
          EXPECT_TRUE(comparison.same()) << comparison;
        }
      }
    }
  }
}

// Indices that the step computes are joined on the GPU, offsets that it gets are not.
TEST(TableFusion, JoinsWhatTheStepComputes) {
  HandMade what;
  what.make_indices = [](TrainingStep& step, TensorRef indices) {
    return binary(step.graph(), "aten::add.Scalar", indices, Number(1), step.tape().sequence());
  };
  const ExecutionGraph before = make(what), made = fused(before);
  EXPECT_EQ(count(made, "aten::cat"), count(before, "aten::cat") + 1);
  // Three copies of indices stay, three of offsets become one.
  EXPECT_EQ(count(made, "aten::copy_"), count(before, "aten::copy_") - 2);
  for (const Node& node : made.nodes) {
    if (made.name(node) != "fbgemm::split_embedding_codegen_lookup_sgd_function") continue;
    EXPECT_EQ(made.tensors[made.inputs(node)[11].index].numel, 96);
    EXPECT_EQ(made.tensors[made.inputs(node)[12].index].numel, 25);
  }
}

// So are indices that something else reads too.
TEST(TableFusion, JoinsWhatOthersRead) {
  HandMade what;
  what.make_indices = [](TrainingStep& step, TensorRef indices) {
    binary(step.graph(), "aten::eq.Scalar", indices, Number(0), step.tape().sequence());
    return indices;
  };
  const ExecutionGraph before = make(what), made = fused(before);
  EXPECT_EQ(count(made, "aten::eq"), 3u);
  EXPECT_EQ(count(made, "aten::cat"), count(before, "aten::cat") + 1);
  EXPECT_EQ(count(made, "aten::copy_"), count(before, "aten::copy_") - 2);
}

// Offsets of all tables: stacked, those in front added, the end joined on.
TEST(TableFusion, ShiftsOffsetsThatTheStepComputes) {
  HandMade what;
  what.make_offsets = [](TrainingStep& step, TensorRef offsets) {
    return binary(step.graph(), "aten::add.Scalar", offsets, Number(0), step.tape().sequence());
  };
  const ExecutionGraph before = make(what), made = fused(before);
  EXPECT_EQ(count(made, "aten::stack"), 1u);
  EXPECT_EQ(count(made, "aten::copy_"), count(before, "aten::copy_") - 2);
  for (const Node& node : made.nodes) {
    if (made.name(node) != "fbgemm::split_embedding_codegen_lookup_sgd_function") continue;
    EXPECT_EQ(made.tensors[made.inputs(node)[12].index].numel, 3 * 8 + 1);
  }
}

TEST(TableFusion, NeedsVectorsSideBySide) {
  HandMade what;
  what.join = [](TrainingStep& step, const std::vector<TensorRef>& v) {
    const TensorRef first = relu(step.tape(), v[0]);
    return cat(step.tape(), {first, v[1], v[2]}, 1);
  };
  constexpr const char* kSideBySide =
      "table fusion: expected vectors that go side by side into one aten::cat, found ";
  EXPECT_THAT(refusal(make(what)), StartsWith(std::string(kSideBySide) + "aten::relu (node "));
  what.join = [](TrainingStep& step, const std::vector<TensorRef>& v) {
    return cat(step.tape(), {v[0], v[2], v[1]}, 1);
  };
  EXPECT_THAT(refusal(make(what)), StartsWith(std::string(kSideBySide) + "aten::cat (node "));
  what.join = [](TrainingStep& step, const std::vector<TensorRef>& v) {
    return view(step.tape(), cat(step.tape(), v, 0), {8, -1});
  };
  EXPECT_THAT(refusal(make(what)), StartsWith(std::string(kSideBySide) + "aten::cat (node "));
  what.join = [](TrainingStep& step, const std::vector<TensorRef>& v) {
    const TensorRef joined = cat(step.tape(), v, 1);
    unary(step.graph(), "aten::neg", v[1], step.tape().sequence());
    return joined;
  };
  constexpr const char* kNothingElse =
      "table fusion: expected tables, vectors and gradients that nothing else reads, found ";
  EXPECT_THAT(refusal(make(what)), StartsWith(std::string(kNothingElse) + "aten::neg (node "));
  what.join = nullptr;
  what.look = [](TrainingStep& step, const std::vector<TensorRef>& weights, const auto&) {
    unary(step.graph(), "aten::neg", weights[0], step.tape().sequence());
  };
  EXPECT_THAT(refusal(make(what)), StartsWith(std::string(kNothingElse) + "aten::neg (node "));
}

TEST(TableFusion, NeedsOneBatchOnAGpu) {
  HandMade what;
  what.phase = TrainingOptions::Phase::kForward;
  what.last_batch = 9;
  what.join = [](TrainingStep& step, const std::vector<TensorRef>&) {
    return step.graph().new_tensor(DType::kFloat32, {8, 12});
  };
  EXPECT_EQ(refusal(make(what)), "table fusion: expected one batch, found 8 and 9");
  HandMade on_cpu;
  on_cpu.pytorch.device = GraphBuilder::cpu();
  EXPECT_EQ(refusal(make(on_cpu)), "table fusion: expected tables on a GPU, found one on a CPU");
}

// A graph with another argument or tensor of its last bag.
std::string refusal_with(const std::function<void(ExecutionGraph&, Argument* inputs)>& change) {
  ExecutionGraph graph = make({});
  const Node* last = nullptr;
  for (const Node& node : graph.nodes) {
    if (graph.name(node) == "aten::embedding_bag") last = &node;
  }
  change(graph, graph.arguments.data() + last->inputs_begin);
  std::string message = refusal(graph);
  const std::string node = " (node " + std::to_string(last->id) + ")";
  if (message.ends_with(node)) message.resize(message.size() - node.size());
  return message;
}

TEST(TableFusion, NeedsPlainBags) {
  const auto with = [](std::size_t input, Argument argument) {
    return refusal_with([=](ExecutionGraph&, Argument* inputs) { inputs[input] = argument; });
  };
  using Kind = Argument::Kind;
  const Argument yes{.kind = Kind::kBool, .integer = 1}, no{.kind = Kind::kBool};
  EXPECT_EQ(with(4, {.kind = Kind::kInt, .integer = 1}),
            "table fusion: expected bags that sum, found mode mean");
  EXPECT_EQ(with(4, {.kind = Kind::kInt, .integer = 2}),
            "table fusion: expected bags that sum, found mode max");
  EXPECT_EQ(with(5, no), "table fusion: expected sparse gradients, found dense ones");
  EXPECT_EQ(with(7, yes), "table fusion: expected one offset per bag, found the last one too");
  EXPECT_EQ(with(3, yes), "table fusion: expected plain gradients, found some scaled by frequency");
  EXPECT_EQ(with(8, {.kind = Kind::kInt, .integer = 5}),
            "table fusion: expected bags without padding, found index 5");
  EXPECT_THAT(with(0, no), StartsWith("table fusion: expected an embedding_bag of weights, "
                                      "indices and offsets, found node "));
  EXPECT_EQ(refusal_with([](ExecutionGraph&, Argument* inputs) { inputs[6] = inputs[0]; }),
            "table fusion: expected bags without weights per sample, found them");
}

TEST(TableFusion, NeedsTablesThatOneLookupTakes) {
  const auto with = [](std::size_t input, const std::function<void(Tensor&)>& change) {
    return refusal_with([&](ExecutionGraph& graph, Argument* inputs) {
      change(graph.tensors[inputs[input].index]);
    });
  };
  EXPECT_EQ(with(0, [](Tensor& t) { t.dtype = DType::kFloat16; }),
            "table fusion: expected tables of float32, found float16");
  EXPECT_EQ(with(0, [](Tensor& t) { t.device.index = 1; }),
            "table fusion: expected tables on one GPU, found several");
  EXPECT_EQ(with(1, [](Tensor& t) { t.dtype = DType::kInt32; }),
            "table fusion: expected indices of one type, found int64 and int32");
  const ExecutionGraph graph = make({});
  std::int64_t first = 0;
  for (const Node& node : graph.nodes) {
    if (graph.name(node) != "aten::embedding_bag" || first != 0) continue;
    first = graph.tensors[graph.inputs(node)[0].index].id;
  }
  EXPECT_EQ(with(0, [first](Tensor& t) { t.id = first; }),
            "table fusion: expected one bag per table, found two of one");
}

// The step's own ops, changed.
std::string refusal_of_step(const std::function<void(ExecutionGraph&, Node& update)>& change) {
  ExecutionGraph graph = make({});
  for (Node& node : graph.nodes) {
    const bool in_step =
        node.parent >= 0 && graph.name(graph.nodes[static_cast<std::size_t>(node.parent)])
                                .starts_with("Optimizer.step#");
    if (!in_step || graph.name(node) != "aten::add_") continue;
    change(graph, node);
    break;
  }
  return refusal(graph);
}

TEST(TableFusion, NeedsAStepThatTrainsAllTables) {
  EXPECT_EQ(refusal_of_step([](ExecutionGraph& graph, Node& update) {
              graph.arguments[update.inputs_begin + 2].real = -0.5;
            }),
            "table fusion: expected one learning rate of all tables, found 0.01 and 0.5");
  EXPECT_EQ(refusal_of_step([](ExecutionGraph& graph, Node& update) {
              graph.tensors[graph.inputs(update)[0].index].id = 1'000'000;
            }),
            "table fusion: expected an optimizer step that updates every table by SGD, found 1 of "
            "3 tables without");
}

// The model of traces_cpu/record_et.py built for a GPU with one lookup.
ExecutionGraph recorded_dlrm_batched() {
  DlrmConfig config;
  config.bottom_mlp = {13, 64, 16};
  config.top_mlp = {64, 1};
  for (std::int64_t rows : {1000, 2000, 500, 4000}) {
    config.tables.push_back({.num_rows = rows, .dim = 16, .pooling_factor = 8});
  }
  config.batch = 64;
  config.training.pytorch.major = 1;
  config.training.pytorch.minor = 13;
  config.training.regions = TrainingOptions::Regions::kLossInForward;
  config.training.resident_input = true;
  config.training.step_label = "";
  return value(build_dlrm(config));
}

// A recording, with gradients that are kept from step to step: retargeted to a GPU and fused.
TEST(TableFusion, OfARecordingIsTheBatchedModel) {
  const char* root = std::getenv("PERFMODEL_PUBLIC_DATA");
  if (!root || !*root) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  const ExecutionGraph recorded = value(read_execution_graph(
      std::filesystem::path(root) / "traces_cpu" / "dlrm_sparse_sgd.et.json.gz"));
  const ExecutionGraph on_gpu =
      value(retarget(recorded, {.inputs = RetargetOptions::Inputs::kOnDevice}));
  const auto comparison = compare_graphs(recorded_dlrm_batched(), fused(on_gpu));
  EXPECT_GT(comparison.equal, 300u);
  EXPECT_TRUE(comparison.same()) << comparison;
}

}  // namespace rewrite_table_fusion_test
}  // namespace perfmodel
