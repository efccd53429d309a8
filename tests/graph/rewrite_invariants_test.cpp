// Invariants of rewritten graphs (rewrite_invariants.hpp) and the promises of rewrites
// (rewrite_contracts.hpp): all rewrites on recorded and built graphs, and a sample of pairs.
#include "rewrite_invariants.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>

#include "perfmodel/graph/build_model.hpp"
#include "perfmodel/graph/read_execution_graph.hpp"
#include "perfmodel/graph/rewrite.hpp"
#include "perfmodel/graph/rewrites/resize.hpp"
#include "perfmodel/graph/rewrites/retarget.hpp"
#include "perfmodel/graph/rewrites/training.hpp"
#include "rewrite_contracts.hpp"
#include "small_models.hpp"
#include "step/unique_ids.hpp"

namespace perfmodel {
namespace rewrite_invariants_test {

using namespace test_support;
using Graphs = std::map<std::string, ExecutionGraph>;

/// Each recording with the ids that were recorded, and the graph that a GPU would have given, with
/// ids that are versions: there every reader must have a maker, whatever ids the rewrite works
/// with.
void add_recordings(Graphs& graphs) {
  const std::filesystem::path folder = PERFMODEL_SOURCE_DIR "/tests/graph/recorded";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".gz") continue;
    const std::string name = entry.path().stem().stem();
    const ExecutionGraph recorded = read_execution_graph(entry.path()).value();
    if (const auto on_gpu = retarget(recorded)) graphs[name + "_gpu"] = with_unique_ids(*on_gpu);
    graphs[name] = recorded;
  }
}

const Graphs& graphs() {
  static const Graphs all = [] {
    Graphs made = small_models();
    add_recordings(made);
    return made;
  }();
  return all;
}

/// Gradients that are kept between steps stay in their type, so that each pass casts its sum anew.
bool is_known_gap_of_pair(const std::string& graph, const std::string& first,
                          const std::string& second) {
  return graph == "dlrm_dot_adam_gpu" && first == "--grad-dtype bf16" &&
         second.starts_with("--accumulate");
}

TEST(RewriteInvariants, HoldForEveryRewriteOfEveryGraph) {
  std::set<std::string> applied;
  for (const auto& [name, graph] : graphs()) {
    for (const ContractedRewrite& one : contracted_rewrites()) {
      SCOPED_TRACE(name + " " + one.rewrite.name);
      const auto made = apply_rewrites(graph, {&one.rewrite, 1});
      if (!made) continue;
      applied.insert(one.rewrite.name);
      EXPECT_EQ(broken_invariant(one, graph, *made).value_or(""), "");
      EXPECT_EQ(broken_work(one, graph, *made).value_or(""), "");
      EXPECT_EQ(broken_second_application(one, *made).value_or(""), "");
    }
  }
  for (const ContractedRewrite& one : contracted_rewrites()) {
    EXPECT_TRUE(applied.contains(one.rewrite.name)) << one.rewrite.name << " is refused everywhere";
  }
}

TEST(RewriteInvariants, HoldForAFixedSampleOfPairs) {
  const auto& rewrites = contracted_rewrites();
  constexpr std::size_t kPairs = 40;
  std::minstd_rand random(1);
  std::size_t applied = 0;
  for (const auto& [name, graph] : graphs()) {
    for (std::size_t i = 0; i < kPairs; ++i) {
      const ContractedRewrite& first = rewrites[random() % rewrites.size()];
      const ContractedRewrite& second = rewrites[random() % rewrites.size()];
      if (is_known_gap_of_pair(name, first.rewrite.name, second.rewrite.name)) continue;
      const auto between = apply_rewrites(graph, {&first.rewrite, 1});
      if (!between) continue;
      const auto made = apply_rewrites(*between, {&second.rewrite, 1});
      if (!made) continue;
      SCOPED_TRACE(name + " " + first.rewrite.name + " " + second.rewrite.name);
      ++applied;
      EXPECT_EQ(broken_invariant(second, *between, *made).value_or(""), "");
      EXPECT_EQ(broken_work(second, *between, *made).value_or(""), "");
      EXPECT_EQ(broken_second_application(second, *made).value_or(""), "");
    }
  }
  EXPECT_GT(applied, graphs().size() * kPairs / 8);
}

TEST(RewriteInvariants, ARewrittenGraphReadBackIsTheSame) {
  std::size_t next = 0;
  for (const auto& [name, graph] : graphs()) {
    for (const ContractedRewrite& one : contracted_rewrites()) {
      if (++next % 7 != 0) continue;  // writing and reading takes longer than the rewrite
      SCOPED_TRACE(name + " " + one.rewrite.name);
      const auto made = apply_rewrites(graph, {&one.rewrite, 1});
      if (!made) continue;
      EXPECT_EQ(differs_when_read_back(*made).value_or(""), "");
    }
  }
}

