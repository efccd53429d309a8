// Optimizer steps: read, written anew, compared with recordings of PyTorch op by op.
#include "perfmodel/graph/rewrites/training.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>

#include "builders/emit/optimizers.hpp"
#include "builders/models/training_step.hpp"
#include "graph_comparison.hpp"
#include "perfmodel/graph/build_transformers.hpp"
#include "perfmodel/graph/read_execution_graph.hpp"
#include "rewrite/graph_copy.hpp"
#include "step/dialect.hpp"
#include "step/optimizer_reader.hpp"

namespace perfmodel {
namespace optimizer_test {

using Optimizer = TrainingOptions::Optimizer;
using Implementation = TrainingOptions::Implementation;

// Graph of one optimizer step on a matrix and a vector.
ExecutionGraph step_of(const OptimizerSettings& settings, const PyTorch& pytorch = {}) {
  GraphBuilder graph(pytorch);
  std::vector<ParameterUpdate> updates;
  for (const Shape& shape : {Shape{6, 4}, Shape{4}}) {
    updates.push_back({.parameter = graph.new_tensor(DType::kFloat32, shape),
                       .gradient = graph.new_tensor(DType::kFloat32, shape)});
  }
  graph.begin_label("Optimizer.step#" + std::string(optimizer_class(settings.optimizer)) + ".step");
  emit_optimizer(graph, settings, updates);
  graph.end_op();
  return graph.finish();
}

ExecutionGraph step_of(Optimizer optimizer, Implementation implementation,
                       const PyTorch& pytorch = {}) {
  return step_of(optimizer_settings(optimizer, implementation), pytorch);
}

std::vector<std::string> ops(const ExecutionGraph& graph) {
  std::vector<std::string> names;
  const auto labels = optimizer_steps(graph);
  for (std::int32_t label : labels) {
    for (std::int32_t child : graph.children(graph.nodes[static_cast<std::size_t>(label)])) {
      names.emplace_back(graph.name(graph.nodes[static_cast<std::size_t>(child)]));
    }
  }
  return names;
}

ExecutionGraph rewritten(const ExecutionGraph& graph, const OptimizerRewrite& rewrite) {
  auto made = rewrite_optimizer(graph, rewrite);
  if (!made) {
    ADD_FAILURE() << to_string(made.error());
    return {};
  }
  return std::move(*made);
}

// The optimizer steps of a graph alone, with the threads they run on.
ExecutionGraph steps_alone(const ExecutionGraph& graph) {
  GraphCopy copy(graph, {});
  std::set<std::int32_t> kept;
  for (std::int32_t label : optimizer_steps(graph)) {
    for (auto at = label; at >= 0; at = graph.nodes[static_cast<std::size_t>(at)].parent) {
      kept.insert(at);
    }
  }
  std::vector<bool> inside(graph.nodes.size(), false);
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const std::int32_t parent = graph.nodes[i].parent;
    inside[i] = graph.name(graph.nodes[i]).starts_with("Optimizer.step#") ||
                (parent >= 0 && inside[static_cast<std::size_t>(parent)]);
    if (inside[i] || kept.contains(static_cast<std::int32_t>(i))) {
      copy.copy(static_cast<std::int32_t>(i));
    }
  }
  return copy.finish();
}

// Reads every step of a recording and writes it again from the settings that were read.
struct Recording {
  std::string file;
  Optimizer optimizer;
  Implementation implementation;
  std::size_t parameters;
  double learning_rate, weight_decay;
};

void PrintTo(const Recording& recording, std::ostream* out) { *out << recording.file; }

class RecordedStep : public testing::TestWithParam<Recording> {};

INSTANTIATE_TEST_SUITE_P(
    Public, RecordedStep,
    testing::Values(Recording{"traces/linear_et", Optimizer::kSgd, Implementation::kForeach, 42,
                              0.01, 0},
                    Recording{"traces/resnet18_et", Optimizer::kMomentum, Implementation::kForeach,
                              62, 0.1, 1e-4},
                    Recording{"traces/resnet50_ddp_et_1.1.1", Optimizer::kMomentum,
                              Implementation::kForeach, 161, 0.01, 0},
                    Recording{"traces/dlrm_v100_rank0of8_et", Optimizer::kAdagrad,
                              Implementation::kLoop, 16, 0.005, 0},
                    Recording{"traces_cpu/bert_layer_adamw.et", Optimizer::kAdamW,
                              Implementation::kLoop, 15, 0.001, 0.01},
                    Recording{"traces_cpu/resblock_sgdm.et", Optimizer::kMomentum,
                              Implementation::kLoop, 9, 0.1, 0},
                    Recording{"traces_cpu/dlrm_dense_sgd.et", Optimizer::kSgd,
                              Implementation::kLoop, 12, 0.01, 0},
                    Recording{"traces_cpu/dlrm_sparse_sgd.et", Optimizer::kSgd,
                              Implementation::kLoop, 12, 0.01, 0}));

TEST_P(RecordedStep, IsReadAndWrittenAgainOpByOp) {
  const char* folder = std::getenv("PERFMODEL_PUBLIC_DATA");
  if (folder == nullptr) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  const Recording& recording = GetParam();
  const auto graph =
      read_execution_graph(std::filesystem::path(folder) / (recording.file + ".json.gz"));
  ASSERT_TRUE(graph) << to_string(graph.error());
  const auto labels = optimizer_steps(*graph);
  ASSERT_FALSE(labels.empty());
  const auto step = read_optimizer_step(*graph, labels[0]);
  ASSERT_TRUE(step) << to_string(step.error());
  ASSERT_EQ(step->groups.size(), 1u);
  const ReadGroup& group = step->groups[0];
  EXPECT_EQ(group.settings.optimizer, recording.optimizer);
  EXPECT_EQ(group.settings.implementation, recording.implementation);
  EXPECT_EQ(group.updates.size(), recording.parameters);
  EXPECT_NEAR(group.settings.learning_rate, recording.learning_rate, 1e-6);
  EXPECT_NEAR(group.settings.weight_decay, recording.weight_decay, 1e-9);

  // An other implementation and back forces every op to be written anew.
  const bool sparse = std::any_of(group.updates.begin(), group.updates.end(),
                                  [](const ReadUpdate& update) { return update.sparse; });
  if (sparse) {
    const auto refused = rewrite_optimizer(*graph, {.implementation = Implementation::kForeach});
    ASSERT_FALSE(refused);
    EXPECT_EQ(
        refused.error().message,
        "optimizer: expected dense gradients for anything but loops of SGD and Adagrad, found a "
        "sparse one of [1000, 16]");
    return;
  }
  const bool loop = recording.implementation == Implementation::kLoop;
  const ExecutionGraph other = rewritten(
      *graph, {.implementation = loop ? Implementation::kForeach : Implementation::kLoop});
  const ExecutionGraph back = rewritten(other, {.implementation = recording.implementation});
  ComparisonOptions options;
  options.scalars = !loop || graph->schema != "1.0.1";  // recorded with six decimals
  const auto comparison = compare_graphs(steps_alone(*graph), steps_alone(back), options);
  EXPECT_TRUE(comparison.same()) << comparison;
}

// Loop and foreach of one optimizer, both recorded by PyTorch 1.13 (optimizer_steps/record.py).
class RecordedPair : public testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Torch113, RecordedPair,
                         testing::Values("sgd", "sgdwd", "momentum", "adagrad", "adam", "adamwd",
                                         "adamw"));

