#include "perfmodel/graph/read_execution_graph.hpp"
#include "../scratch.hpp"
#include "perfmodel/graph/write_execution_graph.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

namespace perfmodel {
namespace read_execution_graph_test {

using std::filesystem::path;

class ReadExecutionGraph : public testing::Test {
 protected:
  void SetUp() override { file_ = test_support::scratch() / "graph.json"; }
  void TearDown() override { std::filesystem::remove(file_); }

  Result<ExecutionGraph> read(const std::string& text, bool salvage = false) {
    std::ofstream(file_, std::ios::binary) << text;
    return read_execution_graph(file_, {.salvage = salvage});
  }
  ExecutionGraph good(const std::string& text) {
    auto graph = read(text);
    if (!graph) {
      ADD_FAILURE() << to_string(graph.error());
      return {};
    }
    return std::move(*graph);
  }
  /// The message without the file name.
  std::string error(const std::string& text, bool salvage = false) {
    const auto graph = read(text, salvage);
    if (graph) return "no error";
    const std::string message = to_string(graph.error()), name = file_.string() + ":";
    EXPECT_EQ(message.substr(0, name.size()), name);
    return message.substr(name.size());
  }

  path file_;
};

// A node of the flat layout with a root above it.
std::string flat(const std::string& fields) {
  return R"({"schema": "1.0.1", "pid": 7, "nodes": [
{"name": "[pytorch|profiler|execution_trace|process]", "id": 1, "rf_id": 0, "parent": 1, "scope": 7, "tid": 0},
)" + fields +
         "]}";
}

std::string small_node(int id, int parent, const std::string& name = "aten::add",
                       const std::string& more = "") {
  return R"({"name": ")" + name + R"(", "id": )" + std::to_string(id) + R"(, "parent": )" +
         std::to_string(parent) + more + "}";
}

TEST_F(ReadExecutionGraph, FlatNodesKeepTheirFields) {
  const auto graph = good(flat(
      R"({"name": "AddBackward0", "id": 5, "rf_id": 9, "parent": 1, "fw_parent": 3, "seq_id": 44, "scope": 1, "tid": 2,
          "fw_tid": 1, "op_schema": "aten::add(Tensor a) -> Tensor", "inputs": [], "input_shapes": [],
          "input_types": [], "outputs": [], "output_shapes": [], "output_types": []})"));
  EXPECT_EQ(graph.schema, "1.0.1");
  EXPECT_EQ(graph.process_id, 7);
  ASSERT_EQ(graph.nodes.size(), 2u);
  const Node& node = graph.nodes[1];
  EXPECT_EQ(graph.name(node), "AddBackward0");
  EXPECT_EQ(node.id, 5);
  EXPECT_EQ(node.rf_id, 9);
  EXPECT_EQ(node.parent, 0);
  EXPECT_EQ(node.fw_parent, 3);
  EXPECT_EQ(node.seq_id, 44);
  EXPECT_EQ(node.scope, Scope::kBackward);
  EXPECT_EQ(node.thread, 2);
  EXPECT_EQ(node.fw_thread, 1);
  EXPECT_EQ(graph.names.text(node.op_schema), "aten::add(Tensor a) -> Tensor");
  EXPECT_TRUE(graph.nodes[0].is_structural);
  EXPECT_EQ(graph.nodes[0].parent, -1);  // its own parent
  EXPECT_FALSE(graph.nodes[0].is_orphan);
}

TEST_F(ReadExecutionGraph, CompiledRegionsWithoutTritonsKernelsAreSaid) {
  const auto of = [](std::string_view backend) {
    const std::string nothing = R"("inputs": {"values": [], "shapes": [], "types": []},
      "outputs": {"values": [], "shapes": [], "types": []})";
    return R"({"schema": "1.1.1-chakra.0.0.4", "nodes": [
      {"id": 1, "name": "root", "ctrl_deps": 1, )" +
           nothing + R"(, "attrs": []},
      {"id": 2, "name": "Torch-Compiled Region: 0/0", "ctrl_deps": 1, )" +
           nothing + R"(, "attrs": []},
      {"id": 3, "name": "CompiledFunction", "ctrl_deps": 2, )" +
           nothing + R"(, "attrs": []},
      {"id": 4, "name": "aten::mm", "ctrl_deps": 3, )" +
           nothing + R"(, "attrs": [{"name": "kernel_backend", "type": "string", "value": ")" +
           std::string(backend) + R"("}]}]})";
  };
  const auto without = good(of(""));
  ASSERT_EQ(without.warnings.size(), 1u);
  EXPECT_EQ(without.warnings[0].substr(0, 58),
            "a compiled region names no kernel that Triton wrote: an ob");
  EXPECT_TRUE(good(of("triton")).warnings.empty());
}

