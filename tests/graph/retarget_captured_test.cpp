// Graphs that were captured from their Python code on device `meta` become graphs of a GPU. The
// samples are tiny models of tests/python/captured_models, whose twins the builders write.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>

#include "graph_comparison.hpp"
#include "perfmodel/graph/build_recommenders.hpp"
#include "perfmodel/graph/build_transformers.hpp"
#include "perfmodel/graph/captured.hpp"
#include "perfmodel/graph/read_execution_graph.hpp"
#include "perfmodel/graph/rewrites/retarget.hpp"
#include "perfmodel/graph/write_execution_graph.hpp"
#include "step/dialect.hpp"

namespace perfmodel {
namespace retarget_captured_test {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;
using Vendor = RetargetOptions::Vendor;

ExecutionGraph made(Result<ExecutionGraph> graph) {
  EXPECT_TRUE(graph) << graph.error().message;
  return graph ? std::move(*graph) : ExecutionGraph{};
}

ExecutionGraph captured(const std::string& name) {
  return made(read_execution_graph(std::filesystem::path(PERFMODEL_SOURCE_DIR) /
                                   "tests/graph/captured" / (name + ".json.gz")));
}

// Inputs lie on the GPU, as in the samples.
ExecutionGraph on_gpu(const std::string& name, Vendor vendor = Vendor::kNvidia) {
  return made(
      retarget(captured(name), {.vendor = vendor, .inputs = RetargetOptions::Inputs::kOnDevice}));
}

std::map<std::string, int> names(const ExecutionGraph& graph) {
  std::map<std::string, int> counts;
  for (const Node& node : graph.nodes) ++counts[std::string(graph.name(node))];
  return counts;
}

template <class Config>
Config sized(Config config) {
  config.training.pytorch = {.major = 1, .minor = 13};
  config.training.resident_input = true;
  return config;
}

template <class Config>
Config small_decoder() {
  Config config = sized(Config{});
  config.batch = 2;
  config.sequence = 16;
  config.layers = 2;
  config.hidden = 32;
  config.heads = 4;
  config.vocabulary = 101;
  return config;
}

ExecutionGraph built_gpt() {
  auto config = small_decoder<GptConfig>();
  config.feed_forward = 128;
  config.positions = 16;
  return made(build_gpt(config));
}

ExecutionGraph built_llama() {
  auto config = small_decoder<LlamaConfig>();
  config.feed_forward = 88;
  config.kv_heads = 2;
  config.dropout = 0;
  return made(build_llama(config));
}

ExecutionGraph built_dlrm(bool sparse) {
  auto config = sized(DlrmConfig{});
  config.bottom_mlp = {12, 16, 8};
  config.top_mlp = {24, 24, 24, 1};
  for (int i = 0; i < 3; ++i) {
    config.tables.push_back({.num_rows = 50, .dim = 8, .pooling_factor = 4});
  }
  config.batch = 8;
  config.table_batched = false;
  config.sparse_gradients = sparse;
  return made(build_dlrm(config));
}

// Builders have a region around the step, with its handle; programs have not.
bool is_of_region(const ExecutionGraph& graph, const Node& node) {
  const auto of_one_byte = [](const Tensor& t) { return t.dtype == DType::kUInt8; };
  const std::string_view name = graph.name(node);
  bool handle = name == "aten::zeros" && node.parent >= 0 && graph.node(node.parent).is_structural;
  if (name == "aten::empty") {
    for_each_tensor(graph, graph.outputs(node), [&](const Tensor& t) { handle |= of_one_byte(t); });
  }
  return handle;
}

struct Case {
  const char* name;
  ExecutionGraph (*build)();
  double least_share;  ///< equal nodes among all
};

class CapturedModel : public testing::TestWithParam<Case> {};

TEST_P(CapturedModel, IsWhatIsBuiltForAGpu) {
  const ExecutionGraph built = GetParam().build(), made = on_gpu(GetParam().name);
  ComparisonOptions options{.scalars = false};  // the builders' steps of optimizers differ
  options.leave_out = is_of_region;
  options.flatten = [](const ExecutionGraph& graph, const Node& node) {
    return graph.name(node).starts_with("ProfilerStep#");
  };
  const GraphComparison comparison = compare_graphs(built, made, options);
  const auto differ = static_cast<double>(comparison.only_first + comparison.only_second);
  const auto equal = static_cast<double>(comparison.equal);
  EXPECT_GE(equal / (equal + differ), GetParam().least_share) << comparison;
}

INSTANTIATE_TEST_SUITE_P(
    Samples, CapturedModel,
    testing::Values(Case{"gpt", built_gpt, 0.99}, Case{"llama", built_llama, 0.99},
                    Case{"dlrm", [] { return built_dlrm(false); }, 0.99},
                    Case{"dlrm_sparse", [] { return built_dlrm(true); }, 0.99}),
    [](const auto& instance) { return std::string(instance.param.name); });

TEST(RetargetCaptured, NothingStaysOnMeta) {
  for (const char* name : {"gpt", "llama", "dlrm", "dlrm_sparse", "dlrm_sparse_adam", "resnet"}) {
    SCOPED_TRACE(name);
    EXPECT_TRUE(is_to_retarget(captured(name)));
    const ExecutionGraph made = on_gpu(name);
    EXPECT_FALSE(is_to_retarget(made));
    for (NameId i = 0; i < made.names.size(); ++i) EXPECT_NE(made.names.text(i), "meta:0");
  }
}

TEST(RetargetCaptured, CallsTheLibrariesOfTheVendor) {
  auto nvidia = names(on_gpu("resnet")), amd = names(on_gpu("resnet", Vendor::kAmd));
  const int convolutions = nvidia["aten::convolution"], norms = nvidia["aten::batch_norm"];
  ASSERT_GT(convolutions, 0);
  EXPECT_EQ(nvidia["aten::cudnn_convolution"], convolutions);
  EXPECT_EQ(nvidia["aten::cudnn_batch_norm"], norms);
  EXPECT_EQ(nvidia["CudnnBatchNormBackward0"], norms);
  EXPECT_EQ(amd["aten::miopen_convolution"], convolutions);
  EXPECT_EQ(amd["aten::miopen_batch_norm_backward"], norms);
  EXPECT_EQ(amd["aten::cudnn_convolution"], 0);
}

TEST(RetargetCaptured, MergesSparseGradientsAsTheCaptureSays) {
  const ExecutionGraph made = on_gpu("dlrm_sparse_adam");
  int merged = 0;
  for (const Node& node : made.nodes) {
    if (made.name(node) != "aten::_coalesce") continue;
    ++merged;
    EXPECT_GT(node.children_count, 0U);
  }
  EXPECT_EQ(merged, 3);  // one per table
  EXPECT_EQ(names(made)["aten::index_add_"], names(made)["aten::_coalesce"] * 3);
}

constexpr const char* kHead = R"("captured": {"torch": "2.4.1", "script": "train.py",
    "assumptions": [{"text": "loss.item() is 1", "count": 3, "where": "train.py:41"},
                    {"text": "masks hold half of their elements", "where": "model.py:7"},
                    {"text": "autocast was off", "count": 2}, {"text": "a branch was taken"}]},)";