ExecutionGraph recorded(const std::string& name) {
  const std::filesystem::path folder = std::filesystem::path(PERFMODEL_SOURCE_DIR);
  auto graph = read_execution_graph(folder / "tests/graph/optimizer_steps" / (name + ".json.gz"));
  if (!graph) {
    ADD_FAILURE() << to_string(graph.error());
    return {};
  }
  return std::move(*graph);
}

TEST_P(RecordedPair, OneBecomesTheOther) {
  const std::string name = GetParam();
  const ExecutionGraph loop = recorded(name + "_loop"), lists = recorded(name + "_foreach");
  ComparisonOptions options;
  options.scalars = false;  // recorded with six decimals
  const auto to_lists = compare_graphs(
      steps_alone(lists),
      steps_alone(rewritten(loop, {.implementation = Implementation::kForeach})), options);
  EXPECT_TRUE(to_lists.same()) << to_lists;
  const auto to_loop = compare_graphs(
      steps_alone(loop), steps_alone(rewritten(lists, {.implementation = Implementation::kLoop})),
      options);
  EXPECT_TRUE(to_loop.same()) << to_loop;
}

constexpr Optimizer kOptimizers[] = {Optimizer::kSgd, Optimizer::kMomentum, Optimizer::kAdagrad,
                                     Optimizer::kAdam, Optimizer::kAdamW};
