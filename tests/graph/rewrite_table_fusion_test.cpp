// Many embedding bags as one FBGEMM lookup.
#include "perfmodel/graph/rewrites/table_fusion.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "emit/embedding.hpp"
#include "graph_comparison.hpp"
#include "perfmodel/graph/build_dlrm.hpp"
#include "perfmodel/graph/build_mlp.hpp"

namespace perfmodel {
namespace {

DlrmConfig bags() {
  DlrmConfig config = *dlrm_preset("default");
  config.table_batched = false;
  return config;
}

ExecutionGraph value(Result<ExecutionGraph> graph) {
  if (!graph) {
    ADD_FAILURE() << to_string(graph.error());
    return {};
  }
  return std::move(*graph);
}

// Every preset, dot products and vectors side by side.
TEST(TableFusion, IsTheBatchedModelOpByOp) {
  for (const char* preset : {"default", "mlperf", "ddp"}) {
    for (const bool dot : {true, false}) {
      DlrmConfig config = *dlrm_preset(preset);
      config.interaction_dot = dot;
      const ExecutionGraph batched = value(build_dlrm(config));
      config.table_batched = false;
      const ExecutionGraph fused = value(rewrite_table_fusion(value(build_dlrm(config))));
      const auto comparison = compare_graphs(batched, fused);
      EXPECT_TRUE(comparison.same()) << preset << "\n" << comparison;
    }
  }
}

TEST(TableFusion, MayTrainTablesByRowwiseAdagrad) {
  const ExecutionGraph fused = value(rewrite_table_fusion(
      value(build_dlrm(bags())), {.optimizer = TableFusionRewrite::Optimizer::kRowwiseAdagrad}));
  std::size_t lookups = 0;
  for (const Node& node : fused.nodes) {
    lookups +=
        fused.name(node) == "fbgemm::split_embedding_codegen_lookup_rowwise_adagrad_function";
  }
  EXPECT_EQ(lookups, 1u);
}

std::string refusal(const ExecutionGraph& graph) {
  const auto made = rewrite_table_fusion(graph);
  return made ? "" : made.error().message;
}

TEST(TableFusion, SaysWhyNot) {
  EXPECT_EQ(refusal(value(build_mlp({}))),
            "table fusion: expected at least two aten::embedding_bag in a step, found 0");
  DlrmConfig one = bags();
  one.tables.resize(1);
  EXPECT_EQ(refusal(value(build_dlrm(one))),
            "table fusion: expected at least two aten::embedding_bag in a step, found 1");
  EXPECT_EQ(refusal(value(build_dlrm(*dlrm_preset("default")))),
            "table fusion: expected at least two aten::embedding_bag in a step, found 0");
}

// Two bags by hand: what is wrong with them is found before anything else.
ExecutionGraph two_bags(std::int64_t second_batch, const char* reader,
                        const PyTorch& pytorch = {}) {
  GraphBuilder graph(pytorch);
  AutogradTape tape(graph);
  std::vector<TensorRef> vectors;
  for (const std::int64_t batch : {std::int64_t{8}, second_batch}) {
    const TensorRef weight = graph.new_tensor(DType::kFloat32, {100, 4});
    tape.add_parameter(weight);
    vectors.push_back(embedding_bag(tape, weight, graph.new_tensor(DType::kInt64, {32}),
                                    graph.new_tensor(DType::kInt64, {batch})));
  }
  graph.leaf_op(reader, {vectors[0]}, {graph.new_tensor(DType::kFloat32, {8, 4})});
  return graph.finish();
}

TEST(TableFusion, NeedsBagsOfOneKind) {
  EXPECT_EQ(refusal(two_bags(9, "aten::relu")), "table fusion: expected one batch, found 8 and 9");
  const std::string elsewhere = refusal(two_bags(8, "aten::relu"));
  EXPECT_TRUE(
      elsewhere.starts_with("table fusion: expected vectors that go side by side into one "
                            "aten::cat, found aten::relu (node "))
      << elsewhere;
  PyTorch cpu;
  cpu.device = GraphBuilder::cpu();
  EXPECT_EQ(refusal(two_bags(8, "aten::relu", cpu)),
            "table fusion: expected tables on a GPU, found one on a CPU");
}

}  // namespace
}  // namespace perfmodel
