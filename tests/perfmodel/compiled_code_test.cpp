// The host's time in code that torch.compile wrote, and in captured graphs.
#include "perfmodel/predict.hpp"

#include <gtest/gtest.h>

#include <string>

#include "../predictors/graph_fixture.hpp"
#include "builders/emit/graph_builder.hpp"

namespace perfmodel {
namespace compiled_code_test {

constexpr double kLaunchUs = 4;

// Only the time of a launch is known, so only compiled code takes the host any time.
OverheadTable table_of_launches() {
  OverheadTable table;
  table.t4["cudaLaunchKernel"] = {.mean_us = kLaunchUs, .count = 1};
  return table;
}

// A region with a product and a kernel of Triton, which lists `listed` tensors if not 0; `inside`:
// of this node, if it has a name.
ExecutionGraph region(const std::string& name, const std::string& inside = {}, int listed = 0) {
  GraphBuilder graph;
  const TensorRef a = graph.new_tensor(DType::kFloat32, {8, 8});
  const TensorRef product = graph.new_tensor(DType::kFloat32, {8, 8});
  const TensorRef sum = graph.new_tensor(DType::kFloat32, {8, 8});
  graph.begin_plain(name, std::vector<Value>(listed, Value(a)));
  if (!inside.empty()) graph.begin_plain(inside);
  graph.leaf_op("aten::mm", {a, a}, {product});
  graph.begin_plain("triton_poi_fused_add_0", {product, 64});
  ExecutionGraph& made = graph.graph_being_made();
  made.nodes.back().kernel_backend = made.names.intern("triton");
  graph.end_op({sum});
  if (!inside.empty()) graph.end_op();
  graph.end_op();
  return graph.finish();
}

double host_us(const ExecutionGraph& graph, const OverheadTable& table = table_of_launches()) {
  const auto made = predict(graph, test_support::round_gpu(), table, {});
  if (!made) {
    ADD_FAILURE() << to_string(made.error());
    return 0;
  }
  return made->cpu_us;
}

TEST(CompiledCode, LaunchesKernelsFromOneFunction) {
  // One tensor enters: guards and wrappers of 6.3 launches in front, 0.24 after; two launches; 2
  // between them.
  for (const std::string name : {"Torch-Compiled Region: 0/0", "CompiledFunction",
                                 "autograd::engine::evaluate_function: CompiledFunctionBackward"}) {
    EXPECT_NEAR(host_us(region(name)), (6.3 + 1 + 2 + 1 + 0.24) * kLaunchUs, 1e-9) << name;
  }
  EXPECT_NEAR(host_us(region("my_op")), 2 * kLaunchUs, 1e-9);
}

TEST(CompiledCode, GuardsGrowWithTheTensorsThatEnter) {
  const double more =
      host_us(region("CompiledFunction", {}, 101)) - host_us(region("CompiledFunction", {}, 1));
  EXPECT_NEAR(more, (30 + 24) * kLaunchUs, 1e-9);
}

TEST(CompiledCode, OpsThatALibraryOpCallsTakeTheirTime) {
  GraphBuilder graph;
  const TensorRef a = graph.new_tensor(DType::kFloat32, {8, 8});
  graph.begin_plain("CompiledFunction");
  for (int call = 0; call < 2; ++call) {
    const TensorRef made = graph.new_tensor(DType::kFloat32, {8, 8});
    graph.begin_plain("aten::matmul");
    graph.leaf_op("aten::mm", {a, a}, {made});
    graph.leaf_op("aten::_unsafe_view", {made}, {made});
    graph.end_op({made});
  }
  graph.end_op();
  // The first view is between the launches.
  EXPECT_NEAR(host_us(graph.finish()), (6.3 + 1 + 3.9 + 0.25 + 1 + 0.24) * kLaunchUs, 1e-9);
}

TEST(CompiledCode, OneLaunchStartsACapturedGraph) {
  // 1 ns for each of two nodes.
  const double launch_us = kLaunchUs + 2e-3;
  EXPECT_NEAR(host_us(region("Torch-Compiled Region: 0/0", "CUDAGraph.replay")),
              (6.3 + 0.24) * kLaunchUs + launch_us, 1e-9);
}

TEST(CompiledCode, ATableThatKnowsTheRegionIsRight) {
  OverheadTable table = table_of_launches();
  const std::string name = "CompiledFunction";
  table.t2.by_name[hash_text(name)] = {.name = name, .stats = {.mean_us = 5, .count = 1}};
  EXPECT_NEAR(host_us(region(name), table), 5 + 2 * kLaunchUs, 1e-9);
}

}  // namespace compiled_code_test
}  // namespace perfmodel