constexpr Implementation kImplementations[] = {Implementation::kLoop, Implementation::kForeach,
                                               Implementation::kFused, Implementation::kEightBit};

TEST(Optimizer, EveryStepIsReadAsWhatItWasWrittenFrom) {
  for (const int minor : {0, 4}) {
    const PyTorch pytorch = minor == 0 ? PyTorch{.major = 1, .minor = 13} : PyTorch{};
    for (const Optimizer optimizer : kOptimizers) {
      for (const Implementation implementation : kImplementations) {
        if (!check_optimizer(optimizer, implementation, pytorch)) continue;
        OptimizerSettings settings = optimizer_settings(optimizer, implementation);
        settings.learning_rate = 0.025;
        const ExecutionGraph graph = step_of(settings, pytorch);
        const auto step = read_optimizer_step(graph, optimizer_steps(graph)[0]);
        ASSERT_TRUE(step) << to_string(step.error());
        ASSERT_EQ(step->groups.size(), 1u);
        OptimizerSettings read = step->groups[0].settings;
        if (optimizer == Optimizer::kAdagrad && pytorch.before(2, 0) &&
            implementation == Implementation::kForeach) {
          read.learning_rate = 0.025;  // no argument has it
        }
        EXPECT_EQ(read, settings) << optimizer_class(optimizer);
        EXPECT_EQ(step->groups[0].updates.size(), 2u);
      }
    }
  }
}

TEST(OptimizerRewrite, BetweenAnyTwoIsWhatABuilderWrites) {
  for (const Optimizer from : kOptimizers) {
    for (const Implementation old : kImplementations) {
      if (!check_optimizer(from, old, {})) continue;
      for (const Optimizer to : kOptimizers) {
        for (const Implementation next : kImplementations) {
          if (!check_optimizer(to, next, {})) continue;
          const ExecutionGraph graph =
              rewritten(step_of(from, old), {.optimizer = to, .implementation = next});
          const auto comparison = compare_graphs(step_of(to, next), graph);
          EXPECT_TRUE(comparison.same())
              << optimizer_class(from) << " to " << optimizer_class(to) << "\n"
              << comparison;
        }
      }
    }
  }
}

std::set<std::int64_t> tensor_ids(const ExecutionGraph& graph, DType dtype, bool scalars) {
  std::set<std::int64_t> ids;
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.dtype == dtype && (tensor.rank == 0) == scalars) ids.insert(tensor.id);
  }
  return ids;
}

TEST(OptimizerRewrite, KeepsParametersGradientsAndState) {
  const ExecutionGraph lists = step_of(Optimizer::kAdam, Implementation::kForeach);
  const ExecutionGraph fused = rewritten(lists, {.implementation = Implementation::kFused});
  // Two parameters with gradient and two means; roots are gone.
  std::set<std::int64_t> of_fused;
  for (const Node& node : fused.nodes) {
    if (fused.name(node) != "aten::_fused_adam_") continue;
    for_each_tensor(fused, fused.inputs(node), [&](const Tensor& tensor) {
      if (tensor.rank > 0) of_fused.insert(tensor.id);
    });
  }
  EXPECT_EQ(of_fused.size(), 8u);
  const auto before = tensor_ids(lists, DType::kFloat32, false);
  for (std::int64_t id : of_fused) EXPECT_TRUE(before.contains(id)) << id;
}

TEST(OptimizerRewrite, OfTheSameStepChangesNothing) {
  const ExecutionGraph graph = step_of(Optimizer::kAdamW, Implementation::kForeach);
  const ExecutionGraph same = rewritten(
      graph, {.optimizer = Optimizer::kAdamW, .implementation = Implementation::kForeach});
  EXPECT_EQ(same.tensors.size(), graph.tensors.size());
  EXPECT_EQ(same.nodes.size(), graph.nodes.size());
  const auto comparison = compare_graphs(graph, same);
  EXPECT_TRUE(comparison.same()) << comparison;
}

