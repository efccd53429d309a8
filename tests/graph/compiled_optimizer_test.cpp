#include "perfmodel/graph/rewrites/compiled_optimizer.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "builders/emit/optimizers.hpp"
#include "rewrite_invariants.hpp"
#include "small_models.hpp"

namespace perfmodel {
namespace compiled_optimizer_test {

using Optimizer = TrainingOptions::Optimizer;
using Implementation = TrainingOptions::Implementation;

const PyTorch kCpu{.device = {.kind = Device::Kind::kCpu}};

// One step for `count` vectors of 10 numbers.
ExecutionGraph step_of(Optimizer optimizer, Implementation how, int count,
                       const PyTorch& pytorch = {}) {
  GraphBuilder graph(pytorch);
  std::vector<ParameterUpdate> updates;
  for (int i = 0; i < count; ++i) {
    updates.push_back({.parameter = graph.new_tensor(DType::kFloat32, {10}),
                       .gradient = graph.new_tensor(DType::kFloat32, {10})});
  }
  graph.begin_label("Optimizer.step#" + std::string(optimizer_class(optimizer)) + ".step");
  emit_optimizer(graph, optimizer_settings(optimizer, how), updates);
  graph.end_op();
  return graph.finish();
}

std::vector<const Node*> kernels_of(const ExecutionGraph& graph) {
  std::vector<const Node*> kernels;
  for (const Node& node : graph.nodes) {
    if (graph.names.text(node.kernel_backend) == "triton") kernels.push_back(&node);
  }
  return kernels;
}

std::string error_of(const Result<ExecutionGraph>& made) {
  return made ? "" : made.error().message;
}

TEST(CompiledOptimizer, AdamReadsFourTensorsOfAParameterAndWritesThree) {
  for (const auto how : {Implementation::kLoop, Implementation::kForeach}) {
    const ExecutionGraph source = step_of(Optimizer::kAdam, how, 60);
    const auto made = rewrite_compiled_optimizer(source);
    ASSERT_TRUE(made) << error_of(made);
    // 7 arguments each: 35 parameters fit into the 250 of a kernel.
    const auto kernels = kernels_of(*made);
    ASSERT_EQ(kernels.size(), 2U);
    EXPECT_EQ(kernels[0]->inputs_count, 35U * 4 + 1);
    EXPECT_EQ(kernels[0]->outputs_count, 35U * 3);
    EXPECT_EQ(kernels[1]->inputs_count, 25U * 4 + 1);
    EXPECT_EQ(made->inputs(*kernels[0]).back().integer, 350);
    EXPECT_EQ(made->name(*kernels[0]), "triton_for_fused_0");
    EXPECT_EQ(made->name(kernels[0]->parent), "Torch-Compiled Region: 1/0");
    EXPECT_EQ(test_support::broken_structure(source, *made), std::nullopt);
    EXPECT_EQ(test_support::differs_when_read_back(*made), std::nullopt);
  }
}

TEST(CompiledOptimizer, SgdReadsGradientAndParameter) {
  const auto made =
      rewrite_compiled_optimizer(step_of(Optimizer::kSgd, Implementation::kForeach, 2));
  ASSERT_TRUE(made) << error_of(made);
  const auto kernels = kernels_of(*made);
  ASSERT_EQ(kernels.size(), 1U);
  EXPECT_EQ(kernels[0]->inputs_count, 2U * 2 + 1);
  EXPECT_EQ(kernels[0]->outputs_count, 2U);
}

TEST(CompiledOptimizer, AFusedStepStays) {
  const ExecutionGraph source = step_of(Optimizer::kAdam, Implementation::kFused, 2);
  const auto made = rewrite_compiled_optimizer(source);
  ASSERT_TRUE(made) << error_of(made);
  EXPECT_EQ(test_support::difference_up_to_ids(source, *made), std::nullopt);
}

TEST(CompiledOptimizer, NamesWhatItCannotCompile) {
  EXPECT_NE(
      error_of(rewrite_compiled_optimizer(step_of(Optimizer::kAdam, Implementation::kEightBit, 2)))
          .find("8 bits"),
      std::string::npos);
  EXPECT_NE(
      error_of(rewrite_compiled_optimizer(step_of(Optimizer::kSgd, Implementation::kLoop, 2, kCpu)))
          .find("found one of [10] on a CPU"),
      std::string::npos);
  EXPECT_NE(error_of(rewrite_compiled_optimizer(ExecutionGraph{})).find("Optimizer.step"),
            std::string::npos);
}

TEST(CompiledOptimizer, KeepsTheStructureOfBuiltModels) {
  for (const auto& [name, source] : test_support::small_models()) {
    const auto made = rewrite_compiled_optimizer(source);
    if (!made) continue;  // on a CPU, or without an optimizer
    EXPECT_EQ(test_support::broken_structure(source, *made), std::nullopt) << name;
    EXPECT_FALSE(kernels_of(*made).empty()) << name;
  }
}

}  // namespace compiled_optimizer_test
}  // namespace perfmodel