TEST_F(ReadExecutionGraph, NestedNodesKeepTheirAttributes) {
  const auto graph = good(R"json({"schema": "1.1.1-chakra.0.0.4", "nodes": [
    {"id": 2, "name": "triton_poi_0", "ctrl_deps": 1,
     "inputs": {"values": [[3, 4, 8, 64, 2, "cuda:1"], 5], "shapes": [[8, 8], []],
                "types": ["Tensor(c10::BFloat16)", "Int"], "strides": [[8, 1]]},
     "outputs": {"values": [], "shapes": [], "types": []},
     "attrs": [{"name": "rf_id", "type": "uint64", "value": 6}, {"name": "tid", "type": "uint64", "value": 1},
               {"name": "scope", "type": "uint64", "value": 0}, {"name": "seq_id", "type": "int64", "value": -1},
               {"name": "kernel_backend", "type": "string", "value": "triton"},
               {"name": "kernel_file", "type": "string", "value": "abc.py"},
               {"name": "tensor_range", "type": "string", "value": "{\"0\":[0,31]}"}]
},
    {"id": 1, "name": "root", "ctrl_deps": 1, "inputs": {"values": [], "shapes": [], "types": []},
     "outputs": {"values": [], "shapes": [], "types": []}, "attrs": []}]
})json");
  ASSERT_EQ(graph.nodes.size(), 2u);
  const Node& node = graph.nodes[1];
  EXPECT_EQ(node.rf_id, 6);
  EXPECT_EQ(graph.names.text(node.kernel_backend), "triton");
  EXPECT_EQ(graph.names.text(node.kernel_file), "abc.py");
  ASSERT_EQ(node.inputs_count, 2u);
  const Tensor& tensor = graph.tensors[graph.inputs(node)[0].index];
  EXPECT_EQ(tensor.id, 3);
  EXPECT_EQ(tensor.storage_id, 4);
  EXPECT_EQ(tensor.offset, 8);
  EXPECT_EQ(tensor.numel, 64);
  EXPECT_EQ(tensor.bytes(), 128);  // 64 x 2 B
  EXPECT_EQ(tensor.dtype, DType::kBFloat16);
  EXPECT_TRUE(tensor.on_gpu());
  EXPECT_EQ(tensor.device.index, 1);
  EXPECT_EQ(std::vector(graph.shape(tensor).begin(), graph.shape(tensor).end()),
            (std::vector<std::int64_t>{8, 8}));
  EXPECT_EQ(graph.inputs(node)[1].integer, 5);
}

