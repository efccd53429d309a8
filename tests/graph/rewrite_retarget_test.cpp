// A graph of a CPU becomes that of a GPU. The builders know both: what they write for a CPU must
// turn into what they write for a GPU.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>

#include "graph_comparison.hpp"
#include "models/training_step.hpp"
#include "perfmodel/graph/build_mlp.hpp"
#include "perfmodel/graph/build_resnet.hpp"
#include "perfmodel/graph/read_execution_graph.hpp"
#include "perfmodel/graph/rewrites/retarget.hpp"

namespace perfmodel {
namespace {

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

}  // namespace
}  // namespace perfmodel
