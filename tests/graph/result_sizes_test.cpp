// Results that traces leave out against those that PyTorch recorded: execution graphs of the same
// ops hold both arguments and results.

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ops/catalogue.hpp"
#include "ops/result_sizes.hpp"
#include "perfmodel/graph/build_model.hpp"
#include "perfmodel/graph/read_execution_graph.hpp"

namespace perfmodel {
namespace result_sizes_test {

using std::filesystem::path;

std::vector<ResultSizes> recorded_results(const ExecutionGraph& graph, const Node& node) {
  std::vector<ResultSizes> found;
  for_each_tensor(graph, graph.outputs(node), [&](const Tensor& tensor) {
    const auto shape = graph.shape(tensor);
    found.push_back({tensor.dtype, {shape.begin(), shape.end()}});
  });
  return found;
}

std::string text(const std::vector<ResultSizes>& results) {
  std::string made;
  for (const ResultSizes& result : results) {
    made += std::string(to_string(result.dtype)) + "[";
    for (const std::int64_t extent : result.shape) made += std::to_string(extent) + " ";
    made += "] ";
  }
  return made;
}

// Calls that were compared, by name of the op.
using Compared = std::map<std::string, std::size_t>;

void compare(const ExecutionGraph& graph, Compared& compared) {
  std::set<std::string> wrong;
  for (const Node& node : graph.nodes) {
    const std::vector<ResultSizes> found = results_of(graph, node);
    const std::vector<ResultSizes> truth = recorded_results(graph, node);
    if (found.empty() || truth.empty()) continue;
    const std::string name(graph.name(node));
    ++compared[name];
    if (found != truth && wrong.insert(name).second) {
      ADD_FAILURE() << name << " of " << graph.source << ": " << text(found) << "recorded "
                    << text(truth) << " inputs " << graph.names.text(node.op_schema);
    }
  }
}

// The smallest batch of each program measured on a GPU.
std::vector<path> recorded_graphs() {
  std::vector<path> files;
  for (const auto& entry : std::filesystem::directory_iterator(path(PERFMODEL_SOURCE_DIR) /
                                                               "tests" / "graph" / "recorded")) {
    if (entry.path().extension() == ".gz") files.push_back(entry.path());
  }
  std::map<std::string, std::pair<int, path>> smallest;
  for (const auto& entry : std::filesystem::directory_iterator(path(PERFMODEL_SOURCE_DIR) / "data" /
                                                               "measurements" / "h200-sxm-141gb")) {
    const std::string name = entry.path().filename();
    if (!name.ends_with(".et.json.gz")) continue;
    const std::size_t dash = name.rfind("-b");
    const int batch = std::stoi(name.substr(dash + 2));
    auto& kept = smallest.try_emplace(name.substr(0, dash), batch, entry.path()).first->second;
    if (batch < kept.first) kept = {batch, entry.path()};
  }
  for (const auto& [program, kept] : smallest) files.push_back(kept.second);
  return files;
}

TEST(ResultSizes, AreThoseThatPyTorchRecorded) {
  Compared compared;
  for (const path& file : recorded_graphs()) {
    const auto graph = read_execution_graph(file);
    ASSERT_TRUE(graph) << to_string(graph.error());
    compare(*graph, compared);
  }
  for (const char* op :
       {"aten::cudnn_convolution", "aten::_convolution", "aten::max_pool2d_with_indices",
        "aten::avg_pool2d", "aten::max_pool2d_with_indices_backward", "aten::index_select",
        "aten::index", "aten::gather", "aten::sum", "aten::mean", "aten::add", "aten::mul",
        "aten::native_dropout", "aten::threshold_backward", "aten::binary_cross_entropy"}) {
    EXPECT_GT(compared[op], 0U) << op;
  }
  EXPECT_GT(compared.size(), 40U);
}

// Ops that no recording here has, as the builders write them.
TEST(ResultSizes, AreThoseOfBuiltModels) {
  Compared compared;
  for (const Result<ExecutionGraph>& graph :
       {build_wgan({}), build_a3c({}), build_faster_rcnn({}), build_inception({}),
        build_deepspeech2({}), build_seq2seq({})}) {
    ASSERT_TRUE(graph) << to_string(graph.error());
    compare(*graph, compared);
  }
  for (const char* op :
       {"aten::cudnn_convolution_transpose", "aten::topk", "aten::gather", "aten::index_select"}) {
    EXPECT_GT(compared[op], 0U) << op;
  }
}

// A graph of one call of `op`, whose arguments are these.
class Call {
 public:
  explicit Call(std::string_view op) {
    graph_.nodes.push_back({.id = 1, .parent_id = 1, .name = graph_.names.intern(op)});
  }
  Call& tensor(std::vector<std::int64_t> shape, DType dtype = DType::kFloat32) {
    Tensor made{.id = 1,
                .storage_id = 1,
                .numel = 1,
                .item_size = size_in_bytes(dtype),
                .dtype = dtype,
                .device = {Device::Kind::kGpu, 0},
                .shape_begin = static_cast<std::uint32_t>(graph_.shape_pool.size()),
                .rank = static_cast<std::uint16_t>(shape.size())};
    for (const std::int64_t extent : shape) made.numel *= extent;
    graph_.shape_pool.insert(graph_.shape_pool.end(), shape.begin(), shape.end());
    graph_.tensors.push_back(made);
    return add({.kind = Argument::Kind::kTensor,
                .index = static_cast<std::uint32_t>(graph_.tensors.size() - 1)});
  }
  Call& number(std::int64_t value) { return add({.kind = Argument::Kind::kInt, .integer = value}); }
  Call& flag(bool value) { return add({.kind = Argument::Kind::kBool, .integer = value}); }
  Call& list(std::vector<std::int64_t> values) {
    add({.kind = Argument::Kind::kList, .count = static_cast<std::uint32_t>(values.size())});
    lists_.emplace_back(arguments_.size() - 1, std::move(values));
    return *this;
  }
  Call& none() { return add({}); }