// PyTorch writes numbers like this (findings/torch-graph-*.sh): six digits after the point,
// infinities as text, and numbers of Python as tensors of one double without a value.
TEST_F(ReadExecutionGraph, NumbersAsPyTorchWritesThemSurviveAWrite) {
  auto graph = good(flat(R"json({"name": "aten::clamp", "id": 2, "parent": 1,
    "inputs": [0.0, "inf", "-inf", "nan", -0.01, [9, 5, 0, 1, 8, "cpu"]],
    "input_shapes": [[], [], [], [], [], []],
    "input_types": ["Double", "Double", "Double", "Double", "Double", "Tensor(double)"]})json"));
  for (int pass = 0; pass < 2; ++pass) {
    ASSERT_EQ(graph.nodes.size(), 2u);
    const auto inputs = graph.inputs(graph.nodes[1]);
    ASSERT_EQ(inputs.size(), 6u);
    for (const Argument& number : inputs.first(5)) EXPECT_EQ(number.kind, Argument::Kind::kDouble);
    EXPECT_EQ(inputs[0].real, 0);
    EXPECT_EQ(inputs[1].real, std::numeric_limits<double>::infinity());
    EXPECT_EQ(inputs[2].real, -std::numeric_limits<double>::infinity());
    EXPECT_TRUE(std::isnan(inputs[3].real));
    EXPECT_EQ(inputs[4].real, -0.01);
    const Tensor& number = graph.tensors[inputs[5].index];
    EXPECT_TRUE(number.on_cpu() && number.numel == 1 && number.dtype == DType::kFloat64);
    ASSERT_TRUE(write_execution_graph(graph, file_));
    auto again = read_execution_graph(file_);
    ASSERT_TRUE(again) << to_string(again.error());
    graph = std::move(*again);
  }
}

// PyTorch does not escape labels (findings/torch-graph-quotes.sh).
TEST_F(ReadExecutionGraph, LabelsWithQuotesAreLocated) {
  EXPECT_EQ(error(flat(R"({"name": "layer "1"", "id": 2, "parent": 1})")),
            "3:18: /nodes/1/name: expected ',' or '}', found '1'");
}

TEST_F(ReadExecutionGraph, ArgumentsKeepTheirKinds) {
  const auto graph = good(flat(R"json({"name": "op", "id": 2, "parent": 1,
    "inputs": ["<None>", true, -1, 0.5, "inf", "text", "<Object>", "cuda:0", [2, 3], [1, 1, 0, 4, 4, "cpu"],
               [[5, 5, 0, 2, 8, "cuda:0"], "<None>"], [[[6, 6, 0, 1, 4, "cuda:0"]]], [0, 0, 0, 0, 0, ""], [1, 2, 3, 4, 5]],
    "input_shapes": [[], [], [], [], [], [], [], [], [[], []], [4], [[2], []], [[[1]]], [], [[], [], [], [], []]],
    "input_types": ["None", "Bool", "Int", "Double", "Double", "String", "Object", "Device", "GenericList[Int,Int]",
                    "Tensor(float)", "GenericList[Tensor(long int),None]", "GenericList[GenericList[Tensor(float)]]",
                    "Tensor(nullptr (uninitialized))", "GenericList[Int,Int,Int,Int,Int]"]})json"));
  ASSERT_EQ(graph.nodes.size(), 2u);
  const auto inputs = graph.inputs(graph.nodes[1]);
  ASSERT_EQ(inputs.size(), 14u);
  using Kind = Argument::Kind;
  EXPECT_EQ(inputs[0].kind, Kind::kNone);
  EXPECT_EQ(inputs[1].kind, Kind::kBool);
  EXPECT_EQ(inputs[1].integer, 1);
  EXPECT_EQ(inputs[2].kind, Kind::kInt);
  EXPECT_EQ(inputs[2].integer, -1);
  EXPECT_EQ(inputs[3].kind, Kind::kDouble);
  EXPECT_EQ(inputs[3].real, 0.5);
  EXPECT_EQ(inputs[4].kind, Kind::kDouble);
  EXPECT_TRUE(std::isinf(inputs[4].real));
  EXPECT_EQ(inputs[5].kind, Kind::kString);
  EXPECT_EQ(graph.names.text(inputs[5].index), "text");
  EXPECT_EQ(inputs[6].kind, Kind::kOpaque);
  EXPECT_EQ(inputs[7].kind, Kind::kOpaque);
  ASSERT_EQ(inputs[8].kind, Kind::kList);
  EXPECT_EQ(graph.elements(inputs[8])[1].integer, 3);
  ASSERT_EQ(inputs[9].kind, Kind::kTensor);
  EXPECT_TRUE(graph.tensors[inputs[9].index].on_cpu());
  ASSERT_EQ(inputs[10].kind, Kind::kList);
  const Argument& inner = graph.elements(inputs[10])[0];
  ASSERT_EQ(inner.kind, Kind::kTensor);
  EXPECT_EQ(graph.tensors[inner.index].dtype, DType::kInt64);
  EXPECT_EQ(graph.shape(graph.tensors[inner.index])[0], 2);
  EXPECT_EQ(graph.elements(inputs[10])[1].kind, Kind::kNone);
  ASSERT_EQ(inputs[11].kind, Kind::kList);
  EXPECT_EQ(graph.elements(graph.elements(inputs[11])[0])[0].kind, Kind::kTensor);
  ASSERT_EQ(inputs[12].kind, Kind::kTensor);  // undefined
  EXPECT_EQ(graph.tensors[inputs[12].index].device.kind, Device::Kind::kNone);
  // Five integers are a tensor only where the type says so.
  ASSERT_EQ(inputs[13].kind, Kind::kList);
  EXPECT_EQ(inputs[13].count, 5u);
}

