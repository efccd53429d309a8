// A CPU's graph becomes a GPU's. The builders know both: their CPU graphs must turn into their GPU
// graphs.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>

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
#include "vision_layers.hpp"

namespace perfmodel {
namespace rewrite_retarget_test {

using testing::HasSubstr;
using Inputs = RetargetOptions::Inputs;
using Vendor = RetargetOptions::Vendor;

constexpr PyTorch kOld = {.major = 1, .minor = 13};
constexpr PyTorch kNew = {};

TrainingOptions training_on(PyTorch pytorch, bool gpu) {
  pytorch.mkl = !pytorch.before(2, 0);  // the old recordings are Debian's
  if (!gpu) pytorch.device = GraphBuilder::cpu();
  TrainingOptions options;
  options.pytorch = pytorch;
  // PyTorch 2 would take foreach on a GPU alone; the optimizer is another rewrite's affair.
  options.implementation = TrainingOptions::Implementation::kLoop;
  return options;
}

ExecutionGraph resnet(const PyTorch& pytorch, bool gpu) {
  ResnetConfig config = *resnet_preset("resnet18");
  config.batch = 4;
  config.resolution = 64;
  config.training = training_on(pytorch, gpu);
  config.training.optimizer = TrainingOptions::Optimizer::kMomentum;
  return *build_resnet(config);
}

// The model of traces_cpu/record_et.py.
DlrmConfig small_dlrm(bool sparse) {
  DlrmConfig config;
  config.bottom_mlp = {13, 64, 16};
  config.top_mlp = {64, 1};
  for (std::int64_t rows : {1000, 2000, 500, 4000}) {
    config.tables.push_back({.num_rows = rows, .dim = 16, .pooling_factor = 8});
  }
  config.batch = 64;
  config.table_batched = false;
  config.sparse_gradients = sparse;
  config.stacked_offsets = false;
  return config;
}

ExecutionGraph mlp(const PyTorch& pytorch, bool gpu, std::int64_t batch = 64) {
  MlpConfig config = *mlp_preset("mnist");
  config.batch = batch;
  config.training = training_on(pytorch, gpu);
  return *build_mlp(config);
}

std::map<std::string, int> names(const ExecutionGraph& graph) {
  std::map<std::string, int> counts;
  for (const Node& node : graph.nodes) ++counts[std::string(graph.name(node))];
  return counts;
}

struct Case {
  const char* name;
  ExecutionGraph (*build)(const PyTorch&, bool gpu);
  PyTorch pytorch;
};

class RetargetOfBuilt : public testing::TestWithParam<Case> {};

TEST_P(RetargetOfBuilt, IsWhatIsBuiltForAGpu) {
  const Case& c = GetParam();
  const auto made = retarget(c.build(c.pytorch, false));
  ASSERT_TRUE(made) << made.error().message;
  const GraphComparison comparison = compare_graphs(c.build(c.pytorch, true), *made);
  EXPECT_TRUE(comparison.same()) << comparison;
}

INSTANTIATE_TEST_SUITE_P(
    Models, RetargetOfBuilt,
    testing::Values(Case{"MlpOld", [](const PyTorch& p, bool gpu) { return mlp(p, gpu); }, kOld},
                    Case{"MlpNew", [](const PyTorch& p, bool gpu) { return mlp(p, gpu); }, kNew},
                    Case{"ResnetOld", resnet, kOld}, Case{"ResnetNew", resnet, kNew}),
    [](const auto& instance) { return std::string(instance.param.name); });

// Includes tensors from before the step: copies are in the order of first use in a rewritten graph,
// and in the data loader's order in a built one.
TEST(Retarget, DlrmsAreWhatIsBuiltForAGpu) {
  constexpr void (*kChanges[])(DlrmConfig&) = {
      [](DlrmConfig&) {},
      [](DlrmConfig& c) { c.sparse_gradients = false; },
      [](DlrmConfig& c) { c.training.zero_grad = TrainingOptions::ZeroGrad::kToZero; },
      [](DlrmConfig& c) { c.stacked_offsets = c.interaction_dot = false; },
      [](DlrmConfig& c) {
        c.sparse_gradients = false;
        c.optimizer = DlrmConfig::Optimizer::kAdagrad;
        c.cross.layers = 2;
      },
      [](DlrmConfig& c) { c.optimizer = DlrmConfig::Optimizer::kAdagrad; },
      [](DlrmConfig& c) { c.optimizer = DlrmConfig::Optimizer::kSparseAdam; }};
  for (const PyTorch& pytorch : {kOld, kNew}) {
    for (std::size_t i = 0; i < std::size(kChanges); ++i) {
      SCOPED_TRACE(std::to_string(pytorch.major) + ", change " + std::to_string(i));
      DlrmConfig config = small_dlrm(true);
      config.training = training_on(pytorch, false);
      config.training.resident_input = true;
      kChanges[i](config);
      const ExecutionGraph on_cpu = *build_dlrm(config);
      config.training.pytorch.device = PyTorch{}.device;
      const auto made = retarget(on_cpu, {.inputs = Inputs::kOnDevice});
      ASSERT_TRUE(made) << made.error().message;
      const GraphComparison comparison = compare_graphs(*build_dlrm(config), *made);
      EXPECT_TRUE(comparison.same()) << comparison;
    }
  }
}

// Dense features, labels, indices and offsets of four tables.
TEST(Retarget, CopiesAllInputsOfADlrm) {
  for (bool sparse : {true, false}) {
    DlrmConfig config = small_dlrm(sparse);
    config.training = training_on(kOld, false);
    const ExecutionGraph made = *retarget(*build_dlrm(config), {.inputs = Inputs::kPinned});
    int copies = 0;
    for (const Node& node : made.nodes) {
      if (made.name(node) != "aten::copy_") continue;
      copies += made.tensors[made.inputs(node)[1].index].on_cpu() ? 1 : 0;
    }
    EXPECT_EQ(copies, 2 + 4 + 4);
  }
}

TEST(Retarget, RunsBackwardFunctionsOnAutogradsThread) {
  const ExecutionGraph made = *retarget(mlp(kNew, false));
  int functions = 0;
  for (const Node& node : made.nodes) {
    if (node.scope != Scope::kBackward) continue;
    ++functions;
    EXPECT_EQ(node.thread, GraphBuilder::kAutogradThread);
    EXPECT_EQ(node.fw_thread, GraphBuilder::kMainThread);
  }
  EXPECT_GT(functions, 0);
}

TEST(Retarget, CopiesTheStepsInputs) {
  const ExecutionGraph cpu = mlp(kNew, false);
  const auto copies = [&](Inputs inputs, bool non_blocking) {
    const ExecutionGraph made = *retarget(cpu, {.inputs = inputs});
    int found = 0;
    for (const Node& node : made.nodes) {
      if (made.name(node) != "aten::copy_") continue;
      const auto arguments = made.inputs(node);
      const bool from_host = made.tensors[arguments[1].index].on_cpu();
      found += from_host && (arguments[2].integer != 0) == non_blocking ? 1 : 0;
    }
    return found;
  };
  EXPECT_EQ(copies(Inputs::kPinned, true), 2);  // features and classes
  EXPECT_EQ(copies(Inputs::kPinned, false), 0);
  EXPECT_EQ(copies(Inputs::kPageable, false), 2);
  EXPECT_EQ(copies(Inputs::kOnDevice, true) + copies(Inputs::kOnDevice, false), 0);
}

TEST(Retarget, KnowsTheLibrariesOfBothVendors) {
  const ExecutionGraph cpu = resnet(kOld, false);
  auto nvidia = names(*retarget(cpu, {.vendor = Vendor::kNvidia}));
  auto amd = names(*retarget(cpu, {.vendor = Vendor::kAmd}));
  EXPECT_EQ(nvidia["aten::cudnn_convolution"], 20);
  EXPECT_EQ(nvidia["aten::cudnn_batch_norm_backward"], 20);
  EXPECT_EQ(nvidia["CudnnBatchNormBackward0"], 20);
  EXPECT_EQ(amd["aten::miopen_convolution"], 20);
  EXPECT_EQ(amd["aten::miopen_batch_norm_backward"], 20);
  EXPECT_EQ(amd["MiopenBatchNormBackward0"], 20);
  for (const auto* counts : {&nvidia, &amd}) {
    EXPECT_FALSE(counts->contains("aten::mkldnn_convolution"));
    EXPECT_FALSE(counts->contains("NativeBatchNormBackward0"));
    EXPECT_FALSE(counts->contains("aten::resolve_conj"));
  }
}

TEST(Retarget, LeavesAGradientOfLookupsThatHasOtherSizes) {
  LstmConfig config{.vocabulary = 6, .embedding = 4, .hidden = 4, .layers = 1, .batch = 2};
  config.steps = 3;
  config.training = training_on(kNew, false);
  ExecutionGraph graph = build_lstm(config).value();
  std::size_t changed = 0;
  for (const Node& node : graph.nodes) {
    if (graph.name(node) != "aten::embedding_dense_backward") continue;
    Tensor& indices = graph.tensors[graph.inputs(node)[1].index];
    ++graph.shape_pool[indices.shape_begin];  // a row more than the gradient has
    indices.numel = 1;
    for (std::int64_t size : graph.shape(indices)) indices.numel *= size;
    ++changed;
  }
  ASSERT_EQ(changed, 1U);
  const auto made = retarget(graph, {.vendor = Vendor::kNvidia});
  ASSERT_TRUE(made) << made.error().message;
  std::size_t left = 0;
  for (const Node& node : made->nodes) {
    left += made->name(node) == "aten::embedding_dense_backward" ? 1 : 0;
  }
  EXPECT_EQ(left, 1U);
}

TEST(Retarget, RefusesAGraphOfAGpu) {
  const auto made = retarget(mlp(kNew, true));
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, ErrorCode::kImpossible);
  EXPECT_THAT(made.error().message, HasSubstr("found tensors on a GPU in \"aten::to\""));
}

TEST(Retarget, RefusesAGraphWithoutTensors) {
  GraphBuilder builder;
  const auto made = retarget(builder.finish());
  ASSERT_FALSE(made);
  EXPECT_THAT(made.error().message, HasSubstr("expected tensors on a CPU, found none"));
}

TEST(Retarget, NamesOpsThatOnlyCpusHave) {
  GraphBuilder builder(training_on(kNew, false).pytorch);
  const TensorRef x = builder.new_tensor(DType::kFloat32, {8, 8});
  for (const char* op : {"quantized::linear_dynamic", "aten::mkldnn_rnn_layer"}) {
    builder.begin_plain(op, {x});
    builder.end_op({x});
  }
  const auto made = retarget(builder.finish());
  ASSERT_FALSE(made);
  EXPECT_THAT(made.error().message,
              HasSubstr("counterpart: aten::mkldnn_rnn_layer, quantized::linear_dynamic"));
}

// PyTorch 2 has an attention kernel of its own for CPUs.
TEST(Retarget, AttentionTakesTheMemoryEfficientKernel) {
  GraphBuilder builder(training_on(kNew, false).pytorch);
  const auto tensor = [&](Shape shape) { return builder.new_tensor(DType::kFloat32, shape); };
  const TensorRef q = tensor({2, 4, 16, 8}), k = tensor({2, 4, 16, 8}), v = tensor({2, 4, 16, 8});
  const TensorRef out = tensor({2, 4, 16, 8}), sum = tensor({2, 4, 16});
  const std::string op = "aten::_scaled_dot_product_flash_attention_for_cpu";
  builder.begin_plain(op, {q, k, v, 0.0, true, kNone, kNone});
  builder.graph_being_made().nodes.back().seq_id = 7;
  builder.end_op({out, sum});
  const std::string function = "ScaledDotProductFlashAttentionForCpuBackward0";
  builder.begin_plain("autograd::engine::evaluate_function: " + function);
  builder.begin_backward_function(function, {out}, 7);
  builder.begin_plain(op + "_backward", {out, q, k, v, out, sum, 0.0, true, kNone, kNone});
  builder.end_op({tensor({2, 4, 16, 8}), tensor({2, 4, 16, 8}), tensor({2, 4, 16, 8})});
  builder.end_op();
  builder.end_op();
  const auto made = retarget(builder.finish());
  ASSERT_TRUE(made) << made.error().message;
  auto counts = names(*made);
  EXPECT_EQ(counts["aten::_scaled_dot_product_efficient_attention"], 1);
  EXPECT_EQ(counts["ScaledDotProductEfficientAttentionBackward0"], 1);
  EXPECT_EQ(counts["aten::_scaled_dot_product_efficient_attention_backward"], 1);
}

class RetargetOfRecording : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const char* root = std::getenv("PERFMODEL_PUBLIC_DATA");
    if (!root || !*root) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
    file_ = std::filesystem::path(root) / "traces_cpu" / (std::string(GetParam()) + ".et.json.gz");
  }
  std::filesystem::path file_;
};