  std::string results() {
    Node& node = graph_.nodes.front();
    node.inputs_count = static_cast<std::uint32_t>(arguments_.size());
    graph_.arguments = arguments_;
    for (const auto& [at, values] : lists_) {
      graph_.arguments[at].index = static_cast<std::uint32_t>(graph_.arguments.size());
      for (const std::int64_t value : values) {
        graph_.arguments.push_back({.kind = Argument::Kind::kInt, .integer = value});
      }
    }
    return text(results_of(graph_, node));
  }

 private:
  Call& add(Argument argument) {
    arguments_.push_back(argument);
    return *this;
  }
  ExecutionGraph graph_;
  std::vector<Argument> arguments_;
  std::vector<std::pair<std::size_t, std::vector<std::int64_t>>> lists_;
};

TEST(ResultSizes, ByHand) {
  // ceil((7 - 2) / 2) + 1 = 4 windows, of which the last begins after the input of 6: 3.
  EXPECT_EQ(Call("aten::avg_pool2d")
                .tensor({1, 8, 6, 7})
                .list({2, 2})
                .list({2, 2})
                .list({0, 0})
                .flag(true)
                .results(),
            "float32[1 8 3 4 ] ");
  // (5 - 1) 2 - 2 + 2 + 1 + 1 = 10, and 16 x 2 channels.
  EXPECT_EQ(Call("aten::cudnn_convolution_transpose")
                .tensor({4, 8, 5, 5})
                .tensor({8, 16, 3, 3})
                .list({1, 1})
                .list({1, 1})
                .list({2, 2})
                .list({1, 1})
                .number(2)
                .results(),
            "float32[4 32 10 10 ] ");
  EXPECT_EQ(Call("aten::argmax").tensor({4, 5}).number(-1).flag(true).results(), "int64[4 1 ] ");
  EXPECT_EQ(Call("aten::sum").tensor({4, 5}).none().results(), "float32[] ");
  EXPECT_EQ(Call("aten::constant_pad_nd").tensor({2, 3, 4}).list({1, 2, 0, 1}).results(),
            "float32[2 4 7 ] ");
  EXPECT_EQ(Call("aten::eq").tensor({4, 1}).tensor({3}).results(), "bool[4 3 ] ");
  EXPECT_EQ(Call("aten::add").tensor({4}, DType::kBFloat16).tensor({4}).results(), "float32[4 ] ");
}

TEST(ResultSizes, AreNoneWhereArgumentsDoNotSayThem) {
  // Old traces leave lists out.
  EXPECT_EQ(Call("aten::cudnn_convolution").tensor({4, 8, 5, 5}).tensor({8, 8, 3, 3}).results(),
            "");
  EXPECT_EQ(Call("aten::nonzero").tensor({4, 8}).results(), "");
  EXPECT_EQ(Call("aten::add").tensor({4, 3}).tensor({4, 2}).results(), "");
  // More than any memory has.
  const std::int64_t large = std::int64_t{1} << 40;
  EXPECT_EQ(Call("aten::add").tensor({large, 1}).tensor({1, large}).results(), "");
}

}  // namespace result_sizes_test
}  // namespace perfmodel