TEST_F(ReadExecutionGraph, LargeIdsKeepTheirBits) {
  const auto graph =
      good(flat(R"json({"name": "op", "id": 2, "parent": 1, "rf_id": 9223372036854775807,
    "inputs": [[18446744073709551615, 140382148398488, 0, 1, 4, "cpu"]], "input_shapes": [[1]],
    "input_types": ["Tensor(float)"]})json"));
  ASSERT_EQ(graph.tensors.size(), 1u);
  EXPECT_EQ(static_cast<std::uint64_t>(graph.tensors[0].id), 18446744073709551615u);
  EXPECT_EQ(graph.nodes[1].rf_id, 9223372036854775807);
}

TEST_F(ReadExecutionGraph, NodesAreSortedByIdAndLinkedToTheirParents) {
  // File order is completion order: children first, root last.
  const auto graph =
      good(R"({"schema": "1.0.1", "nodes": [)" + small_node(7, 4) + "," + small_node(5, 4) + "," +
           small_node(4, 1) + "," + small_node(1, 1, "root") + "]}");
  ASSERT_EQ(graph.nodes.size(), 4u);
  EXPECT_EQ(graph.nodes[1].id, 4);
  const auto children = graph.children(graph.nodes[1]);
  ASSERT_EQ(children.size(), 2u);
  EXPECT_EQ(graph.nodes[static_cast<std::size_t>(children[0])].id, 5);
  EXPECT_EQ(graph.nodes[static_cast<std::size_t>(children[1])].id, 7);
  EXPECT_EQ(top_level_ops(graph).size(), 1u);  // 4; the root is structural
}

TEST_F(ReadExecutionGraph, OrphansAreKeptAndCounted) {
  const auto graph = good(flat(small_node(5, 99) + "," + small_node(6, 5)));
  EXPECT_TRUE(graph.nodes[1].is_orphan);
  EXPECT_FALSE(graph.nodes[2].is_orphan);
  ASSERT_EQ(graph.warnings.size(), 1u);
  EXPECT_EQ(graph.warnings[0].substr(0, 12), "1 of 3 nodes");
  EXPECT_EQ(top_level_ops(graph).size(), 1u);
}