TEST(Optimizer, WritesWhatPyTorch2Calls) {
  using Names = std::vector<std::string>;
  const std::string lists = "aten::_foreach_";
  EXPECT_EQ(ops(step_of(Optimizer::kSgd, Implementation::kForeach)), Names{lists + "add_"});
  EXPECT_EQ(ops(step_of(Optimizer::kMomentum, Implementation::kFused)), Names{"aten::_fused_sgd_"});
  EXPECT_EQ(ops(step_of(Optimizer::kAdamW, Implementation::kFused)),
            (Names{lists + "add_", "aten::_fused_adamw_"}));
  EXPECT_EQ(ops(step_of(Optimizer::kAdam, Implementation::kForeach)),
            (Names{"aten::empty", "aten::to", "aten::lift_fresh", "aten::detach_", lists + "add_",
                   lists + "lerp_", lists + "mul_", lists + "addcmul_", "aten::item", "aten::item",
                   "aten::item", "aten::item", lists + "sqrt", lists + "div_", lists + "add_",
                   lists + "addcdiv_"}));
  const Names one = {"aten::add_", "aten::mul_", "aten::lerp_", "aten::mul_", "aten::addcmul_",
                     "aten::item", "aten::sqrt", "aten::div",   "aten::add_", "aten::addcdiv_"};
  Names two = one;
  two.insert(two.end(), one.begin(), one.end());
  EXPECT_EQ(ops(step_of(Optimizer::kAdamW, Implementation::kLoop)), two);
}

// A matrix decays, a vector does not. PyTorch 1.7 asks the GPU once per gradient whether to scale
// it, 1.13 scales each.
TEST(Optimizer, BertAdamClipsEachGradient) {
  using Names = std::vector<std::string>;
  const auto names = [](int minor) {
    const PyTorch pytorch{.major = 1, .minor = minor};
    return ops(step_of(Optimizer::kBertAdam, Implementation::kLoop, pytorch));
  };
  Names waits = {"aten::linalg_vector_norm",
                 "aten::stack",
                 "aten::linalg_vector_norm",
                 "aten::add",
                 "aten::reciprocal",
                 "aten::mul",
                 "aten::lt",
                 "aten::item"};
  Names scales = {waits.begin(), waits.begin() + 6};
  scales.insert(scales.end(), {"aten::clamp", "aten::mul_"});
  const Names means = {"aten::mul_", "aten::add_", "aten::mul_", "aten::addcmul_",
                       "aten::sqrt", "aten::add",  "aten::div"};
  const Names decay = {"aten::mul", "aten::add_"},
              update = {"aten::mul", "aten::neg", "aten::add_"};
  for (const auto& [minor, clip] : {std::pair{7, waits}, std::pair{13, scales}}) {
    Names wanted;
    for (const Names& part : {clip, means, decay, update, clip, means, update}) {
      wanted.insert(wanted.end(), part.begin(), part.end());
    }
    EXPECT_EQ(names(minor), wanted) << minor;
  }
  BertConfig config = bert_preset("bert-base").value();
  config.training.optimizer = Optimizer::kBertAdam;
  config.training.implementation = Implementation::kForeach;
  const auto foreach = build_bert(config);
  ASSERT_FALSE(foreach);
  EXPECT_EQ(foreach.error().message, "BertAdam: expected a loop, its library has nothing else");
}

TEST(Optimizer, DefaultsFollowVersionAndDevice) {
  const PyTorch old{.major = 1, .minor = 13}, now;
  PyTorch cpu;
  cpu.device = GraphBuilder::cpu();
  EXPECT_EQ(resolved(Implementation::kDefault, old), Implementation::kLoop);
  EXPECT_EQ(resolved(Implementation::kDefault, now), Implementation::kForeach);
  EXPECT_EQ(resolved(Implementation::kDefault, cpu), Implementation::kLoop);
  EXPECT_EQ(resolved(Implementation::kFused, cpu), Implementation::kFused);
}

// Steps of fused Adam count on the GPU, others on the CPU, where reading them waits for nothing.
TEST(Optimizer, CountersLieWherePyTorchPutsThem) {
  const auto count_device = [](Implementation implementation) {
    const ExecutionGraph graph = step_of(Optimizer::kAdam, implementation);
    const auto step = read_optimizer_step(graph, optimizer_steps(graph)[0]);
    const auto index = static_cast<std::size_t>(step->groups[0].updates[0].step);
    return graph.tensors[index].device.kind;
  };
  EXPECT_EQ(count_device(Implementation::kLoop), Device::Kind::kCpu);
  EXPECT_EQ(count_device(Implementation::kForeach), Device::Kind::kCpu);
  EXPECT_EQ(count_device(Implementation::kFused), Device::Kind::kGpu);
}

