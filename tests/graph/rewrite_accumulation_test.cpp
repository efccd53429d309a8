// Several backward passes for one step of the optimizer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "perfmodel/graph/build_model.hpp"
#include "perfmodel/graph/build_transformers.hpp"
#include "perfmodel/graph/detail/storage_lifetimes.hpp"
#include "perfmodel/graph/model_size.hpp"
#include "perfmodel/graph/rewrite.hpp"
#include "perfmodel/graph/rewrites/memory.hpp"
#include "perfmodel/graph/rewrites/resize.hpp"
#include "perfmodel/graph/rewrites/training.hpp"

namespace perfmodel {
namespace rewrite_accumulation_test {

using testing::HasSubstr;
using ZeroGrad = TrainingOptions::ZeroGrad;

// Its output layer shares the word embeddings.
ExecutionGraph small_gpt(ZeroGrad zero_grad = ZeroGrad::kDefault) {
  GptConfig config = gpt_preset("gpt2").value();
  config.layers = 2;
  config.hidden = 64;
  config.heads = 4;
  config.feed_forward = 256;
  config.vocabulary = 200;
  config.batch = 4;
  config.sequence = 32;
  config.training.optimizer = TrainingOptions::Optimizer::kAdam;
  config.training.zero_grad = zero_grad;
  return build_gpt(config).value();
}

ExecutionGraph accumulated(const ExecutionGraph& graph, std::int64_t passes) {
  auto made = rewrite_accumulation(graph, passes);
  if (made) return std::move(*made);
  ADD_FAILURE() << to_string(made.error());
  return {};
}

std::string error_of(const Result<ExecutionGraph>& made) {
  return made ? "none" : to_string(made.error());
}

std::map<std::string, int> counts(const ExecutionGraph& graph) {
  std::map<std::string, int> made;
  for (const Node& node : graph.nodes) ++made[std::string(graph.name(node))];
  return made;
}

// Gradients that are added to what is kept.
int sums(const ExecutionGraph& graph) {
  return static_cast<int>(std::ranges::count_if(graph.nodes, [&](const Node& node) {
    return graph.name(node) == "aten::add_" && node.parent >= 0 &&
           graph.name(graph.nodes[static_cast<std::size_t>(node.parent)]) ==
               "torch::autograd::AccumulateGrad";
  }));
}

std::int64_t bytes(const ExecutionGraph& graph, MemoryPurpose purpose) {
  std::int64_t sum = 0;
  for (const StorageLifetime& storage : storage_lifetimes(graph).storages) {
    if (storage.purpose == purpose) sum += storage.bytes;
  }
  return sum;
}

TEST(Accumulation, ComputesKTimesAndUpdatesOnce) {
  const ExecutionGraph plain = small_gpt(), made = accumulated(plain, 3);
  EXPECT_EQ(model_size(made).matrix_flop, 3 * model_size(plain).matrix_flop);
  EXPECT_EQ(model_size(made).parameters, model_size(plain).parameters);
  EXPECT_EQ(accumulated_passes(made), 3);
  EXPECT_EQ(batch_size(made).value(), 4);
  EXPECT_EQ(samples_per_step(made).value(), 12);

  auto before = counts(plain), after = counts(made);
  const int gradients = before["torch::autograd::AccumulateGrad"];
  EXPECT_EQ(gradients, 28);  // two layers of 12, two embeddings, the last norm
  EXPECT_EQ(after["torch::autograd::AccumulateGrad"], 3 * gradients);
  EXPECT_EQ(after["aten::embedding"], 3 * before["aten::embedding"]);
  EXPECT_EQ(after["Optimizer.step#Adam.step"], 1);
  EXPECT_EQ(after["Optimizer.zero_grad#Adam.zero_grad"], 1);
  // The second and the third pass add each gradient; the loss is divided in each, and its gradient.
  EXPECT_EQ(sums(plain), 0);
  EXPECT_EQ(sums(made), 2 * gradients);
  EXPECT_EQ(after["aten::detach"], before["aten::detach"]);
  EXPECT_EQ(after["DivBackward0"] - 3 * before["DivBackward0"], 3);
}

// Each function of the backward pass finds the op of its own pass.
TEST(Accumulation, PassesHaveNumbersAndTensorsOfTheirOwn) {
  const ExecutionGraph plain = small_gpt(), made = accumulated(plain, 3);
  const auto partners_before = forward_partners(plain), partners = forward_partners(made);
  const auto found = [](const std::vector<std::int32_t>& all) {
    return std::ranges::count_if(all, [](std::int32_t one) { return one >= 0; });
  };
  EXPECT_EQ(found(partners), 3 * found(partners_before) + 3);
  std::set<std::int32_t> distinct(partners.begin(), partners.end());
  distinct.erase(-1);
  EXPECT_EQ(static_cast<std::ptrdiff_t>(distinct.size()), found(partners));

  EXPECT_EQ(bytes(made, MemoryPurpose::kWeights), bytes(plain, MemoryPurpose::kWeights));
  EXPECT_EQ(bytes(made, MemoryPurpose::kGradients), bytes(plain, MemoryPurpose::kGradients));
  EXPECT_EQ(bytes(made, MemoryPurpose::kOptimizer), bytes(plain, MemoryPurpose::kOptimizer));
}

TEST(Accumulation, GradientsThatStayAreFilledWithZerosOnce) {
  const ExecutionGraph plain = small_gpt(ZeroGrad::kToZero), made = accumulated(plain, 2);
  auto after = counts(made);
  EXPECT_EQ(sums(plain), 28);
  EXPECT_EQ(sums(made), 2 * 28);
  EXPECT_EQ(after["Optimizer.zero_grad#Adam.zero_grad"], 1);
}

TEST(Accumulation, DataParallelReducesInTheLastPassAlone) {
  const ExecutionGraph plain = small_gpt(), made = accumulated(plain, 3);
  const auto reduced = [](const ExecutionGraph& graph) {
    return rewrite_data_parallel(graph, {.world_size = 8}).value();
  };
  const ExecutionGraph one = reduced(plain), three = reduced(made);
  auto before = counts(one), after = counts(three);
  EXPECT_GT(before["nccl:all_reduce"], 0);
  EXPECT_EQ(after["nccl:all_reduce"], before["nccl:all_reduce"]);
  EXPECT_EQ(after["torch::distributed::reducer::mul_out"],
            before["torch::distributed::reducer::mul_out"]);
  // All three passes have begun when the first bucket is reduced.
  std::int32_t first_reduce = -1, passes_begun = 0;
  for (std::size_t i = 0; i < three.nodes.size(); ++i) {
    const std::string_view name = three.name(three.nodes[i]);
    passes_begun += name == "aten::ones_like" && first_reduce < 0;
    if (name == "nccl:all_reduce" && first_reduce < 0) first_reduce = static_cast<std::int32_t>(i);
  }
  EXPECT_EQ(passes_begun, 3);
}

TEST(Accumulation, OnePassIsTheGraphAsItIs) {
  const ExecutionGraph plain = small_gpt();
  EXPECT_EQ(accumulated(plain, 1).nodes.size(), plain.nodes.size());
}

TEST(Accumulation, RefusesWhatItCannotSplit) {
  const ExecutionGraph plain = small_gpt(), twice = accumulated(plain, 2);
  EXPECT_THAT(error_of(rewrite_accumulation(plain, 0)), HasSubstr("expected 1 to"));
  EXPECT_THAT(error_of(rewrite_accumulation(twice, 2)), HasSubstr("accumulated already"));
  EXPECT_THAT(
      error_of(rewrite_accumulation(rewrite_data_parallel(plain, {.world_size = 2}).value(), 2)),
      HasSubstr("expected a graph without collectives"));
  EXPECT_THAT(error_of(rewrite_precision(twice, {.precision = PrecisionOptions::Precision::kBf16})),
              HasSubstr("precision: expected one backward pass per step, found gradients of 2"));
  EXPECT_THAT(error_of(rewrite_checkpointing(twice, {})), HasSubstr("accumulate comes after"));
}

// Another batch after accumulation is another batch in each pass.
TEST(Accumulation, CommutesWithTheBatch) {
  const ExecutionGraph plain = small_gpt();
  const ExecutionGraph behind = set_batch_size(accumulated(plain, 2), {.batch = 2}).value();
  const ExecutionGraph before = accumulated(set_batch_size(plain, {.batch = 2}).value(), 2);
  EXPECT_TRUE(graph_difference(behind, before).none())
      << to_string(graph_difference(behind, before));
}

}  // namespace rewrite_accumulation_test
}  // namespace perfmodel