TEST_F(ReadExecutionGraph, CommRecordsComeFromArgumentsOrAttributes) {
  // By position: [tensors], sequence, group, rank, name, in splits, out splits, start, stride,
  // size.
  const auto graph = good(flat(R"({"name": "record_param_comms", "id": 2, "parent": 1,
    "inputs": [[[3, 3, 0, 8, 4, "cuda:0"]], 12, 140, 0, "all_to_allv", [3, 5], [4, 4], 0, 1, 2],
    "input_shapes": [[[8]], [], [], [], [], [[], []], [[], []], [], [], []],
    "input_types": ["GenericList[Tensor(float)]", "Int", "Int", "Int", "String", "GenericList[Int,Int]",
                    "GenericList[Int,Int]", "Int", "Int", "Int"]},
   {"name": "record_param_comms", "id": 4, "parent": 1,
    "inputs": [12, ["1", "mesh"], 0, "wait", [], [], -1, -1, 1],
    "input_shapes": [[], [[], []], [], [], [], [], [], [], []],
    "input_types": ["Int", "Tuple[String,String]", "Int", "String", "GenericList[]", "GenericList[]", "Int", "Int", "Int"],
    "attrs": [{"name": "collective_name", "type": "string", "value": "wait"},
              {"name": "pg_size", "type": "uint64", "value": 1}]})"));
  ASSERT_EQ(graph.comm_records.size(), 2u);
  const CommRecord& call = graph.comm_records[0];
  EXPECT_EQ(call.collective, "all_to_allv");
  EXPECT_EQ(call.sequence, 12);
  EXPECT_EQ(call.process_group, "140");
  EXPECT_EQ(call.group_size, 2);
  EXPECT_EQ(call.in_splits, (std::vector<std::int64_t>{3, 5}));
  EXPECT_EQ(call.out_splits, (std::vector<std::int64_t>{4, 4}));
  const CommRecord& wait = graph.comm_records[1];
  EXPECT_EQ(wait.collective, "wait");
  EXPECT_EQ(wait.sequence, 12);
  EXPECT_EQ(wait.process_group, "1");
  EXPECT_EQ(graph.nodes[1].comm, 0);
  EXPECT_EQ(graph.nodes[2].comm, 1);
}

// ---- errors ------------------------------------------------------------------------------------

TEST_F(ReadExecutionGraph, FieldErrorsHavePlaceAndPointer) {
  // The second node starts on line 3.
  EXPECT_EQ(error(flat(small_node(2, 1, "a", R"(, "rf_id": "nine")"))),
            "3:1: /nodes/1/rf_id: expected an integer, found a string");
  EXPECT_EQ(
      error(flat(small_node(2, 1, "a", R"(, "seq_id": 1099511627777)"))),
      "3:1: /nodes/1/seq_id: expected an integer of at most 1099511627776, found 1099511627777");
  EXPECT_EQ(error(flat(R"({"name": "a", "id": 2})")),
            "3:1: /nodes/1: expected key \"parent\" or \"ctrl_deps\", found neither");
  EXPECT_EQ(error(flat(R"({"id": 2, "parent": 1})")),
            "3:1: /nodes/1: expected key \"name\", found none");
  EXPECT_EQ(error(flat(R"({"name": "a", "parent": 1})")),
            "3:1: /nodes/1: expected key \"id\", found none");
  EXPECT_EQ(error(flat(R"({"name": 3, "id": 2, "parent": 1})")),
            "3:1: /nodes/1/name: expected a string, found a number");
  EXPECT_EQ(error(flat(small_node(2, 1, "a", R"(, "inputs": {"values": 3})"))),
            "3:1: /nodes/1/inputs/values: expected an array, found a number");
  EXPECT_EQ(error(flat(small_node(2, 1, "a", R"(, "attrs": [{"name": "x"}])"))),
            "3:1: /nodes/1/attrs/0: expected an object with \"name\" and \"value\"");
  EXPECT_EQ(error(flat("17")), "3:1: /nodes/1: expected an object, found a number");
}

TEST_F(ReadExecutionGraph, SyntaxErrorsHaveTheirPlace) {
  const std::string message = error(flat(R"({"name": "a", "id": 2, "parent": 1, })"));
  EXPECT_EQ(message.substr(0, 15), "3:37: /nodes/1:") << message;
}