// Two bytes per number and two scales for 256; the four numbers keep fp32.
TEST(Optimizer, EightBitStateIsAByteAndAShareOfAScale) {
  GraphBuilder graph;
  std::vector<ParameterUpdate> updates;
  for (const Shape& shape : {Shape{100, 50}, Shape{4}}) {
    updates.push_back({.parameter = graph.new_tensor(DType::kFloat32, shape),
                       .gradient = graph.new_tensor(DType::kFloat32, shape)});
  }
  graph.begin_label("Optimizer.step#Adam.step");
  emit_optimizer(graph, optimizer_settings(Optimizer::kAdam, Implementation::kEightBit), updates);
  graph.end_op();
  const ExecutionGraph made = graph.finish();
  EXPECT_EQ(ops(made), (std::vector<std::string>{"bitsandbytes::optimizer_update_8bit_blockwise",
                                                 "bitsandbytes::optimizer_update_32bit"}));
  const auto step = read_optimizer_step(made, optimizer_steps(made)[0]);
  ASSERT_TRUE(step) << to_string(step.error());
  const auto bytes = [&](std::int64_t index) {
    return index < 0 ? 0 : made.tensors[static_cast<std::size_t>(index)].bytes();
  };
  const ReadUpdate &large = step->groups[0].updates[0], &small = step->groups[0].updates[1];
  EXPECT_EQ(bytes(large.first) + bytes(large.second), 2 * 5000);
  EXPECT_EQ(bytes(large.first_scale) + bytes(large.second_scale), 2 * 20 * 4);
  EXPECT_EQ(bytes(small.first) + bytes(small.second), 2 * 4 * 4);
  EXPECT_EQ(bytes(small.first_scale), 0);
}

std::string refusal(const ExecutionGraph& graph, const OptimizerRewrite& rewrite) {
  const auto made = rewrite_optimizer(graph, rewrite);
  return made ? "" : made.error().message;
}

TEST(OptimizerRewrite, SaysWhyNot) {
  PyTorch cpu;
  cpu.device = GraphBuilder::cpu();
  const OptimizerRewrite fused{.implementation = Implementation::kFused};
  EXPECT_EQ(refusal(step_of(Optimizer::kAdam, Implementation::kLoop, cpu), fused),
            "fused Adam: expected parameters on a GPU, found a CPU");
  EXPECT_EQ(refusal(step_of(Optimizer::kAdagrad, Implementation::kLoop), fused),
            "fused Adagrad: expected loop or foreach, PyTorch has no fused step for GPUs");
  const OptimizerRewrite eight_bit{.implementation = Implementation::kEightBit};
  EXPECT_EQ(refusal(step_of(Optimizer::kAdam, Implementation::kLoop, cpu), eight_bit),
            "8-bit Adam: expected parameters on a GPU, found a CPU");
  EXPECT_EQ(refusal(step_of(Optimizer::kMomentum, Implementation::kLoop), eight_bit),
            "8-bit state: expected Adam or AdamW, found SGD");
  const PyTorch old{.major = 1, .minor = 13};
  EXPECT_EQ(refusal(step_of(Optimizer::kAdamW, Implementation::kLoop, old), fused),
            "fused AdamW: expected PyTorch 2.0 or later, found 1.13");
  EXPECT_EQ(refusal(GraphBuilder().finish(), fused),
            "optimizer: expected a node Optimizer.step#..., found none in the graph");
  GraphBuilder empty;
  empty.begin_label("Optimizer.step#SGD.step");
  empty.end_op();
  EXPECT_EQ(refusal(empty.finish(), fused),
            "Optimizer.step#SGD.step: expected ops that update parameters, found none");
  GraphBuilder odd;
  odd.begin_label("Optimizer.step#Lion.step");
  odd.leaf_op("aten::relu", {odd.new_tensor(DType::kFloat32, {4})},
              {odd.new_tensor(DType::kFloat32, {4})});
  odd.end_op();
  EXPECT_EQ(refusal(odd.finish(), fused),
            "Optimizer.step#Lion.step: expected ops of SGD, Adagrad, Adam, AdamW or "
            "SparseAdam, found aten::relu (node 6)");
}

}  // namespace optimizer_test
}  // namespace perfmodel