std::string document(const std::string& head, const std::string& device = "meta") {
  const std::string tensor = "[[10, 11, 0, 64, 4, \"" + device + "\"]]";
  return "{\"schema\": \"1.0.1\", \"pid\": 1, " + head + R"( "nodes": [
    {"name": "[pytorch|profiler|execution_graph|process]", "id": 1, "parent": 1, "scope": 7},
    {"name": "[pytorch|profiler|execution_graph|thread]", "id": 2, "parent": 1, "scope": 7,
     "tid": 1},
    {"name": "aten::relu", "id": 3, "parent": 2, "seq_id": -1, "scope": 0, "tid": 1, "inputs": )" +
         tensor + R"x(, "input_shapes": [[8, 8]], "input_types": ["Tensor(float)"], "outputs": )x" +
         tensor + R"x(, "output_shapes": [[8, 8]], "output_types": ["Tensor(float)"]}]})x";
}

ExecutionGraph read(const std::string& text) { return made(parse_execution_graph(text, "text")); }

TEST(CapturedHead, ItsAssumptionsAreTheFirstWarnings) {
  ExecutionGraph graph = read(document(kHead));
  EXPECT_THAT(graph.warnings,
              ElementsAre("captured: loss.item() is 1 (3 times, first at train.py:41)",
                          "captured: masks hold half of their elements (at model.py:7)",
                          "captured: autocast was off (2 times)", "captured: a branch was taken"));
  graph.warnings.insert(graph.warnings.begin(), "another");
  ASSERT_TRUE(retarget_captured(graph, Vendor::kAmd));
  EXPECT_THAT(graph.warnings[0], StartsWith("captured: loss.item()"));
  EXPECT_THAT(graph.warnings[4], HasSubstr("--retarget amd"));
  EXPECT_EQ(graph.warnings.back(), "another");
}

