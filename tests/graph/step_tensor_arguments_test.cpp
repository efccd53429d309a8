// Which tensor a node has at a position, and which writes come before a node.
#include <gtest/gtest.h>

#include "builders/emit/graph_builder.hpp"
#include "rewrite/graph_edit.hpp"
#include "step/tensor_arguments.hpp"
#include "step/unique_ids.hpp"

namespace perfmodel {
namespace step_tensor_arguments_test {

// add(x, 1) -> y inside of a program.
ExecutionGraph sum() {
  GraphBuilder builder;
  const auto tensor = [&] { return builder.new_tensor(DType::kFloat32, {4}); };
  builder.begin_plain("program");
  builder.leaf_op("aten::add.Tensor", {tensor(), 1, 1}, {tensor()});
  builder.end_op();
  return builder.finish();
}

std::int32_t node_of(const ExecutionGraph& graph, std::string_view name) {
  std::int32_t node = 0;
  while (graph.name(node) != name) ++node;
  return node;
}

TEST(TensorArguments, AreNullWhereNoTensorStands) {
  const ExecutionGraph graph = sum();
  const std::int32_t add = node_of(graph, "aten::add");
  EXPECT_EQ(input_at(graph, add, 0), &graph.tensors[graph.inputs(add)[0].index]);
  EXPECT_EQ(input_at(graph, add, 1), nullptr);
  EXPECT_EQ(input_at(graph, add, 9), nullptr);
  EXPECT_EQ(output_at(graph, add), &graph.tensors[graph.outputs(add)[0].index]);
  EXPECT_EQ(output_at(graph, add, 1), nullptr);
}

TEST(UniqueIds, GiveWayToRecordedOnes) {
  ExecutionGraph recorded = sum();
  const std::int32_t add = node_of(recorded, "aten::add");
  recorded.built = false;
  ExecutionGraph made = recorded;
  Tensor& result = made.tensors[made.outputs(add)[0].index];
  result.id += 1000;
  const ExecutionGraph renamed = made;
  restore_recorded_ids(recorded, renamed, made);
  EXPECT_EQ(output_at(made, add)->id, output_at(recorded, add)->id);
  EXPECT_EQ(input_at(made, add, 0)->id, input_at(recorded, add, 0)->id);
}

TEST(GraphEdit, WritesBeforeANodeThatGoes) {
  const ExecutionGraph graph = sum();
  const std::int32_t add = node_of(graph, "aten::add");
  GraphEdit edit(graph);
  const auto write = [&](const char* op) {
    return [&edit, add, op] {
      edit.copy().close_beside(add);
      edit.builder().begin_plain(op);
      edit.builder().end_op();
    };
  };
  edit.precede(add, write("first"));
  edit.replace(add, write("second"));
  const ExecutionGraph made = edit.write();
  EXPECT_EQ(node_of(made, "second"), node_of(made, "first") + 1);
  EXPECT_EQ(made.node(node_of(made, "first")).parent, node_of(made, "program"));
}

}  // namespace step_tensor_arguments_test
}  // namespace perfmodel