TEST_F(ReadExecutionGraph, DuplicateIdsAndCyclesAreTold) {
  EXPECT_EQ(error(flat(small_node(2, 1) + "," + small_node(3, 1) + "," + small_node(2, 3))),
            " /nodes/3: expected unique ids, found id 2 twice");
  EXPECT_NE(error(flat(small_node(2, 3) + "," + small_node(3, 2))).find("cycle"),
            std::string::npos);
  EXPECT_NE(
      error(flat(small_node(2, 4) + "," + small_node(3, 2) + "," + small_node(4, 3))).find("cycle"),
      std::string::npos);
}

TEST_F(ReadExecutionGraph, ATimedTraceIsToldByName) {
  EXPECT_NE(error(R"({"schemaVersion": 1, "traceEvents": [{"ph": "X"}]})").find("Kineto"),
            std::string::npos);
  EXPECT_NE(error(R"({"schemaVersion": 1})").find("Kineto"), std::string::npos);
  EXPECT_NE(error(R"({"pid": 1})").find("\"nodes\""), std::string::npos);
  EXPECT_NE(error(R"({"nodes": []})").find("found none"), std::string::npos);
}

TEST_F(ReadExecutionGraph, SalvageKeepsCompleteNodesWithAWarning) {
  const std::string whole = flat(small_node(2, 1) + "," + small_node(3, 1));
  const std::string cut = whole.substr(0, whole.rfind("parent"));
  EXPECT_NE(error(cut).find("end of the file"), std::string::npos);
  const auto graph = read(cut, true);
  ASSERT_TRUE(graph) << to_string(graph.error());
  EXPECT_EQ(graph->nodes.size(), 2u);
  ASSERT_EQ(graph->warnings.size(), 1u);
  EXPECT_NE(graph->warnings[0].find("breaks off"), std::string::npos);
  // Broken off after the nodes: all of them are there.
  const auto nearly = read(whole.substr(0, whole.size() - 1), true);
  ASSERT_TRUE(nearly) << to_string(nearly.error());
  EXPECT_EQ(nearly->nodes.size(), 3u);
  EXPECT_EQ(nearly->warnings.size(), 1u);
}

TEST_F(ReadExecutionGraph, TensorsOfImpossibleSizesAreSaid) {
  const auto with = [](const std::string& numel, const std::string& item_size,
                       const std::string& sizes = "2") {
    return flat(R"({"name": "aten::relu", "id": 2, "parent": 1, "inputs": [[3, 4, 0, )" + numel +
                ", " + item_size + R"(, "cuda:0"]], "input_shapes": [[)" + sizes + "]], " +
                R"x("input_types": ["Tensor(float)"]})x");
  };
  ASSERT_TRUE(read(with("2", "4")));
  EXPECT_TRUE(read(with("2", "4"))->warnings.empty());
  EXPECT_TRUE(read(with("0", "4", "0, 1099511627776"))->warnings.empty());
  const std::array<std::string, 3> impossible[] = {{"-9223372036854775808", "4", "2"},
                                                   {"9223372036854775807", "4", "2"},
                                                   {"2", "-4", "2"},
                                                   {"0", "4", "0, 9223372036854775807"},
                                                   {"2", "4", "2, 134217728, 134217728"},
                                                   {"2", "4", "-2"}};
  for (const auto& [numel, item_size, sizes] : impossible) {
    SCOPED_TRACE(sizes);
    const auto graph = read(with(numel, item_size, sizes));
    ASSERT_TRUE(graph) << to_string(graph.error());
    const Tensor& tensor = graph->tensors.at(0);
    EXPECT_EQ(tensor.bytes(), 0);
    for (const std::int64_t size : graph->shape(tensor)) EXPECT_EQ(size, 0);
    ASSERT_EQ(graph->warnings.size(), 1u);
    EXPECT_NE(graph->warnings[0].find("1 tensors have sizes"), std::string::npos);
  }
}