TEST(CapturedHead, IsKeptWhenTheGraphIsWritten) {
  const ExecutionGraph graph = read(document(kHead));
  const ExecutionGraph again = read(execution_graph_json(graph));
  EXPECT_EQ(again.captured, graph.captured);
  EXPECT_THAT(again.captured, HasSubstr("\"script\":\"train.py\""));
  EXPECT_EQ(again.warnings, graph.warnings);
  EXPECT_TRUE(is_to_retarget(again));
  EXPECT_EQ(retarget(again)->captured, graph.captured);
}

TEST(CapturedHead, TellsTheVersionWhoseOpsAreWritten) {
  const auto pytorch = pytorch_of_capture(read(document(kHead)));
  ASSERT_TRUE(pytorch);
  EXPECT_EQ(pytorch->major, 2);
  EXPECT_EQ(pytorch->minor, 4);
  EXPECT_FALSE(pytorch_of_capture(read(document("\"captured\": {\"torch\": \"new\"},"))));
}

TEST(CapturedHead, OneThatIsNoneIsLeftOutAndSaid) {
  const ExecutionGraph graph = read(document("\"captured\": true,"));
  EXPECT_TRUE(graph.captured.empty());
  EXPECT_THAT(graph.warnings, ElementsAre(HasSubstr("\"captured\" is no object")));
}

TEST(CapturedHead, WithASecretIsEmptied) {
  const ExecutionGraph graph =
      read(document(R"("captured": {"env": {"API_TOKEN": "abcd1234efgh"}},)"));
  EXPECT_EQ(graph.captured, "{}");
}

TEST(RetargetCaptured, LeavesOtherGraphsAsTheyAre) {
  ExecutionGraph graph = read(document("", "cuda:0"));
  ASSERT_TRUE(retarget_captured(graph, Vendor::kNvidia));
  EXPECT_TRUE(graph.warnings.empty());
  EXPECT_FALSE(is_to_retarget(read(document("", "xpu:0"))));
  EXPECT_FALSE(is_to_retarget(read(execution_graph_json(read(document("", "xpu:0"))))));
}

TEST(RetargetCaptured, RefusesSparseGradientsOfAnEarlierStep) {
  std::string text = document(kHead);
  const auto replace = [&](const std::string& from, const std::string& to) {
    text.replace(text.find(from), from.size(), to);
  };
  replace("aten::relu", "aten::sparse_mask");
  replace("\"meta\"]]", "\"meta\"], [12, 0, 0, 64, 4, \"\"]]");
  replace("[[8, 8]]", "[[8, 8], [8, 8]]");
  replace("[\"Tensor(float)\"]", "[\"Tensor(float)\", \"Tensor(float)\"]");
  const auto made = retarget(read(text));
  ASSERT_FALSE(made);
  EXPECT_THAT(made.error().message, HasSubstr("expected a sparse tensor that an op of the step"));
}

}  // namespace retarget_captured_test
}  // namespace perfmodel
