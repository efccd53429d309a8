// Graphs that no program records: every rewrite names the fault or gives a graph that can be
// written and read again.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "perfmodel/graph/build_model.hpp"
#include "perfmodel/graph/build_recommenders.hpp"
#include "perfmodel/graph/build_transformers.hpp"
#include "perfmodel/graph/read_execution_graph.hpp"
#include "perfmodel/graph/rewrite.hpp"
#include "perfmodel/graph/rewrites/fusion.hpp"
#include "perfmodel/graph/rewrites/memory.hpp"
#include "perfmodel/graph/rewrites/resize.hpp"
#include "perfmodel/graph/rewrites/retarget.hpp"
#include "perfmodel/graph/rewrites/training.hpp"
#include "perfmodel/graph/write_execution_graph.hpp"
#include "step/nesting.hpp"

namespace perfmodel {
namespace rewrite_nesting_test {

constexpr Device kCpu{.kind = Device::Kind::kCpu};

ExecutionGraph mlp(const PyTorch& pytorch = {}) {
  MlpConfig config = mlp_preset("mnist").value();
  config.training.pytorch = pytorch;
  return build_mlp(config).value();
}

ExecutionGraph dlrm(const PyTorch& pytorch = {}) {
  DlrmConfig config{.bottom_mlp = {4, 8},
                    .top_mlp = {11, 1},
                    .tables = {{100, 8, 2}, {50, 8, 1}},
                    .batch = 2,
                    .table_batched = false};
  config.training.pytorch = pytorch;
  return build_dlrm(config).value();
}

constexpr OffloadOptions kOffloadAll{.least_bytes = 1, .bytes_on_their_way = 0};

// Rewrites that write nodes in between or leave some out.
std::vector<NamedRewrite> copying_rewrites() {
  return {
      {"--precision",
       [](const auto& g) {
         return rewrite_precision(g, {.precision = PrecisionOptions::Precision::kBf16});
       }},
      {"--checkpoint", [](const auto& g) { return rewrite_checkpointing(g, {}); }},
      {"--in-place",
       [](const auto& g) {
         return rewrite_in_place(g, {.gelu = FirstLayers{}, .layer_norm = FirstLayers{}});
       }},
      {"--recompute",
       [](const auto& g) {
         return rewrite_recomputation(g, {.what = RecomputeOptions::What::kSelective});
       }},
      {"--offload-activations", [](const auto& g) { return rewrite_offload(g, kOffloadAll); }},
      {"--grad-dtype", [](const auto& g) { return rewrite_gradient_type(g, DType::kBFloat16); }},
      {"--accumulate", [](const auto& g) { return rewrite_accumulation(g, 2); }},
      {"--optimizer",
       [](const auto& g) {
         return rewrite_optimizer(g, {.optimizer = TrainingOptions::Optimizer::kAdam});
       }},
      {"--data-parallel", [](const auto& g) { return rewrite_data_parallel(g, {}); }},
      {"--retarget", [](const auto& g) { return retarget(g); }},
      {"--fuse-tables", [](const auto& g) { return rewrite_table_fusion(g); }},
      {"--fuse-elementwise", [](const auto& g) { return rewrite_elementwise_fusion(g); }},
      {"--fuse", [](const auto& g) { return rewrite_post_scheduling_fusion(g); }},
      {"--fuse-norms", [](const auto& g) { return rewrite_fused_norms(g); }},
      {"--fuse-loss",
       [](const auto& g) { return rewrite_fused_loss(g, LossFusion::kCrossEntropy); }},
      {"--lstm", [](const auto& g) { return rewrite_recurrent_cells(g); }},
      {"--hash-weights",
       [](const auto& g) {
         return rewrite_hashed_weights(g, {.pattern = "aten::linear", .compression = 2});
       }},
      {"--subgraph", [](const auto& g) { return keep_subgraph(g, "aten::*"); }},
      {"--remove", [](const auto& g) { return remove_ops(g, "aten::t"); }},
  };
}

std::vector<NamedRewrite> all_rewrites() {
  std::vector<NamedRewrite> rewrites = copying_rewrites();
  rewrites.push_back({"--batch", [](const auto& g) { return set_batch_size(g, {.batch = 6}); }});
  rewrites.push_back({"--index-skew", [](const auto& g) { return set_index_skew(g, 1); }});
  rewrites.push_back({"--kernel-time", [](const auto& g) {
                        return set_kernel_time(g, {.pattern = "aten::mm", .value = 3});
                      }});
  return rewrites;
}

Node& at(ExecutionGraph& graph, std::size_t index) { return graph.nodes[index]; }

void other_thread(ExecutionGraph& graph, std::size_t index) { at(graph, index).thread += 7; }

void other_parent(ExecutionGraph& graph, std::size_t index) {
  at(graph, index).parent_id = at(graph, index / 2 + 1).id;
}

// The op and its first child change places in the order of ids.
void behind_its_child(ExecutionGraph& graph, std::size_t index) {
  if (at(graph, index).children_count == 0) return other_parent(graph, index);
  Node& child = at(graph, static_cast<std::size_t>(graph.children(at(graph, index)).front()));
  const std::int64_t parent_id = at(graph, index).id, child_id = child.id;
  for (Node& node : graph.nodes) {
    if (node.parent_id == parent_id) {
      node.parent_id = child_id;
    } else if (node.parent_id == child_id) {
      node.parent_id = parent_id;
    }
  }
  std::swap(at(graph, index).id, child.id);
}

// The second leaf in front of the op has ended by then.
void ended_parent(ExecutionGraph& graph, std::size_t index) {
  std::size_t leaf = index;
  for (int leaves = 0; leaves < 2; leaves += at(graph, leaf).children_count == 0) --leaf;
  at(graph, index).parent_id = at(graph, leaf).id;
}

void orphan(ExecutionGraph& graph, std::size_t index) {
  at(graph, index).parent_id = std::int64_t{1} << 40;
}

// As the reader gives it: it refuses parents that form a cycle.
Result<ExecutionGraph> changed(ExecutionGraph graph, std::size_t index,
                               void (*change)(ExecutionGraph&, std::size_t)) {
  change(graph, index);
  index_graph(graph);
  return parse_execution_graph(execution_graph_json(graph), "changed");
}

void expect_error_or_graph(const ExecutionGraph& graph, const NamedRewrite& rewrite) {
  SCOPED_TRACE(rewrite.name);
  const auto made = apply_rewrites(graph, {&rewrite, 1});
  if (!made) {
    EXPECT_FALSE(made.error().message.empty());
    return;
  }
  const std::string written = execution_graph_json(*made);
  const auto read = parse_execution_graph(written, "written");
  ASSERT_TRUE(read) << to_string(read.error());
  EXPECT_TRUE(execution_graph_json(*read) == written);
}

void expect_no_crash(const ExecutionGraph& graph) {
  using Mutation = void (*)(ExecutionGraph&, std::size_t);
  constexpr Mutation kMutations[] = {other_thread, other_parent, behind_its_child, orphan};
  constexpr std::size_t kNodes = 15;
  std::size_t read = 0;
  for (std::size_t k = 0; k < kNodes; ++k) {
    const std::size_t index = 3 + k * (graph.nodes.size() - 3) / kNodes;
    for (std::size_t m = 0; m < std::size(kMutations); ++m) {
      SCOPED_TRACE(testing::Message() << "node " << index << ", change " << m);
      const auto mutated = changed(graph, index, kMutations[m]);
      if (!mutated) continue;
      ++read;
      for (const NamedRewrite& rewrite : all_rewrites()) expect_error_or_graph(*mutated, rewrite);
    }
  }
  EXPECT_GT(read, 2 * kNodes);
}

TEST(RewriteNesting, SixtyChangesOfAGraphOfAGpuEndWithAnErrorOrAGraph) {
  expect_no_crash(mlp());
  expect_no_crash(dlrm());
}

TEST(RewriteNesting, SixtyChangesOfARecordingOfACpuEndWithAnErrorOrAGraph) {
  expect_no_crash(mlp({.device = kCpu}));
  expect_no_crash(dlrm({.device = kCpu}));
}

// Changes: a function of the backward pass gets another op's number; an op gets the tensors of the
// next one.
void other_sequence(ExecutionGraph& graph, std::size_t index) { at(graph, index).seq_id = 5; }
void other_arguments(ExecutionGraph& graph, std::size_t index) {
  const Node& behind = at(graph, std::min(index + 1, graph.nodes.size() - 1));
  at(graph, index).inputs_begin = behind.inputs_begin;
  at(graph, index).inputs_count = behind.inputs_count;
}
void name_of_next(ExecutionGraph& graph, std::size_t index) {
  at(graph, index).name = at(graph, std::min(index + 1, graph.nodes.size() - 1)).name;
}

TEST(RewriteNesting, MemoryOptionsOfAChangedTransformerEndWithAnErrorOrAGraph) {
  BertConfig config = bert_preset("bert-base").value();
  config.layers = 2;
  config.hidden = 8;
  config.heads = 2;
  config.feed_forward = 16;
  config.vocabulary = 50;
  config.batch = 2;
  config.sequence = 4;
  ExecutionGraph graph = build_bert(config).value();
  graph.built = false;  // ids may be used again
  using What = RecomputeOptions::What;
  std::vector<NamedRewrite> rewrites = {
      {"--in-place",
       [](const auto& g) {
         return rewrite_in_place(g, {.gelu = FirstLayers{}, .layer_norm = FirstLayers{.count = 1}});
       }},
      {"--checkpoint 1,masks",
       [](const auto& g) { return rewrite_checkpointing(g, {.keep_masks = true}); }},
      {"--offload-activations", [](const auto& g) { return rewrite_offload(g, kOffloadAll); }},
      {"--grad-dtype", [](const auto& g) { return rewrite_gradient_type(g, DType::kBFloat16); }},
      {"--accumulate", [](const auto& g) { return rewrite_accumulation(g, 2); }}};
  for (const What what : {What::kSelective, What::kDropout, What::kScoring, What::kOp}) {
    rewrites.push_back({"--recompute", [what](const auto& g) {
                          return rewrite_recomputation(g, {.what = what});
                        }});
  }
  for (const auto mutation :
       {other_thread, other_parent, orphan, other_sequence, other_arguments, name_of_next}) {
    for (std::size_t index = 3; index < graph.nodes.size(); index += 211) {
      const auto mutated = changed(graph, index, mutation);
      if (!mutated) continue;
      for (const NamedRewrite& rewrite : rewrites) expect_error_or_graph(*mutated, rewrite);
    }
  }
}

// The last op inside of another one with one inside of it.
std::size_t inner_op(const ExecutionGraph& graph) {
  for (std::size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    if (graph.name(node) == "aten::t" && node.children_count > 0 &&
        !graph.nodes[static_cast<std::size_t>(node.parent)].is_label) {
      return i;
    }
  }
  ADD_FAILURE() << "no such op";
  return 0;
}

// The graph that a rewrite is for.
ExecutionGraph graph_for(const std::string& rewrite, const PyTorch& gpu, const PyTorch& cpu) {
  if (rewrite == "--retarget") return mlp(cpu);
  return rewrite == "--fuse-tables" ? dlrm(gpu) : mlp(gpu);
}

void expect_refused(void (*change)(ExecutionGraph&, std::size_t), const std::string& expected) {
  for (const NamedRewrite& rewrite : copying_rewrites()) {
    SCOPED_TRACE(rewrite.name);
    const ExecutionGraph graph = graph_for(rewrite.name, {}, {.device = kCpu});
    const std::size_t op = inner_op(graph);
    const auto mutated = changed(graph, op, change);
    ASSERT_TRUE(mutated) << to_string(mutated.error());
    const auto made = apply_rewrites(*mutated, {&rewrite, 1});
    ASSERT_FALSE(made);
    EXPECT_NE(made.error().message.find(expected), std::string::npos) << made.error().message;
    EXPECT_NE(made.error().message.find("\"aten::t\" (node "), std::string::npos)
        << made.error().message;
  }
}

TEST(RewriteNesting, AnOpOnAnotherThreadThanItsParentIsNamed) {
  expect_refused(other_thread, "expected a node on the thread of its parent");
}

TEST(RewriteNesting, AnOpBehindTheEndOfItsParentIsNamed) {
  expect_refused(ended_parent, "expected nodes inside of each other");
}

TEST(RewriteNesting, AnOpBehindItsChildIsNamed) {
  expect_refused(behind_its_child, "expected a node after its parent");
}

TEST(RewriteNesting, AnOpWithoutTheTensorsOfItsRuleIsNamed) {
  ExecutionGraph graph = mlp({.device = kCpu});
  for (const Node& node : graph.nodes) {
    if (graph.name(node) == "aten::addmm") graph.tensors[graph.inputs(node)[1].index].rank = 1;
  }
  const auto made = retarget(graph);
  ASSERT_FALSE(made);
  EXPECT_TRUE(
      made.error().message.starts_with("retarget: expected a tensor of 2 dimensions as input 1, "
                                       "found another \"aten::addmm\" (node "))
      << made.error().message;
}

// A recording that was cut has them; their neighbours are still copied to where they belong.
TEST(RewriteNesting, BehindAnOrphanTheNodesAroundItGoOn) {
  const ExecutionGraph graph = mlp();
  const auto children_of = [](const ExecutionGraph& g, std::string_view name) {
    std::vector<std::string> names;
    for (const Node& node : g.nodes) {
      if (g.name(node) != name) continue;
      for (std::int32_t child : g.children(node)) {
        names.emplace_back(g.name(g.nodes[static_cast<std::size_t>(child)]));
      }
    }
    return names;
  };
  const auto is_linear = [&](const Node& node) { return graph.name(node) == "aten::linear"; };
  const auto linear = std::ranges::find_if(graph.nodes, is_linear);
  ASSERT_GT(linear->children_count, 1u);
  const auto first = static_cast<std::size_t>(graph.children(*linear).front());
  const ExecutionGraph cut = changed(graph, first, orphan).value();
  const ExecutionGraph made = remove_ops(cut, "aten::relu").value();
  EXPECT_EQ(children_of(made, "aten::linear"), children_of(cut, "aten::linear"));
  EXPECT_EQ(children_of(made, "aten::linear").size() + 1,
            children_of(graph, "aten::linear").size());
}

// Nodes below the process interrupt no thread, even if the process has the thread's number.
TEST(RewriteNesting, AnOrphanOnTheThreadOfTheProcessInterruptsNoThread) {
  ExecutionGraph graph = dlrm();
  const auto inside = std::ranges::find_if(graph.nodes, [&](const Node& node) {
    return graph.name(node) == "aten::threshold_backward";
  });
  graph.nodes.front().thread = inside->thread;
  const ExecutionGraph cut =
      changed(graph, static_cast<std::size_t>(inside - graph.nodes.begin()), orphan).value();
  ASSERT_TRUE(check_nesting(cut));
  for (const NamedRewrite& rewrite : copying_rewrites()) {
    const auto made = apply_rewrites(cut, {&rewrite, 1});
    EXPECT_TRUE(!made || check_nesting(*made)) << rewrite.name;
  }
}

}  // namespace rewrite_nesting_test
}  // namespace perfmodel
