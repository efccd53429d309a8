// Questions that several readers ask of a training step: its first step, what ends with a node,
// what reused ids name, how long storages live.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "builders/emit/graph_builder.hpp"
#include "perfmodel/graph/build_model.hpp"
#include "perfmodel/graph/detail/storage_lifetimes.hpp"
#include "step/by_id.hpp"
#include "step/step_view.hpp"
#include "step/tree_walk.hpp"
#include "step/unique_ids.hpp"

namespace perfmodel {
namespace step_readers_test {

using testing::ElementsAre;
using testing::IsEmpty;

std::int32_t node_of(const ExecutionGraph& graph, std::string_view name, int which = 0) {
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(graph.nodes.size()); ++i) {
    if (graph.name(i) == name && which-- == 0) return i;
  }
  ADD_FAILURE() << "no " << name;
  return 0;
}

const Tensor& given_by(const ExecutionGraph& graph, std::string_view name, int which = 0) {
  return graph.tensors[graph.outputs(node_of(graph, name, which))[0].index];
}
const Tensor& taken_by(const ExecutionGraph& graph, std::string_view name) {
  return graph.tensors[graph.inputs(node_of(graph, name))[0].index];
}

// As a recording that gave `later` the address of `first`.
void reuse(ExecutionGraph& graph, const Tensor& first, const Tensor& later) {
  graph.built = false;
  const std::int64_t id = first.id, storage = first.storage_id, freed = later.id;
  for (Tensor& one : graph.tensors) {
    if (one.id != freed) continue;
    one.id = id;
    one.storage_id = storage;
  }
}

// outer(x) -> b, in which an op makes `a`, exp reads it, and relu makes `b` where `a` was.
ExecutionGraph recording_of_temporary() {
  GraphBuilder builder;
  const auto tensor = [&](std::int64_t size) {
    return builder.new_tensor(DType::kFloat32, {size});
  };
  const TensorRef x = tensor(4), a = tensor(4), other = tensor(4), b = tensor(8);
  builder.begin_plain("program");
  builder.begin_op("aten::gelu", {x, kNone});
  builder.leaf_op("aten::neg", {x}, {a});
  builder.leaf_op("aten::exp", {a}, {other});
  builder.leaf_op("aten::relu", {other}, {b});
  builder.end_op({b});
  builder.leaf_op("aten::tanh", {b}, {x});
  builder.end_op();
  ExecutionGraph graph = builder.finish();
  reuse(graph, given_by(graph, "aten::neg"), given_by(graph, "aten::relu"));
  return graph;
}

TEST(UniqueIds, TellATemporaryApartFromTheResultAtItsAddress) {
  const ExecutionGraph recorded = recording_of_temporary();
  ASSERT_EQ(given_by(recorded, "aten::neg").id, given_by(recorded, "aten::gelu").id);
  const ExecutionGraph graph = with_unique_ids(recorded);
  EXPECT_EQ(taken_by(graph, "aten::exp").id, given_by(graph, "aten::neg").id);
  EXPECT_NE(given_by(graph, "aten::relu").id, given_by(graph, "aten::neg").id);
  EXPECT_EQ(given_by(graph, "aten::gelu").id, given_by(graph, "aten::relu").id);
  EXPECT_EQ(taken_by(graph, "aten::tanh").storage_id, given_by(graph, "aten::relu").storage_id);
}

// A call takes its buffer, the op in it says that the buffer is its result.
TEST(UniqueIds, KeepABufferThatACallWasGiven) {
  GraphBuilder builder;
  const TensorRef x = builder.new_tensor(DType::kFloat32, {4});
  const TensorRef buffer = builder.new_tensor(DType::kFloat32, {4});
  builder.begin_plain("program");
  builder.leaf_op("aten::empty.memory_format", {}, {buffer});
  builder.begin_op("aten::add_.Tensor", {buffer, x, 1});
  builder.leaf_op("aten::neg", {x}, {buffer});
  builder.end_op({});
  builder.end_op();
  ExecutionGraph graph = builder.finish();
  graph.built = false;
  EXPECT_FALSE(without_reused_ids(graph, static_cast<std::int32_t>(graph.nodes.size())));
  EXPECT_EQ(storage_lifetimes(graph).storages.size(), 2u) << "x and the buffer";
}

TEST(StorageLifetimes, NameTensorsOfTheRecordedGraph) {
  ExecutionGraph recorded = recording_of_temporary();
  // Two mentions share an entry, as readers of files leave them.
  const std::uint32_t entry = recorded.outputs(node_of(recorded, "aten::neg"))[0].index;
  const Node& relu = recorded.node(node_of(recorded, "aten::relu"));
  recorded.arguments[relu.outputs_begin].index = entry;
  const StepView step(recorded);
  ASSERT_GT(step.graph().tensors.size(), recorded.tensors.size());
  const StorageLifetimes lifetimes = storage_lifetimes(recorded);
  EXPECT_EQ(lifetimes.storages.size(), step.lifetimes().storages.size());
  for (const StorageLifetime& storage : lifetimes.storages) {
    ASSERT_LT(storage.tensor, recorded.tensors.size());
    EXPECT_EQ(recorded.tensors[storage.tensor].bytes(), storage.bytes);
  }
}

TEST(EndingNodes, InnerOnesComeFirst) {
  const ExecutionGraph graph = recording_of_temporary();
  const auto end = static_cast<std::int32_t>(graph.nodes.size());
  const EndingNodes ending(graph, 0, end);
  const std::int32_t gelu = node_of(graph, "aten::gelu"), relu = node_of(graph, "aten::relu");
  const auto ends_with = [&](std::int32_t node) {
    std::vector<std::int32_t> ended;
    ending.for_each(node, [&](std::int32_t one) { ended.push_back(one); });
    return ended;
  };
  EXPECT_EQ(ending.last(gelu), relu);
  EXPECT_THAT(ends_with(relu), ElementsAre(relu, gelu));
  EXPECT_THAT(ends_with(gelu), IsEmpty());
  EXPECT_EQ(ends_with(end - 1).back(), 0) << "the root ends last";
}

TEST(FirstStep, IsEmptyWithoutOps) {
  EXPECT_EQ(first_step(ExecutionGraph{}).end, 0);
  const ExecutionGraph graph = build_mlp({}).value();
  EXPECT_EQ(first_step(graph).begin, iterations(graph).front().begin);
  EXPECT_EQ(first_step(graph).end, iterations(graph).front().end);
}

TEST(ById, SmallAndLargeIdsHaveFacts) {
  ById<int> facts(2, -1);
  const std::int64_t small = 3, large = std::int64_t{1} << 50;
  facts[small] = 5;
  facts[large] = 7;
  EXPECT_EQ(facts[small], 5);
  EXPECT_EQ(facts[large], 7);
  EXPECT_EQ(facts[small + 1], -1);
  EXPECT_EQ(facts[-large], -1);
}

}  // namespace step_readers_test
}  // namespace perfmodel