TEST_P(RetargetOfRecording, LeavesNothingOfACpu) {
  const auto recorded = read_execution_graph(file_);
  ASSERT_TRUE(recorded) << to_string(recorded.error());
  const auto made = retarget(*recorded, {.inputs = Inputs::kOnDevice});
  ASSERT_TRUE(made) << made.error().message;
  for (const Node& node : made->nodes) {
    const std::string name(made->name(node));
    for (const char* part : {"mkldnn", "resolve_conj", "native_batch_norm", "bernoulli_"}) {
      EXPECT_EQ(name.find(part), std::string::npos) << name;
    }
    // Numbers and step counters stay on the host, and so does the handle of a label, one zero.
    for_each_tensor(*made, made->inputs(node), [&](const Tensor& tensor) {
      EXPECT_TRUE(tensor.rank == 0 || !tensor.on_cpu() ||
                  (name == "aten::zero_" && tensor.numel == 1))
          << name << " " << node.id;
    });
  }
  // Every autograd node is there still, on a thread of its own; one per function of the recording.
  const auto functions = [](const ExecutionGraph& graph, std::int32_t thread) {
    int count = 0;
    for (const Node& node : graph.nodes) {
      count += node.scope == Scope::kBackward && node.thread == thread ? 1 : 0;
    }
    return count;
  };
  EXPECT_EQ(functions(*made, GraphBuilder::kAutogradThread), functions(*recorded, 1));
  EXPECT_EQ(functions(*made, GraphBuilder::kMainThread), 0);
}

