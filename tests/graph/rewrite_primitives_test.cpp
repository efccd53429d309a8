#include "perfmodel/graph/rewrite.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "../scratch.hpp"
#include "graph_comparison.hpp"
#include "perfmodel/graph/build_recommenders.hpp"
#include "perfmodel/graph/read_execution_graph.hpp"
#include "perfmodel/graph/rewrites/resize.hpp"
#include "perfmodel/graph/write_execution_graph.hpp"

namespace perfmodel {
namespace rewrite_primitives_test {

using ::testing::HasSubstr;

const ExecutionGraph& dlrm() {
  static const ExecutionGraph graph = build_dlrm(dlrm_preset("ddp").value()).value();
  return graph;
}

std::size_t count(const ExecutionGraph& graph, std::string_view name) {
  std::size_t number = 0;
  for (const Node& node : graph.nodes) number += graph.name(node) == name;
  return number;
}

std::size_t below(const ExecutionGraph& graph, std::string_view name) {
  std::size_t number = 0;
  for (const Node& node : graph.nodes) {
    for (auto i = node.parent; i >= 0; i = graph.nodes[static_cast<std::size_t>(i)].parent) {
      if (graph.name(graph.nodes[static_cast<std::size_t>(i)]) != name) continue;
      ++number;
      break;
    }
  }
  return number;
}

TEST(Subgraph, KeepsWhatLiesUnderALabel) {
  const auto kept = keep_subgraph(dlrm(), "Optimizer.step#*");
  ASSERT_TRUE(kept) << kept.error().message;
  std::size_t step = 0;
  for (const Node& node : dlrm().nodes) {
    step += dlrm().name(node).starts_with("Optimizer.step#") ? below(dlrm(), dlrm().name(node)) : 0;
  }
  EXPECT_GT(step, 0U);
  std::size_t kept_step = 0;
  for (const Node& node : kept->nodes) {
    if (kept->name(node).starts_with("Optimizer.step#")) kept_step = below(*kept, kept->name(node));
  }
  EXPECT_EQ(kept_step, step);
  EXPECT_EQ(count(*kept, "aten::addmm"), 0U);
  EXPECT_EQ(count(*kept, "ProfilerStep#0"), count(dlrm(), "ProfilerStep#0"));  // labels above stay
}

TEST(Subgraph, TakesARangeOfTopLevelOps) {
  const auto ops = top_level_ops(dlrm());
  const auto id = [&](std::size_t i) {
    return std::to_string(dlrm().nodes[static_cast<std::size_t>(ops[i])].id);
  };
  const auto kept = keep_subgraph(dlrm(), id(3) + ":" + id(7));
  ASSERT_TRUE(kept) << kept.error().message;
  const auto left = top_level_ops(*kept);
  ASSERT_EQ(left.size(), 4U);
  for (std::size_t i = 0; i < left.size(); ++i) {
    EXPECT_EQ(kept->name(kept->nodes[static_cast<std::size_t>(left[i])]),
              dlrm().name(dlrm().nodes[static_cast<std::size_t>(ops[3 + i])]));
  }
}

TEST(Subgraph, OfEverythingIsTheGraph) {
  const auto kept = keep_subgraph(dlrm(), "*");
  ASSERT_TRUE(kept);
  const auto comparison = compare_graphs(dlrm(), *kept);
  EXPECT_TRUE(comparison.same()) << comparison;
}

TEST(Remove, TakesOpsOutWithAllBelow) {
  const std::size_t gone = count(dlrm(), "aten::linear") + below(dlrm(), "aten::linear");
  ASSERT_GT(gone, count(dlrm(), "aten::linear"));
  const auto left = remove_ops(dlrm(), "aten::linear");
  ASSERT_TRUE(left) << left.error().message;
  EXPECT_EQ(left->nodes.size(), dlrm().nodes.size() - gone);
  EXPECT_EQ(count(*left, "aten::linear"), 0U);
  EXPECT_GT(count(*left, "aten::mm"), 0U);  // in the backward pass
}

TEST(Remove, AndSubgraphShareTheNodesOut) {
  const auto inside = keep_subgraph(dlrm(), "autograd::engine::evaluate_function: *");
  const auto outside = remove_ops(dlrm(), "autograd::engine::evaluate_function: *");
  ASSERT_TRUE(inside && outside);
  for (const char* name : {"aten::mm", "aten::addmm", "aten::threshold_backward", "aten::add_"}) {
    EXPECT_EQ(count(*inside, name) + count(*outside, name), count(dlrm(), name)) << name;
  }
}

TEST(KernelTime, IsKeptInTheFile) {
  const auto given = set_kernel_time(dlrm(), {.pattern = "aten::addmm", .value = 12.5});
  ASSERT_TRUE(given) << given.error().message;
  const auto scaled = scale_kernel_time(*given, {.pattern = "aten::mm", .value = 0.25});
  ASSERT_TRUE(scaled) << scaled.error().message;
  const auto file = test_support::scratch() / "kernel_times.json";
  ASSERT_TRUE(write_execution_graph(*scaled, file));
  const auto read = read_execution_graph(file);
  ASSERT_TRUE(read) << to_string(read.error());
  std::size_t products = 0;
  for (const Node& node : read->nodes) {
    EXPECT_EQ(node.kernel_time_us, read->name(node) == "aten::addmm" ? 12.5 : -1.0);
    EXPECT_EQ(node.kernel_time_scale, read->name(node) == "aten::mm" ? 0.25 : 1.0);
    products += read->name(node) == "aten::addmm";
  }
  EXPECT_EQ(products, count(dlrm(), "aten::addmm"));
  EXPECT_EQ(execution_graph_json(*read), execution_graph_json(*scaled));
}

TEST(KernelTime, OfNestedMatchesTheOutermostCounts) {
  const auto given = set_kernel_time(dlrm(), {.pattern = "aten::*", .value = 1});
  ASSERT_TRUE(given);
  for (const Node& node : given->nodes) {
    if (node.kernel_time_us < 0) continue;
    for (auto i = node.parent; i >= 0; i = given->nodes[static_cast<std::size_t>(i)].parent) {
      EXPECT_LT(given->nodes[static_cast<std::size_t>(i)].kernel_time_us, 0);
    }
  }
}

TEST(KernelTime, FactorsMultiplyAndAGivenTimeReplacesThem) {
  const auto half = scale_kernel_time(dlrm(), {.pattern = "aten::mm", .value = 0.5}).value();
  const auto quarter = scale_kernel_time(half, {.pattern = "aten::m?", .value = 0.5});
  EXPECT_FALSE(quarter);  // '?' stands for itself
  const auto twice = scale_kernel_time(half, {.pattern = "*::mm", .value = 0.5}).value();
  const auto given = set_kernel_time(twice, {.pattern = "aten::mm", .value = 3}).value();
  for (std::size_t i = 0; i < twice.nodes.size(); ++i) {
    if (twice.name(twice.nodes[i]) != "aten::mm") continue;
    EXPECT_EQ(twice.nodes[i].kernel_time_scale, 0.25);
    EXPECT_EQ(given.nodes[i].kernel_time_scale, 1);
    EXPECT_EQ(given.nodes[i].kernel_time_us, 3);
  }
}

TEST(IndexSkew, IsKeptInTheFileAndGoesAway) {
  const auto skewed = set_index_skew(dlrm(), 1.05);
  ASSERT_TRUE(skewed) << skewed.error().message;
  const auto file = test_support::scratch() / "index_skew.json";
  ASSERT_TRUE(write_execution_graph(*skewed, file));
  const auto read = read_execution_graph(file);
  ASSERT_TRUE(read) << to_string(read.error());
  EXPECT_EQ(execution_graph_json(*read), execution_graph_json(*skewed));
  std::size_t lookups = 0;
  for (const Node& node : read->nodes) lookups += node.index_zipf_exponent == 1.05;
  EXPECT_GE(lookups, 2U);  // forward and backward
  EXPECT_EQ(execution_graph_json(set_index_skew(*read, 0).value()), execution_graph_json(dlrm()));
}

TEST(IndexSkew, ReachesTheUpdatesOfTablesAndNoOtherSums) {
  DlrmConfig config{
      .bottom_mlp = {4, 8}, .top_mlp = {11, 1}, .tables = {{100, 8, 2}, {50, 8, 1}}, .batch = 2};
  config.table_batched = false;
  const ExecutionGraph skewed = set_index_skew(build_dlrm(config).value(), 1.2).value();
  std::size_t updates = 0;
  for (const Node& node : skewed.nodes) {
    if (skewed.name(node) != "aten::index_add_") continue;
    const auto target = skewed.shape(skewed.tensors[skewed.inputs(node)[0].index]);
    const bool is_table = target.size() == 2;  // else starts of bags
    EXPECT_EQ(node.index_zipf_exponent, is_table ? 1.2 : 0);
    updates += is_table ? 1 : 0;
  }
  EXPECT_EQ(updates, 2U);
}

TEST(IndexSkew, RefusesWithAReason) {
  EXPECT_EQ(set_index_skew(dlrm(), -1).error().message,
            "expected an exponent from 0 to 10, found -1");
  const ExecutionGraph products = keep_subgraph(dlrm(), "aten::linear").value();
  EXPECT_EQ(set_index_skew(products, 1).error().message,
            "expected lookups in embedding tables, found none");
}

TEST(Primitives, SayWhatWasMeant) {
  const auto near = remove_ops(dlrm(), "aten::adm");
  ASSERT_FALSE(near);
  EXPECT_EQ(near.error().code, ErrorCode::kUnknownName);
  EXPECT_THAT(near.error().message, HasSubstr("\"aten::adm\", found none; near: aten::add"));
  const auto inside = set_kernel_time(dlrm(), {.pattern = "addmm", .value = 1});
  ASSERT_FALSE(inside);
  EXPECT_THAT(inside.error().message, HasSubstr("near: aten::addmm"));
}

TEST(Primitives, RefuseWithAReason) {
  EXPECT_EQ(keep_subgraph(dlrm(), "900000:900001").error().message,
            "expected top-level ops with ids 900000:900001, found none");
  EXPECT_EQ(remove_ops(dlrm(), "*").error().message, "expected ops besides \"*\", found none");
  EXPECT_EQ(set_kernel_time(dlrm(), {.pattern = "aten::mm", .value = -1}).error().message,
            "expected a time in us from 0 to 86400000000, found -1");
  EXPECT_EQ(set_kernel_time(dlrm(), {.pattern = "aten::mm", .value = 1e308}).error().message,
            "expected a time in us from 0 to 86400000000, found 1e+308");
  EXPECT_EQ(scale_kernel_time(dlrm(), {.pattern = "aten::mm", .value = 1.0 / 0.0}).error().message,
            "expected a factor from 0 to 1000000, found inf");
  const auto most = scale_kernel_time(dlrm(), {.pattern = "aten::mm", .value = 1e6}).value();
  EXPECT_EQ(scale_kernel_time(most, {.pattern = "aten::mm", .value = 2}).error().message,
            "expected a product of factors from 0 to 1000000, found 2000000");
}

}  // namespace rewrite_primitives_test
}  // namespace perfmodel