// ---- what the graph says -----------------------------------------------------------------------

TEST_F(ReadExecutionGraph, StepsAreCutAtTheirMarksAndEmptyOnesDropped) {
  const std::string label = R"(, "scope": 7)";
  const auto graph =
      good(flat(small_node(2, 1, "ProfilerStep#4", label) + "," + small_node(3, 2) + "," +
                small_node(4, 1, "ProfilerStep#5", label) + "," + small_node(5, 4) + "," +
                small_node(6, 4) + "," + small_node(7, 1, "ProfilerStep#6", label)));
  const auto steps = iterations(graph);
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[0].name, "ProfilerStep#4");
  EXPECT_EQ(steps[0].begin, 1);
  EXPECT_EQ(steps[0].end, 3);
  EXPECT_EQ(steps[1].name, "ProfilerStep#5");
  EXPECT_EQ(steps[1].end, 6);  // the empty step begins there
}

TEST_F(ReadExecutionGraph, AStepWhoseOpsLieInThoseOfAnotherIsNone) {
  const std::string label = R"(, "scope": 7)";
  const auto graph =
      good(flat(small_node(2, 1, "ProfilerStep#4", label) + "," + small_node(3, 2) + "," +
                small_node(4, 1, "ProfilerStep#5", label) + "," + small_node(5, 3)));
  const auto steps = iterations(graph);
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_EQ(steps[0].name, "ProfilerStep#4");
}

TEST_F(ReadExecutionGraph, PartnersShareTheSequenceNumberAndTheHighestIdWins) {
  const auto graph =
      good(flat(small_node(2, 1, "aten::conv2d", R"(, "seq_id": 9)") + "," +
                small_node(3, 2, "aten::convolution", R"(, "seq_id": 9)") + "," +
                small_node(4, 1, "ConvolutionBackward0", R"(, "seq_id": 9, "scope": 1)") + "," +
                small_node(5, 1, "NoBackward0", R"(, "seq_id": 8, "scope": 1)")));
  const auto partners = forward_partners(graph);
  EXPECT_EQ(partners[3], 2);
  EXPECT_EQ(partners[4], -1);
}

TEST_F(ReadExecutionGraph, DataEdgesFollowTheLastWriterOfTensorOrStorage) {
  // 2 writes tensor 10 (storage 20); 3 reads it; 4 writes tensor 11, a view of storage 20;
  // 5 reads tensor 10 again: by tensor its writer is 2, by storage 4.
  const auto reads = [](int t, int s) {
    return R"(, "inputs": [[)" + std::to_string(t) + "," + std::to_string(s) +
           R"json(, 0, 1, 4, "cpu"]], "input_shapes": [[1]], "input_types": ["Tensor(float)"])json";
  };
  const auto writes = [](int t, int s) {
    return R"(, "outputs": [[)" + std::to_string(t) + "," + std::to_string(s) +
           R"json(, 0, 1, 4, "cpu"]], "output_shapes": [[1]], "output_types": ["Tensor(float)"])json";
  };
  const auto graph = good(flat(
      small_node(2, 1, "w", writes(10, 20)) + "," + small_node(3, 1, "r", reads(10, 20)) + "," +
      small_node(4, 1, "v", writes(11, 20)) + "," + small_node(5, 1, "r", reads(10, 20))));
  const auto by_tensor = data_edges(graph, DataEdgeKey::kTensor);
  ASSERT_EQ(by_tensor.size(), 2u);
  EXPECT_EQ(by_tensor[1].from, 1);
  EXPECT_EQ(by_tensor[1].to, 4);
  const auto by_storage = data_edges(graph, DataEdgeKey::kStorage);
  ASSERT_EQ(by_storage.size(), 2u);
  EXPECT_EQ(by_storage[1].from, 3);
}

}  // namespace read_execution_graph_test
}  // namespace perfmodel
