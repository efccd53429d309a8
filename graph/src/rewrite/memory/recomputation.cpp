#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpointing.hpp"
#include "ops/catalogue.hpp"
#include "perfmodel/graph/rewrites/memory.hpp"
#include "rerun_ops.hpp"
#include "step/tensor_arguments.hpp"
#include "step/tree_walk.hpp"

namespace perfmodel {
namespace {

using Part = RecomputeOptions::What;

Unexpected refuse_recomputation(std::string message) {
  return fail(ErrorCode::kImpossible, "recomputation: " + std::move(message));
}

// Attention in ops of its own: two batched products with a softmax between. Nodes of the forward
// pass.
struct AttentionCore {
  std::int32_t scores = -1;   // product of queries and keys
  std::int32_t softmax = -1;  // `aten::_softmax`
  std::int32_t dropout = -1;  // `aten::native_dropout`; -1: none
  std::int32_t values = -1;   // product with the values
};

bool is_softmax(std::string_view name) {
  return name == "aten::_softmax" || name == "aten::_safe_softmax" ||
         name == "aten::_masked_softmax";
}

// Follows the scores of each product. Outer nodes come first, and inner ones correct them.
std::vector<AttentionCore> attention_cores(const StepView& step) {
  const ExecutionGraph& graph = step.graph();
  FactsOfValues<AttentionCore> cores(step.tensors());  // not finished yet
  std::vector<AttentionCore> finished;
  const std::int32_t end = forward_end(step.backward());
  for (std::int32_t i = 0; i < end; ++i) {
    const Op* op = find_op(graph.name(i));
    if (graph.node(i).is_label || (op && op->kind == OpKind::kAllocation)) continue;
    AttentionCore core;
    std::int64_t elements = -1;  // size of the tensor that carries it
    for_each_tensor(graph, graph.inputs(i), [&](const Tensor& tensor) {
      if (elements >= 0 || cores[tensor].scores < 0) return;
      core = cores[tensor];
      elements = tensor.numel;
    });
    if (graph.name(i) == "aten::bmm" || graph.name(i) == "aten::baddbmm") {
      core.values = i;
      if (core.softmax >= 0 && graph.node(i).seq_id >= 0) finished.push_back(core);
      core = {.scores = i};
    } else if (op && op->kind == OpKind::kProduct) {
      core = {};
    } else if (core.scores >= 0) {
      if (is_softmax(graph.name(i))) core.softmax = i;
      if (core.softmax >= 0 && draws_mask(graph, graph.node(i))) core.dropout = i;
    }
    for_each_tensor(graph, graph.outputs(i), [&](const Tensor& tensor) {
      const bool carries = core.scores == i || tensor.numel == elements;
      cores[tensor] = carries ? core : AttentionCore{};
    });
  }
  return finished;
}

Unexpected refuse_no_attention(const ExecutionGraph& graph) {
  const auto fused = std::ranges::find_if(graph.nodes, [&](const Node& node) {
    const Op* op = find_op(graph.name(node));
    return op && op->kind == OpKind::kAttention;
  });
  if (fused == graph.nodes.end()) {
    return refuse_recomputation(
        "expected attention (two batched products with a softmax between), found none");
  }
  return refuse_recomputation(
      fmt::format("expected attention in ops of its own, found {} (node {}), which keeps "
                  "no scores",
                  graph.name(*fused), fused->id));
}

// Lists the siblings from the tree of `first` to the tree of `last`.
Trees trees_between(const ExecutionGraph& graph, std::int32_t first, std::int32_t last) {
  std::vector<std::int32_t> above;  // `last` and all above it
  for (std::int32_t i = last; i >= 0; i = graph.node(i).parent) above.push_back(i);
  for (std::int32_t i = first; i >= 0; i = graph.node(i).parent) {
    const std::int32_t parent = graph.node(i).parent;
    const auto common = std::find(above.begin(), above.end(), parent);
    if (parent < 0 || common == above.end() || common == above.begin()) continue;
    Trees trees;
    for (std::int32_t sibling : graph.children(parent)) {
      if (sibling >= i && sibling <= *(common - 1)) trees.push_back(sibling);
    }
    return trees;
  }
  return {};
}

Result<ExecutionGraph> checkpoint_attention(const StepView& step,
                                            const std::vector<AttentionCore>& cores) {
  std::vector<Trees> parts;
  for (const AttentionCore& core : cores) {
    Trees trees = trees_between(step.graph(), core.scores, core.values);
    if (!trees.empty()) parts.push_back(std::move(trees));
  }
  PERFMODEL_TRY(segments, checkpoint_segments(step, parts));
  if (segments->empty()) return refuse_no_attention(step.graph());
  return write_checkpoints(step, *segments, {});
}

// Calls `visit` for the nodes of the forward pass that read results of `op`, except nodes inside of
// `op` and inside of readers for which `visit` was true.
template <class Visit>
void for_each_reader(const StepView& step, std::int32_t op, Visit&& visit) {
  const ExecutionGraph& graph = step.graph();
  for_each_tensor(graph, graph.outputs(op), [&](const Tensor& output) {
    if (takes(graph, op, output)) return;
    std::int32_t next = last_below(graph, op) + 1;
    for (const std::int32_t reader : step.tensors().readers(step.tensors().of(output))) {
      if (reader < next || step.backward().in_backward[reader]) continue;
      if (!graph.node(reader).is_label && visit(reader)) next = last_below(graph, reader) + 1;
    }
  });
}

// Runs `ops` in front of the first backward function of a product that reads the last one's result,
// maybe through views and casts, which run as well. None: no such product has a function.
std::optional<Rerun> rerun_of(const StepView& step, const Trees& ops,
                              const std::map<std::int64_t, std::int32_t>& functions) {
  Rerun rerun{.nodes = ops, .function = INT32_MAX};
  std::vector<Trees> paths = {{ops.back()}};  // views that lead to readers
  while (!paths.empty()) {
    const Trees path = std::move(paths.back());
    paths.pop_back();
    for_each_reader(step, path.back(), [&](std::int32_t reader) {
      const Op* op = find_op(step.graph().name(reader));
      if (!op) return false;
      if (op->kind == OpKind::kView || is_conversion(op->name)) {
        paths.push_back(path);
        paths.back().push_back(reader);
        return true;
      }
      const auto function = functions.find(step.graph().node(reader).seq_id);
      if (op->kind != OpKind::kProduct || function == functions.end()) return false;
      rerun.function = std::min(rerun.function, function->second);
      rerun.nodes.insert(rerun.nodes.end(), path.begin(), path.end());
      return false;
    });
  }
  if (rerun.nodes.size() == ops.size()) return {};
  std::ranges::sort(rerun.nodes);
  rerun.nodes.erase(std::unique(rerun.nodes.begin(), rerun.nodes.end()), rerun.nodes.end());
  return rerun;
}

// `reason`: why there is nothing to run again.
Result<ExecutionGraph> run_again(const StepView& step, const std::vector<Trees>& parts,
                                 std::string_view reason) {
  const auto functions = functions_by_sequence(step.backward());
  std::vector<Rerun> reruns;
  for (const Trees& ops : parts) {
    if (auto rerun = rerun_of(step, ops, functions)) reruns.push_back(std::move(*rerun));
  }
  if (reruns.empty()) return refuse_recomputation(std::string(reason));
  return write_reruns(step, reruns);
}

Result<ExecutionGraph> recompute_dropout(const StepView& step,
                                         const std::vector<AttentionCore>& cores) {
  std::vector<Trees> parts;
  for (const AttentionCore& core : cores) {
    if (core.dropout >= 0) parts.push_back({core.dropout});
  }
  return run_again(step, parts,
                   "expected aten::native_dropout between the softmax and the product with V, "
                   "found none (retarget the graph of a CPU first)");
}

// The op that made the first input; -1: none.
std::int32_t maker_of_input(const StepView& step, std::int32_t op) {
  const auto inputs = step.graph().inputs(op);
  if (inputs.empty() || inputs[0].kind != Argument::Kind::kTensor) return -1;
  return step.tensors().maker(step.tensors().of(step.graph().tensors[inputs[0].index]));
}

// A sum in which one side is broadcast. Both sides have a gradient: a bias has no producer.
bool is_broadcast_sum(const StepView& step, std::int32_t op) {
  const ExecutionGraph& graph = step.graph();
  const auto inputs = graph.inputs(op), outputs = graph.outputs(op);
  if (graph.name(op) != "aten::add" || inputs.size() < 2 || outputs.empty()) return false;
  for (const Argument& argument : {inputs[0], inputs[1], outputs[0]}) {
    if (argument.kind != Argument::Kind::kTensor) return false;
  }
  const Tensor &a = graph.tensors[inputs[0].index], &b = graph.tensors[inputs[1].index];
  const auto& producers = step.backward().input_producers[op];
  return a.numel != b.numel && producers.size() >= 2 && producers[0] >= 0 && producers[1] >= 0;
}

// The ops of additive attention (Bahdanau et al. 2015) that make tanh(query + key), once per step
// of a decoder: the sum, a layer norm if there is one, the tanh. Outermost nodes.
std::vector<Trees> scoring_ops(const StepView& step) {
  const ExecutionGraph& graph = step.graph();
  const std::int32_t end = forward_end(step.backward());
  std::vector<Trees> scorings;
  for (std::int32_t i = 0; i < end; ++i) {
    if (graph.node(i).is_label || graph.name(i) != "aten::tanh") continue;
    Trees ops = {i};
    std::int32_t maker = maker_of_input(step, i);
    if (maker >= 0 && graph.name(maker) == "aten::layer_norm") {
      ops.insert(ops.begin(), maker);
      maker = maker_of_input(step, maker);
    }
    if (maker < 0 || !is_broadcast_sum(step, maker)) continue;
    ops.insert(ops.begin(), maker);
    scorings.push_back(std::move(ops));
  }
  return scorings;
}

Result<ExecutionGraph> recompute_scoring(const StepView& step, FirstLayers steps) {
  std::vector<Trees> scorings = scoring_ops(step);
  if (scorings.empty()) {
    return refuse_recomputation(
        "expected the scoring of a recurrent decoder, tanh(query + key) in front of a product, "
        "found none");
  }
  const auto count = static_cast<std::int64_t>(scorings.size());
  if (steps.count && *steps.count > count) {
    return refuse_recomputation(
        fmt::format("expected at most the {} steps that there are, found {}", count, *steps.count));
  }
  if (steps.count) scorings.resize(*steps.count);
  return run_again(step, scorings, "expected a backward function of the scoring, found none");
}

}  // namespace

Result<ExecutionGraph> rewrite_recomputation(const ExecutionGraph& source,
                                             const RecomputeOptions& options) {
  if (options.layers.count && *options.layers.count < 1) {
    return refuse_recomputation(
        fmt::format("expected at least the first layer, found {}", *options.layers.count));
  }
  if (options.what == Part::kNone) return source;
  if (options.what == Part::kFull) {
    return rewrite_checkpointing(source, {.layers = options.layers.count});
  }
  if (options.what == Part::kOp) {
    return rewrite_checkpointing(source, {.layers = options.layers.count, .keep_products = true});
  }
  const StepView step(source);
  if (auto good = step.check("recomputation", kRecomputationNeeds); !good) {
    return Unexpected{good.error()};
  }
  if (options.what == Part::kScoring) return recompute_scoring(step, options.layers);
  std::vector<AttentionCore> cores = attention_cores(step);
  if (cores.empty()) return refuse_no_attention(step.graph());
  const auto in_layers = nodes_of_layers(step, options.layers);
  if (!in_layers) return Unexpected{in_layers.error()};
  std::erase_if(cores, [&](const AttentionCore& core) { return !(*in_layers)[core.values]; });
  return options.what == Part::kDropout ? recompute_dropout(step, cores)
                                        : checkpoint_attention(step, cores);
}

}  // namespace perfmodel
