// Runs of pointwise ops as one kernel each.
#include "perfmodel/graph/rewrites/fusion.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string>

#include "../scratch.hpp"
#include "builders/emit/activation.hpp"
#include "builders/emit/factory.hpp"
#include "builders/emit/graph_views.hpp"
#include "builders/emit/in_place.hpp"
#include "builders/emit/loss.hpp"
#include "builders/emit/memory.hpp"
#include "builders/emit/pointwise.hpp"
#include "builders/emit/reduction.hpp"
#include "builders/emit/views.hpp"
#include "builders/models/training_step.hpp"
#include "graph_comparison.hpp"
#include "perfmodel/graph/build_model.hpp"
#include "perfmodel/graph/build_recommenders.hpp"
#include "perfmodel/graph/build_transformers.hpp"
#include "perfmodel/graph/read_execution_graph.hpp"
#include "perfmodel/graph/rewrite.hpp"
#include "perfmodel/graph/rewrites/resize.hpp"
#include "perfmodel/graph/rewrites/training.hpp"
#include "perfmodel/graph/write_execution_graph.hpp"
#include "vision_layers.hpp"

namespace perfmodel {
namespace rewrite_elementwise_fusion_test {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;
using testing::UnorderedElementsAre;

constexpr std::int64_t kRows = 512, kColumns = 1024;
constexpr double kBytes = 4.0 * kRows * kColumns;  // one float32 tensor

ExecutionGraph value(Result<ExecutionGraph> graph) {
  if (!graph) {
    ADD_FAILURE() << to_string(graph.error());
    return {};
  }
  return std::move(*graph);
}

ExecutionGraph fused(const ExecutionGraph& graph) {
  return value(rewrite_elementwise_fusion(graph));
}

using Ops = std::function<void(GraphBuilder&, TensorRef x, TensorRef y)>;

// Ops of a step on two tensors that were there before.
ExecutionGraph make(const Ops& ops, Device device = {.kind = Device::Kind::kGpu, .index = 0}) {
  PyTorch pytorch;
  pytorch.device = device;
  GraphBuilder graph(pytorch);
  graph.switch_thread(GraphBuilder::kMainThread);
  graph.begin_label("ProfilerStep#0");
  const TensorRef x = graph.new_tensor(DType::kFloat32, {kRows, kColumns});
  const TensorRef y = graph.new_tensor(DType::kFloat32, {kRows, kColumns});
  ops(graph, x, y);
  graph.end_op();
  return graph.finish();
}

TensorRef mul(GraphBuilder& graph, TensorRef a, TensorRef b) {
  return binary(graph, "aten::mul.Tensor", a, b);
}
TensorRef tanh(GraphBuilder& graph, TensorRef x) { return unary(graph, "aten::tanh", x); }
void use(GraphBuilder& graph, TensorRef x) {  // by an op that is not pointwise
  sum(graph, x, {0}, false);
}

std::vector<const Node*> kernels(const ExecutionGraph& graph) {
  std::vector<const Node*> found;
  for (const Node& node : graph.nodes) {
    if (graph.names.text(node.kernel_backend) == "triton") found.push_back(&node);
  }
  return found;
}

std::map<std::string, int> kernel_names(const ExecutionGraph& graph) {
  std::map<std::string, int> counts;
  for (const Node* node : kernels(graph)) ++counts[std::string(graph.name(*node))];
  return counts;
}

std::vector<std::int64_t> ids(const ExecutionGraph& graph, std::span<const Argument> arguments) {
  std::vector<std::int64_t> found;
  for_each_tensor(graph, arguments, [&](const Tensor& tensor) { found.push_back(tensor.id); });
  return found;
}

// Bytes on the GPU among the arguments of the only kernel.
double bytes(const ExecutionGraph& graph, std::span<const Argument> arguments) {
  double sum = 0;
  for_each_tensor(graph, arguments, [&](const Tensor& tensor) {
    if (tensor.on_gpu()) sum += static_cast<double>(tensor.bytes());
  });
  return sum;
}
struct Traffic {
  double read = 0, written = 0;
};
Traffic traffic(const ExecutionGraph& graph) {
  const auto made = kernels(graph);
  EXPECT_EQ(made.size(), 1u);
  if (made.size() != 1) return {};
  return {bytes(graph, graph.inputs(*made[0])), bytes(graph, graph.outputs(*made[0]))};
}

// a = x * y; b = tanh(a); c = b + y.
TEST(ElementwiseFusion, MovesWhatComesFromOutsideOnce) {
  const ExecutionGraph after = fused(make([](GraphBuilder& graph, TensorRef x, TensorRef y) {
    add(graph, tanh(graph, mul(graph, x, y)), y);
  }));
  const auto made = kernels(after);
  ASSERT_EQ(made.size(), 1u);
  EXPECT_EQ(after.name(*made[0]), "triton_poi_fused_mul_tanh_add_0");
  const auto inputs = after.inputs(*made[0]);
  ASSERT_EQ(inputs.size(), 3u);
  EXPECT_EQ(inputs[2].integer, kRows * kColumns);
  EXPECT_EQ(made[0]->children_count, 0u);
  EXPECT_EQ(traffic(after).read, 2 * kBytes);
  EXPECT_EQ(traffic(after).written, kBytes);
  EXPECT_EQ(top_level_ops(after).size(), 1u);
}

// Saved for later, here by another op: written, but not read again.
TEST(ElementwiseFusion, WritesWhatIsReadLater) {
  const ExecutionGraph after = fused(make([](GraphBuilder& graph, TensorRef x, TensorRef y) {
    const TensorRef a = mul(graph, x, y), b = tanh(graph, a);
    use(graph, add(graph, b, y));
    use(graph, b);
  }));
  const auto made = kernels(after);
  ASSERT_EQ(made.size(), 1u);
  EXPECT_EQ(made[0]->outputs_count, 2u);
  EXPECT_EQ(traffic(after).read, 2 * kBytes);
  EXPECT_EQ(traffic(after).written, 2 * kBytes);
}

TEST(ElementwiseFusion, UpdatesInPlace) {
  const ExecutionGraph before = make([](GraphBuilder& graph, TensorRef x, TensorRef y) {
    graph.leaf_op("aten::add_.Tensor", {x, y, 1}, {x});
    graph.leaf_op("aten::tanh_", {x}, {x});
  });
  const ExecutionGraph after = fused(before);
  const auto made = kernels(after);
  ASSERT_EQ(made.size(), 1u);
  EXPECT_EQ(after.name(*made[0]), "triton_poi_fused_add_tanh_0");
  const auto inputs = ids(after, after.inputs(*made[0]));
  EXPECT_THAT(ids(after, after.outputs(*made[0])), ElementsAre(inputs[0]));
  EXPECT_EQ(traffic(after).read, 2 * kBytes);
  EXPECT_EQ(traffic(after).written, kBytes);
}

TEST(ElementwiseFusion, ReadsSmallTensorsAsTheyAre) {
  const ExecutionGraph after = fused(make([](GraphBuilder& graph, TensorRef x, TensorRef) {
    const TensorRef bias = graph.new_tensor(DType::kFloat32, {kColumns});
    tanh(graph, add(graph, x, bias));
  }));
  EXPECT_EQ(traffic(after).read, kBytes + 4.0 * kColumns);
  EXPECT_EQ(traffic(after).written, kBytes);
}

// Views are gone with what they were views of.
TEST(ElementwiseFusion, FusesAcrossViews) {
  const ExecutionGraph after = fused(make([](GraphBuilder& graph, TensorRef x, TensorRef) {
    tanh(graph, view(graph, tanh(graph, x), {kColumns, kRows}));
  }));
  EXPECT_THAT(kernel_names(after), ElementsAre(Pair("triton_poi_fused_tanh_tanh_0", 1)));
  EXPECT_EQ(traffic(after).read, kBytes);
  EXPECT_EQ(traffic(after).written, kBytes);
  EXPECT_EQ(top_level_ops(after).size(), 1u);
}

// Another op reads the first result as a view: the view stays, after the kernel.
TEST(ElementwiseFusion, KeepsViewsThatOthersRead) {
  const ExecutionGraph after = fused(make([](GraphBuilder& graph, TensorRef x, TensorRef) {
    const TensorRef made = tanh(graph, x), turned = view(graph, made, {kColumns, kRows});
    use(graph, tanh(graph, turned));
    use(graph, turned);
  }));
  EXPECT_EQ(traffic(after).written, 2 * kBytes);
  ASSERT_EQ(top_level_ops(after).size(), 4u);
  EXPECT_EQ(after.name(top_level_ops(after)[1]), "aten::view");
}

// Two pieces of one tensor are two reads, at the size of the pieces.
TEST(ElementwiseFusion, ReadsPiecesOfOneTensor) {
  const ExecutionGraph after = fused(make([](GraphBuilder& graph, TensorRef x, TensorRef) {
    const TensorRef left = narrow(graph, x, 1, 0, kColumns / 2);
    const TensorRef right = narrow(graph, x, 1, kColumns / 2, kColumns / 2);
    use(graph, mul(graph, tanh(graph, left), right));
  }));
  EXPECT_EQ(traffic(after).read, kBytes);
  EXPECT_EQ(traffic(after).written, kBytes / 2);
}

TEST(ElementwiseFusion, ComputesSmallOperandsWhereTheyAreRead) {
  const ExecutionGraph after = fused(make([](GraphBuilder& graph, TensorRef x, TensorRef) {
    const TensorRef row = tanh(graph, graph.new_tensor(DType::kFloat32, {1, kColumns}));
    const TensorRef sum = add(graph, x, row);
    mul(graph, sum, full(graph, {}, 2.0));
  }));
  EXPECT_THAT(kernel_names(after), ElementsAre(Pair("triton_poi_fused_tanh_add_full_mul_0", 1)));
  EXPECT_EQ(traffic(after).read, kBytes + 4.0 * kColumns);
  EXPECT_EQ(traffic(after).written, kBytes);
}

TEST(ElementwiseFusion, TakesCastsAlong) {
  const ExecutionGraph before = make([](GraphBuilder& graph, TensorRef x, TensorRef y) {
    to_dtype(graph, tanh(graph, mul(graph, x, y)), DType::kBFloat16);
  });
  const ExecutionGraph after = fused(before);
  EXPECT_THAT(kernel_names(after), ElementsAre(Pair("triton_poi_fused_mul_tanh__to_copy_0", 1)));
  EXPECT_EQ(traffic(after).read, 2 * kBytes);
  EXPECT_EQ(traffic(after).written, kBytes / 2);
}

TEST(ElementwiseFusion, EqualKernelsHaveOneName) {
  const ExecutionGraph after = fused(make([](GraphBuilder& graph, TensorRef x, TensorRef y) {
    const TensorRef small = graph.new_tensor(DType::kFloat32, {8});
    for (const TensorRef of : {x, y, small}) {
      tanh(graph, mul(graph, of, of));
      graph.begin_label("between");
      graph.end_op();
    }
  }));
  EXPECT_THAT(kernel_names(after), ElementsAre(Pair("triton_poi_fused_mul_tanh_0", 2),
                                               Pair("triton_poi_fused_mul_tanh_1", 1)));
}

// 0.5 x (1 + tanh(x + x^3)): the first product is not read by the next op.
TEST(ElementwiseFusion, JoinsOpsThatReadTheSame) {
  const ExecutionGraph after = fused(make([](GraphBuilder& graph, TensorRef x, TensorRef) {
    const TensorRef half = binary(graph, "aten::mul.Tensor", x, Number(0.5));
    const TensorRef cube = mul(graph, mul(graph, x, x), x);
    mul(graph, half, tanh(graph, add(graph, x, cube)));
  }));
  EXPECT_THAT(kernel_names(after),
              ElementsAre(Pair("triton_poi_fused_mul_mul_mul_add_tanh_mul_0", 1)));
  EXPECT_EQ(traffic(after).read, kBytes);
  EXPECT_EQ(traffic(after).written, kBytes);
}

// As in a file that was cut: the parents of its first ops are missing.
TEST(ElementwiseFusion, FusesOpsWithoutParent) {
  ExecutionGraph cut =
      make([](GraphBuilder& graph, TensorRef x, TensorRef y) { tanh(graph, mul(graph, x, y)); });
  for (Node& node : cut.nodes) {
    if (cut.name(node).starts_with("aten::")) node.parent_id = 1'000'000;
  }
  index_graph(cut);
  EXPECT_THAT(kernel_names(fused(cut)), ElementsAre(Pair("triton_poi_fused_mul_tanh_0", 1)));
  for (Node& node : cut.nodes) {
    if (cut.name(node) == "aten::tanh") node.thread = 2;
  }
  EXPECT_EQ(to_string(graph_difference(cut, fused(cut))), "nothing changed");
}

struct Unfusible {
  const char* name;
  Ops ops;
};
class NothingToFuse : public testing::TestWithParam<Unfusible> {};

TEST_P(NothingToFuse, LeavesTheGraphAsItIs) {
  const ExecutionGraph before = make(GetParam().ops), after = fused(before);
  EXPECT_EQ(to_string(graph_difference(before, after)), "nothing changed");
  EXPECT_TRUE(compare_graphs(before, after, {.schemas = true}).same());
  ASSERT_EQ(before.nodes.size(), after.nodes.size());
  for (std::size_t i = 0; i < before.nodes.size(); ++i) {
    EXPECT_EQ(before.nodes[i].id, after.nodes[i].id);
    EXPECT_EQ(ids(before, before.inputs(before.nodes[i])),
              ids(after, after.inputs(after.nodes[i])));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, NothingToFuse,
    testing::Values(
        Unfusible{"OneOp", [](GraphBuilder& g, TensorRef x, TensorRef) { tanh(g, x); }},
        Unfusible{"NothingShared",
                  [](GraphBuilder& g, TensorRef x, TensorRef y) {
                    tanh(g, x);
                    tanh(g, y);
                  }},
        Unfusible{"ReductionBetween",
                  [](GraphBuilder& g, TensorRef x, TensorRef y) {
                    const TensorRef a = tanh(g, x);
                    use(g, y);
                    tanh(g, a);
                  }},
        Unfusible{"OtherNumberOfElements",
                  [](GraphBuilder& g, TensorRef x, TensorRef) {
                    const TensorRef row = tanh(g, g.new_tensor(DType::kFloat32, {1, kColumns}));
                    use(g, add(g, x, row));
                    use(g, row);
                  }},
        Unfusible{"ReadsWhatIsMadeBetween",
                  [](GraphBuilder& g, TensorRef x, TensorRef) {
                    const TensorRef a = tanh(g, x), two = full(g, {}, 2.0);
                    mul(g, a, two);
                    clone(g, two);
                  }},
        Unfusible{"Labels",
                  [](GraphBuilder& g, TensorRef x, TensorRef) {
                    g.begin_label("## forward ##");
                    const TensorRef a = tanh(g, x);
                    g.end_op();
                    g.begin_label("## backward ##");
                    tanh(g, a);
                    g.end_op();
                  }},
        Unfusible{"Threads",
                  [](GraphBuilder& g, TensorRef x, TensorRef) {
                    const TensorRef a = tanh(g, x);
                    g.switch_thread(GraphBuilder::kAutogradThread);
                    tanh(g, a);
                    g.switch_thread(GraphBuilder::kMainThread);
                  }},
        Unfusible{"ReadThroughAView",
                  [](GraphBuilder& g, TensorRef x, TensorRef y) {
                    const TensorRef other = g.new_view(x, {kRows, kColumns}, {kColumns, 1});
                    g.leaf_op("aten::add_.Tensor", {x, y, 1}, {x});
                    add(g, other, y);
                  }},
        Unfusible{"WrittenThroughAView",
                  [](GraphBuilder& g, TensorRef x, TensorRef y) {
                    const TensorRef other = g.new_view(x, {kRows, kColumns}, {kColumns, 1});
                    const TensorRef a = add(g, x, y);
                    g.leaf_op("aten::add_.Tensor", {other, a, 1}, {other});
                  }},
        Unfusible{"NotPointwise",
                  [](GraphBuilder& g, TensorRef x, TensorRef) {
                    use(g, x);
                    clone(g, x);
                  }}),
    [](const auto& instance) { return std::string(instance.param.name); });

TEST(ElementwiseFusion, LeavesCpusAndGivenTimesAlone) {
  const Ops chain = [](GraphBuilder& graph, TensorRef x, TensorRef y) {
    tanh(graph, mul(graph, x, y));
  };
  const ExecutionGraph on_cpu = make(chain, GraphBuilder::cpu());
  EXPECT_TRUE(graph_difference(on_cpu, fused(on_cpu)).none());
  const ExecutionGraph timed =
      value(set_kernel_time(make(chain), {.pattern = "aten::tanh", .value = 3}));
  EXPECT_TRUE(graph_difference(timed, fused(timed)).none());
}

// y = tanh(sigmoid(W x)): both ways as one op. The functions of the engine become one.
TEST(ElementwiseFusion, JoinsFunctionsOfTheBackwardPass) {
  TrainingOptions options;
  options.optimizer = TrainingOptions::Optimizer::kNoOptimizer;
  TrainingStep step(options);
  const LinearLayer layer = make_linear_layer(step, 16, 1);
  const ExecutionGraph before = step.run([&] {
    const TensorRef x = apply(step, layer, step.input(DType::kFloat32, {64, 16}));
    const TensorRef y = sigmoid(step.tape(), tanh(step.tape(), sigmoid(step.tape(), x)));
    return binary_cross_entropy(step.tape(), y, step.input(DType::kFloat32, {64, 1}));
  });
  const ExecutionGraph after = fused(before);
  EXPECT_THAT(kernel_names(after),
              UnorderedElementsAre(
                  Pair("triton_poi_fused_sigmoid_tanh_sigmoid_0", 1),
                  Pair("triton_poi_fused_sigmoid_backward_tanh_backward_sigmoid_backward_1", 1)));
  const auto made = kernels(after);
  EXPECT_EQ(made[0]->outputs_count, 3u);  // all saved
  EXPECT_EQ(made[1]->inputs_count, 5u);   // gradient, what was saved, and the number of elements
  EXPECT_EQ(made[1]->outputs_count, 1u);
  // One function is left, which has the number that the op in the forward pass has.
  std::vector<const Node*> functions;
  for (const Node& node : after.nodes) {
    const std::string_view name = after.name(node);
    const bool ours = name == "SigmoidBackward0" || name == "TanhBackward0";
    if (node.scope == Scope::kBackward && ours) functions.push_back(&node);
  }
  ASSERT_EQ(functions.size(), 1u);
  EXPECT_EQ(&after.nodes[static_cast<std::size_t>(made[1]->parent)], functions[0]);
  EXPECT_EQ(functions[0]->seq_id, made[0]->seq_id);
  EXPECT_EQ(before.nodes.size() - after.nodes.size(), 2u + 2u + 2 * 2u);
}

template <class Config>
Config small(Config config) {
  config.layers = 2;
  config.batch = 2;
  config.sequence = 128;
  return config;
}

ExecutionGraph bert() { return value(build_bert(small(*bert_preset("bert-base")))); }
ExecutionGraph gpt() { return value(build_gpt(small(*gpt_preset("gpt2")))); }
ExecutionGraph llama() { return value(build_llama(small(*llama_preset(llama_presets()[0])))); }
ExecutionGraph t5() { return value(build_t5(*t5_preset("t5-small"))); }
ExecutionGraph resnet() { return value(build_resnet(*resnet_preset("resnet18"))); }

// Two layers: dropout and residual after attention and feed-forward network, GELU by hand, scores
// with scale and mask.
TEST(ElementwiseFusion, FindsTheKernelsOfTransformers) {
  EXPECT_THAT(kernel_names(fused(gpt())),
              UnorderedElementsAre(Pair("triton_poi_fused_add_native_dropout_0", 1),
                                   Pair("triton_poi_fused_div_full_where_1", 2),
                                   Pair("triton_poi_fused_native_dropout_add_2", 4),
                                   Pair("triton_poi_fused_mul_pow_mul_add_mul_tanh_add_mul_3", 2),
                                   Pair("triton_poi_fused_mul_mul_tanh_backward_mul_mul_pow_mul_"
                                        "mul_add_mul_add_4",
                                        2),
                                   Pair("triton_poi_fused_add_native_dropout_backward_5", 4),
                                   Pair("triton_poi_fused_full_where_div_6", 2)));
  EXPECT_THAT(kernel_names(fused(bert())),
              UnorderedElementsAre(Pair("triton_poi_fused_full_sub_mul_0", 1),
                                   Pair("triton_poi_fused_div_add_1", 2),
                                   Pair("triton_poi_fused_native_dropout_add_2", 4),
                                   Pair("triton_poi_fused_add_native_dropout_backward_3", 1)));
}

// The sum of two gradients with the ReLU's.
TEST(ElementwiseFusion, FindsTheKernelsOfDlrm) {
  EXPECT_THAT(kernel_names(fused(value(build_dlrm(*dlrm_preset("default"))))),
              UnorderedElementsAre(Pair("triton_poi_fused_add_threshold_backward_0", 1)));
}

// Without dropout, with one kernel per GELU: scores are scaled, masked and cast in one kernel,
// their gradients in another. Products, norms and softmax stay what they were.
TEST(ElementwiseFusion, FindsTheChainsOfEagerHalfPrecision) {
  GptConfig config = small(*gpt_preset("gpt2"));
  config.dropout = 0;
  config.activation = GptConfig::Activation::kGeluTanh;
  const ExecutionGraph before = value(rewrite_precision(
      value(build_gpt(config)), {.precision = PrecisionOptions::Precision::kBf16}));
  const ExecutionGraph after = fused(before);
  const auto count = [](const ExecutionGraph& graph, std::string_view name) {
    return std::ranges::count_if(graph.nodes,
                                 [&](const Node& node) { return graph.name(node) == name; });
  };
  EXPECT_EQ(count(after, "triton_poi_fused_div_full_where__to_copy_0"), config.layers);
  EXPECT_EQ(count(after, "aten::where"), 0);
  EXPECT_EQ(count(after, "aten::_softmax"), count(before, "aten::_softmax"));
  EXPECT_EQ(count(after, "aten::addmm"), count(before, "aten::addmm"));
}

class FusionOfModels : public testing::TestWithParam<ExecutionGraph (*)()> {};

TEST_P(FusionOfModels, IsDoneOnce) {
  const ExecutionGraph once = fused(GetParam()()), twice = fused(once);
  EXPECT_FALSE(kernels(once).empty());
  EXPECT_TRUE(compare_graphs(once, twice).same());
}

// Whatever an op reads that was made in the graph is still made.
TEST_P(FusionOfModels, LeavesNothingOutThatIsRead) {
  const ExecutionGraph before = GetParam()(), after = fused(before);
  const auto made = [](const ExecutionGraph& graph) {
    std::set<std::int64_t> found;
    for (const Node& node : graph.nodes) {
      for (std::int64_t id : ids(graph, graph.outputs(node))) found.insert(id);
    }
    return found;
  };
  const auto made_before = made(before), made_after = made(after);
  EXPECT_LT(made_after.size(), made_before.size());
  for (const Node& node : after.nodes) {
    for (std::int64_t id : ids(after, after.inputs(node))) {
      EXPECT_TRUE(made_after.contains(id) || !made_before.contains(id))
          << after.name(node) << " reads " << id;
    }
  }
}

TEST_P(FusionOfModels, ReadsAsItWasWritten) {
  const auto file = test_support::scratch() / "elementwise_fusion_test.json.gz";
  const ExecutionGraph made = fused(GetParam()());
  ASSERT_TRUE(write_execution_graph(made, file));
  const ExecutionGraph read = value(read_execution_graph(file));
  EXPECT_TRUE(compare_graphs(made, read).same());
  EXPECT_EQ(kernel_names(made), kernel_names(read));
  std::filesystem::remove(file);
}

INSTANTIATE_TEST_SUITE_P(Models, FusionOfModels, testing::Values(bert, gpt, llama, t5, resnet));

// Rewrites that do not know fused kernels refuse them: they come first.
TEST(ElementwiseFusion, ComesLast) {
  const ExecutionGraph graph = fused(gpt());
  const auto precise = rewrite_precision(graph, {.precision = PrecisionOptions::Precision::kBf16});
  ASSERT_FALSE(precise);
  EXPECT_THAT(precise.error().message, HasSubstr("expected a graph without fused kernels, found "
                                                 "triton_poi_fused_add_native_dropout_0"));
  const auto resized = set_batch_size(graph, {.batch = 4});
  ASSERT_FALSE(resized);
  EXPECT_THAT(resized.error().message, HasSubstr("triton_poi_fused_add_native_dropout_0"));
}

}  // namespace rewrite_elementwise_fusion_test
}  // namespace perfmodel