INSTANTIATE_TEST_SUITE_P(Models, RetargetOfRecording,
                         testing::Values("dlrm_sparse_sgd", "dlrm_dense_sgd", "bert_layer_adamw",
                                         "resblock_sgdm"));

using RetargetOfAutocast = RetargetOfRecording;

TEST_P(RetargetOfAutocast, SaysWhichOpsAutocastOfACpuLeftInHalfPrecision) {
  const auto recorded = read_execution_graph(file_);
  ASSERT_TRUE(recorded) << to_string(recorded.error());
  const PrecisionOptions bf16 = {.precision = PrecisionOptions::Precision::kBf16};
  const auto of_cpu = rewrite_precision(*recorded, bf16);
  ASSERT_TRUE(of_cpu) << of_cpu.error().message;
  const auto late = retarget(*of_cpu, {}), early = retarget(*recorded, {});
  ASSERT_TRUE(late && early);
  const auto first = rewrite_precision(*early, bf16);
  ASSERT_TRUE(first) << first.error().message;
  const auto says_so = HasSubstr("as autocast on a CPU lets");
  EXPECT_THAT(late->warnings, testing::Contains(says_so));
  // Sums of gradients are narrow on both, and its layer norms take fp32 sums of residuals.
  EXPECT_THAT(late->warnings, testing::Contains(HasSubstr("aten::softmax computes")));
  EXPECT_THAT(first->warnings, testing::Not(testing::Contains(says_so)));
}

