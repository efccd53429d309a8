// Foundations of rewrites: ids that are versions, makers and readers of a value, edits written
// once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "builders/emit/graph_builder.hpp"
#include "perfmodel/graph/build_model.hpp"
#include "perfmodel/graph/build_transformers.hpp"
#include "perfmodel/graph/rewrite.hpp"
#include "rewrite/graph_edit.hpp"
#include "step/step_view.hpp"
#include "step/unique_ids.hpp"

namespace perfmodel {
namespace step_test {

using testing::ElementsAre;

std::int32_t node_of(const ExecutionGraph& graph, std::string_view name) {
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(graph.nodes.size()); ++i) {
    if (graph.name(i) == name) return i;
  }
  ADD_FAILURE() << "no " << name;
  return 0;
}

const Tensor& given_by(const ExecutionGraph& graph, std::string_view name) {
  return graph.tensors[graph.outputs(node_of(graph, name))[0].index];
}
const Tensor& taken_by(const ExecutionGraph& graph, std::string_view name) {
  return graph.tensors[graph.inputs(node_of(graph, name))[0].index];
}

// relu(x) -> a, add_(a), exp(a) -> b, and, when `b` was freed, clone(x) -> c in whose call
// aten::empty makes it, tanh(c) -> d. As a recording `c` has the ids of `a`.
ExecutionGraph recording_that_reuses() {
  GraphBuilder builder;
  const auto tensor = [&] { return builder.new_tensor(DType::kFloat32, {4}); };
  const TensorRef x = tensor(), a = tensor(), b = tensor(), c = tensor(), d = tensor();
  builder.begin_plain("program");
  builder.leaf_op("aten::relu", {x}, {a});
  builder.leaf_op("aten::add_.Tensor", {a, x, 1}, {a});
  builder.leaf_op("aten::exp", {a}, {b});
  builder.begin_op("aten::clone", {x, kNone});
  builder.leaf_op("aten::empty.memory_format", {}, {c});
  builder.end_op({c});
  builder.leaf_op("aten::tanh", {c}, {d});
  builder.end_op();
  ExecutionGraph graph = builder.finish();
  graph.built = false;
  const Tensor first = given_by(graph, "aten::relu");
  const std::int64_t later = given_by(graph, "aten::clone").id;
  for (Tensor& one : graph.tensors) {
    if (one.id != later) continue;
    one.id = first.id;
    one.storage_id = first.storage_id;
  }
  return graph;
}

TEST(UniqueIds, TellApartWhatHasOneAddress) {
  const ExecutionGraph recorded = recording_that_reuses();
  ASSERT_EQ(given_by(recorded, "aten::clone").id, given_by(recorded, "aten::relu").id);
  const ExecutionGraph graph = with_unique_ids(recorded);
  const Tensor &early = given_by(graph, "aten::relu"), &late = given_by(graph, "aten::clone");
  EXPECT_NE(late.id, early.id);
  EXPECT_NE(late.storage_id, early.storage_id);
  EXPECT_EQ(given_by(graph, "aten::add_").id, early.id) << "in place it stays the same tensor";
  EXPECT_EQ(taken_by(graph, "aten::exp").id, early.id);
  EXPECT_EQ(given_by(graph, "aten::empty").id, late.id) << "the op around it has given it";
  EXPECT_EQ(taken_by(graph, "aten::tanh").id, late.id);
  EXPECT_EQ(taken_by(graph, "aten::relu").id, taken_by(recorded, "aten::relu").id);
}

TEST(UniqueIds, StayWhenTheyAreAskedAgain) {
  const ExecutionGraph once = with_unique_ids(recording_that_reuses());
  const ExecutionGraph twice = with_unique_ids(once);
  ASSERT_EQ(twice.tensors.size(), once.tensors.size());
  for (std::size_t i = 0; i < once.tensors.size(); ++i) {
    EXPECT_EQ(twice.tensors[i].id, once.tensors[i].id);
    EXPECT_EQ(twice.tensors[i].storage_id, once.tensors[i].storage_id);
  }
}

TEST(UniqueIds, TellApartEvenWhatSharesAnEntry) {
  ExecutionGraph recorded = recording_that_reuses();
  const std::uint32_t shared = recorded.outputs(node_of(recorded, "aten::relu"))[0].index;
  const std::int32_t tanh = node_of(recorded, "aten::tanh");
  recorded.arguments[recorded.node(tanh).inputs_begin].index = shared;
  const ExecutionGraph graph = with_unique_ids(recorded);
  EXPECT_EQ(taken_by(graph, "aten::tanh").id, given_by(graph, "aten::clone").id);
  EXPECT_EQ(taken_by(graph, "aten::exp").id, given_by(graph, "aten::relu").id);
}

TEST(Values, KnowTheirMakersAndReaders) {
  const ExecutionGraph recorded = recording_that_reuses();
  const StepView step(recorded);
  const ExecutionGraph& graph = step.graph();
  const Values& tensors = step.tensors();
  const std::int32_t relu = tensors.of(given_by(graph, "aten::relu"));
  const std::int32_t clone = tensors.of(taken_by(graph, "aten::tanh"));
  EXPECT_EQ(tensors.maker(relu), node_of(graph, "aten::relu"));
  EXPECT_THAT(tensors.readers(relu),
              ElementsAre(node_of(graph, "aten::add_"), node_of(graph, "aten::exp")));
  EXPECT_EQ(tensors.maker(clone), node_of(graph, "aten::clone")) << "the outermost op";
  EXPECT_THAT(tensors.readers(clone), ElementsAre(node_of(graph, "aten::tanh")));
  EXPECT_EQ(tensors.maker(tensors.of(taken_by(graph, "aten::relu"))), -1) << "it was there before";
  FactsOfValues<int> facts(tensors, 7);
  facts[given_by(graph, "aten::relu")] = 3;
  EXPECT_EQ(facts[taken_by(graph, "aten::exp")], 3);
  EXPECT_EQ(facts[taken_by(graph, "aten::tanh")], 7);
}

std::vector<std::string> names_of(const ExecutionGraph& graph) {
  std::vector<std::string> names;
  for (const Node& node : graph.nodes) {
    if (!node.is_structural) names.emplace_back(graph.name(node));
  }
  return names;
}

TEST(GraphEdit, WritesWhatWasSaidInAnyOrder) {
  const ExecutionGraph source = recording_that_reuses();
  GraphEdit edit(source);
  const auto marked = [&edit](const char* name) {
    return [&edit, name] {
      edit.builder().begin_plain(name);
      edit.builder().end_op();
    };
  };
  const std::int32_t exp = node_of(source, "aten::exp");
  edit.follow_tree(node_of(source, "aten::clone"), marked("behind the tree"));
  edit.follow(node_of(source, "aten::clone"), marked("inside, first"));
  edit.replace(exp, [&, exp] {
    edit.copy().close_beside(exp);
    marked("instead")();
  });
  edit.replace(node_of(source, "aten::tanh"));
  EXPECT_THAT(names_of(edit.write()),
              ElementsAre("program", "aten::relu", "aten::add_", "instead", "aten::clone",
                          "inside, first", "aten::empty", "behind the tree"));
}

TEST(GraphEdit, LeavesOutNodesAloneOrWhatIsBelowThem) {
  const ExecutionGraph source = recording_that_reuses();
  const std::int32_t clone = node_of(source, "aten::clone"), empty = clone + 1;
  GraphEdit alone(source);
  alone.unwrap(clone);
  const ExecutionGraph unwrapped = alone.write();
  EXPECT_EQ(unwrapped.name(unwrapped.node(node_of(unwrapped, "aten::empty")).parent), "program");
  GraphEdit inside(source);
  inside.refill(clone, [&] { inside.builder().leaf_op("aten::relu", {}, {}); });
  const ExecutionGraph refilled = inside.write();
  EXPECT_THAT(names_of(refilled), testing::Not(testing::Contains("aten::empty")));
  EXPECT_EQ(refilled.name(empty), "aten::relu");
  EXPECT_EQ(refilled.node(empty).parent, clone);
}

TEST(StepView, SaysWhatAGraphIsNot) {
  const ExecutionGraph forward = recording_that_reuses();
  const auto refusal = StepView(forward).check("fold", {.backward = true});
  ASSERT_FALSE(refusal);
  EXPECT_EQ(refusal.error().message, "fold: expected a backward pass, found none");
  const ExecutionGraph mlp = build_mlp(mlp_preset("mnist").value()).value();
  EXPECT_TRUE(StepView(mlp).check("fold", {.no_offload = true,
                                           .no_collectives = true,
                                           .no_checkpoints = true,
                                           .one_pass = true,
                                           .backward = true}));
}

}  // namespace step_test
}  // namespace perfmodel