TEST(RewriteInvariants, IdsThatAreVersionsStay) {
  for (const auto& [name, graph] : graphs()) {
    SCOPED_TRACE(name);
    const ExecutionGraph named = with_unique_ids(graph);
    const ExecutionGraph again = with_unique_ids(named);
    EXPECT_TRUE(std::ranges::equal(
        named.tensors, again.tensors, [](const Tensor& one, const Tensor& other) {
          return one.id == other.id && one.storage_id == other.storage_id;
        }));
  }
}

// The checks on graphs that are broken on purpose.

ExecutionGraph mlp() { return build_mlp(mlp_preset("mnist").value()).value(); }

std::size_t node_called(const ExecutionGraph& graph, std::string_view name) {
  const auto at =
      std::ranges::find_if(graph.nodes, [&](const Node& node) { return graph.name(node) == name; });
  EXPECT_NE(at, graph.nodes.end());
  return static_cast<std::size_t>(at - graph.nodes.begin());
}

TEST(RewriteInvariants, ReadersWithoutAMakerAreNamed) {
  const ExecutionGraph graph = mlp();
  ExecutionGraph cut = graph;
  cut.nodes[node_called(cut, "aten::relu")].outputs_count = 0;
  cut.nodes[node_called(cut, "aten::clamp_min")].outputs_count = 0;
  EXPECT_EQ(read_before_made(graph, graph).value_or(""), "");
  EXPECT_NE(read_before_made(graph, cut).value_or("").find("which nothing before it makes"),
            std::string::npos);
}

TEST(ApplyRewrites, RefusesReadersOfWhatARewriteLost) {
  const auto lose = [](const ExecutionGraph& graph) -> Result<ExecutionGraph> {
    ExecutionGraph cut = graph;
    cut.nodes[node_called(cut, "aten::relu")].outputs_count = 0;
    cut.nodes[node_called(cut, "aten::clamp_min")].outputs_count = 0;
    return cut;
  };
  NamedRewrite rewrite{.name = "--lose", .apply = lose};
  const auto refused = apply_rewrites(mlp(), {&rewrite, 1});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            "--lose: the graph contradicts itself: aten::linear would read what no op makes");
  rewrite.of_ops_alone = true;  // says so itself
  EXPECT_TRUE(apply_rewrites(mlp(), {&rewrite, 1}));
}

TEST(RewriteInvariants, NodesOutOfPlaceAreNamed) {
  const ExecutionGraph graph = mlp();
  ExecutionGraph moved = graph;
  moved.nodes[node_called(moved, "aten::relu")].thread += 7;
  index_graph(moved);
  EXPECT_EQ(broken_nesting(graph, graph).value_or(""), "");
  EXPECT_NE(broken_nesting(graph, moved).value_or("").find("on the thread of its parent"),
            std::string::npos);
  moved = graph;
  moved.nodes[node_called(moved, "aten::addmm")].parent = 2;
  EXPECT_NE(broken_tree(moved).value_or("").find("another parent"), std::string::npos);
}

TEST(RewriteInvariants, GraphsThatDifferAreToldApart) {
  const ExecutionGraph graph = mlp();
  ExecutionGraph other = graph;
  for (Tensor& tensor : other.tensors) tensor.id += 1000;
  EXPECT_EQ(difference_up_to_ids(graph, other).value_or(""), "");
  Tensor& reader =
      other.tensors[other.inputs(other.nodes[node_called(other, "aten::relu")])[0].index];
  reader.id = other.tensors[0].id + 1;
  EXPECT_NE(difference_up_to_ids(graph, other), std::nullopt);
}

// The last layer runs again inside a function of the backward pass: DDP copies the buckets back
// when the outer backward pass is done, not when the inner one is.
TEST(DataParallel, BucketsAreCopiedBackAfterAllCheckpoints) {
  const ExecutionGraph graph =
      retarget(read_execution_graph(PERFMODEL_SOURCE_DIR
                                    "/tests/graph/recorded/blocks_checkpointed.json.gz")
                   .value())
          .value();
  const ExecutionGraph made = rewrite_data_parallel(graph, {}).value();
  std::size_t last_gradient = 0, first_copy = made.nodes.size();
  for (std::size_t i = 0; i < made.nodes.size(); ++i) {
    const std::string_view name = made.name(made.nodes[i]);
    if (name == "torch::autograd::AccumulateGrad") last_gradient = i;
    if (name == "torch.distributed.ddp.reducer::copy_bucket_to_grad") {
      first_copy = std::min(first_copy, i);
    }
  }
  EXPECT_LT(last_gradient, first_copy);
}

}  // namespace rewrite_invariants_test
}  // namespace perfmodel