INSTANTIATE_TEST_SUITE_P(Bert, RetargetOfAutocast, testing::Values("bert_layer_adamw"));

// The models of traces_cpu/record_et.py built for a GPU. Their inputs are made before the
// recording.
TrainingOptions as_recorded(TrainingOptions::Optimizer optimizer) {
  TrainingOptions options = training_on(kOld, true);
  options.optimizer = optimizer;
  options.regions = TrainingOptions::Regions::kLossInForward;
  options.resident_input = true;
  options.step_label = "";
  return options;
}

ExecutionGraph residual_block_on_gpu() {
  ModuleRun run({}, as_recorded(TrainingOptions::Optimizer::kMomentum));
  TrainingStep& step = run.step();
  AutogradTape& tape = step.tape();
  const Conv2d same = {.padding = {1, 1}};
  const ConvLayer stem = make_conv(step, 3, 16, {3, 3}, same);
  const Item first = make_conv_norm(run, 16, 16);
  const Item second = make_conv_norm(run, 16, 16);
  const LinearLayer head = make_linear_layer(step, 16, 10);
  return step.run([&] {
    const TensorRef x = apply(step, stem, step.input(DType::kFloat32, {8, 3, 32, 32}));
    TensorRef y = relu(tape, apply(run, first, x));
    y = relu(tape, add(tape, apply(run, second, y), x));
    const TensorRef scores = apply(step, head, mean(tape, y, {2, 3}, false));
    return cross_entropy(run, scores, step.input(DType::kInt64, {8}));
  });
}

ExecutionGraph dlrm_as_recorded(bool sparse) {
  DlrmConfig config = small_dlrm(sparse);
  config.training = as_recorded(TrainingOptions::Optimizer::kSgd);
  return *build_dlrm(config);
}

class RetargetOfRecordedModel : public testing::Test {
 protected:
  GraphComparison compare(const char* name, const ExecutionGraph& built,
                          const ComparisonOptions& options = {}) {
    const char* root = std::getenv("PERFMODEL_PUBLIC_DATA");
    const auto recorded = read_execution_graph(std::filesystem::path(root) / "traces_cpu" / name);
    const auto made = retarget(*recorded, {.inputs = Inputs::kOnDevice});
    return compare_graphs(built, *made, options);
  }
  void SetUp() override {
    const char* root = std::getenv("PERFMODEL_PUBLIC_DATA");
    if (!root || !*root) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  }
};

// The numbers of its optimizer are the recording's own.
TEST_F(RetargetOfRecordedModel, ResidualBlock) {
  ComparisonOptions options;
  options.leave_out = [](const ExecutionGraph& graph, const Node& node) {
    return graph.name(node).starts_with("Optimizer.step#");
  };
  const auto comparison = compare("resblock_sgdm.et.json.gz", residual_block_on_gpu(), options);
  EXPECT_TRUE(comparison.same()) << comparison;
}

// The whole step, the optimizer too.
TEST_F(RetargetOfRecordedModel, DlrmWithDenseGradients) {
  const auto comparison = compare("dlrm_dense_sgd.et.json.gz", dlrm_as_recorded(false));
  EXPECT_TRUE(comparison.same()) << comparison;
}

TEST_F(RetargetOfRecordedModel, DlrmWithSparseGradients) {
  const auto comparison = compare("dlrm_sparse_sgd.et.json.gz", dlrm_as_recorded(true));
  EXPECT_TRUE(comparison.same()) << comparison;
}

}  // namespace rewrite_retarget_test
}  // namespace perfmodel
