#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "attention_cores.hpp"
#include "checkpointing.hpp"
#include "first_layers.hpp"
#include "operand_paths.hpp"
#include "perfmodel/graph/rewrites/memory.hpp"
#include "rerun_ops.hpp"
#include "scoring_ops.hpp"

namespace perfmodel {
namespace {

using What = RecomputeOptions::What;
using Trees = std::vector<std::int32_t>;

Unexpected refuse_recomputation(std::string message) {
  return fail(ErrorCode::kImpossible, "recomputation: " + std::move(message));
}

Unexpected refuse_no_attention(const ExecutionGraph& graph) {
  const std::int32_t fused = fused_attention_op(graph);
  if (fused < 0) {
    return refuse_recomputation(
        "expected attention (two batched products with a softmax between), found none");
  }
  return refuse_recomputation(
      fmt::format("expected attention in ops of its own, found {} (node {}), which keeps "
                  "no scores",
                  graph.name(fused), graph.node(fused).id));
}

// Siblings from the tree of `first` to that of `last`.
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
  const ExecutionGraph& graph = step.graph();
  std::vector<Trees> parts;
  for (const AttentionCore& core : cores) {
    Trees trees = trees_between(graph, core.scores, core.values);
    if (!trees.empty()) parts.push_back(std::move(trees));
  }
  const auto segments = checkpoint_segments(graph, step.backward(), parts);
  if (!segments) return Unexpected{segments.error()};
  if (segments->empty()) return refuse_no_attention(graph);
  return write_checkpoints(step, *segments, {});
}

// Positions of functions by autograd's number.
std::unordered_map<std::int64_t, std::int32_t> functions_by_number(const BackwardPass& pass) {
  std::unordered_map<std::int64_t, std::int32_t> found;
  for (std::size_t f = 0; f < pass.functions.size(); ++f) {
    const std::int64_t number = pass.functions[f].sequence;
    if (number >= 0) found[number] = static_cast<std::int32_t>(f);
  }
  return found;
}

// Runs `ops`, of which the last one makes what the products read, in front of the first function
// that reads any of it. Nothing where no product of the forward pass has a function.
std::optional<Rerun> rerun_of(const ExecutionGraph& graph,
                              const std::unordered_map<std::int64_t, std::int32_t>& functions,
                              Trees ops, const std::vector<OperandPath>& paths) {
  Rerun rerun;
  const auto note = [&](std::int32_t op) {
    const auto function = functions.find(graph.node(op).seq_id);
    if (function == functions.end()) return false;
    rerun.function =
        rerun.function < 0 ? function->second : std::min(rerun.function, function->second);
    return true;
  };
  bool read = false;
  for (const OperandPath& path : paths) {
    if (!note(path.product)) continue;
    read = true;
    ops.insert(ops.end(), path.views.begin(), path.views.end());
  }
  if (!read) return {};
  std::sort(ops.begin(), ops.end());
  ops.erase(std::unique(ops.begin(), ops.end()), ops.end());
  rerun.nodes = std::move(ops);
  return rerun;
}

Result<ExecutionGraph> recompute_dropout(const StepView& step,
                                         const std::vector<AttentionCore>& cores) {
  Trees origins;
  for (const AttentionCore& core : cores) {
    if (core.dropout >= 0) origins.push_back(core.dropout);
  }
  const auto paths = operand_paths(step, origins);
  const auto functions = functions_by_number(step.backward());
  std::vector<Rerun> reruns;
  for (std::size_t k = 0; k < origins.size(); ++k) {
    auto rerun = rerun_of(step.graph(), functions, {origins[k]}, paths[k]);
    if (rerun) reruns.push_back(std::move(*rerun));
  }
  if (reruns.empty()) {
    return refuse_recomputation(
        "expected aten::native_dropout between the softmax and the product with V, found none "
        "(retarget the graph of a CPU first)");
  }
  return write_reruns(step, reruns);
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
  Trees origins;
  for (const Trees& ops : scorings) origins.push_back(ops.back());
  const auto paths = operand_paths(step, origins);
  const auto functions = functions_by_number(step.backward());
  std::vector<Rerun> reruns;
  for (std::size_t k = 0; k < scorings.size(); ++k) {
    auto rerun = rerun_of(step.graph(), functions, scorings[k], paths[k]);
    if (rerun) reruns.push_back(std::move(*rerun));
  }
  if (reruns.empty())
    return refuse_recomputation("expected a backward function of the scoring, found none");
  return write_reruns(step, reruns);
}

}  // namespace

Result<ExecutionGraph> rewrite_recomputation(const ExecutionGraph& source,
                                             const RecomputeOptions& options) {
  if (options.layers.count && *options.layers.count < 1) {
    return refuse_recomputation(
        fmt::format("expected at least the first layer, found {}", *options.layers.count));
  }
  if (options.what == What::kNone) return source;
  if (options.what == What::kFull) {
    return rewrite_checkpointing(source, {.layers = options.layers.count});
  }
  if (options.what == What::kOp) {
    return rewrite_checkpointing(source, {.layers = options.layers.count, .keep_products = true});
  }
  const StepView step(source);
  if (auto good = step.check("recomputation", kRecomputationNeeds); !good) {
    return Unexpected{good.error()};
  }
  const ExecutionGraph& graph = step.graph();
  const BackwardPass& pass = step.backward();
  if (options.what == What::kScoring) return recompute_scoring(step, options.layers);
  std::vector<AttentionCore> cores = attention_cores(step);
  if (cores.empty()) return refuse_no_attention(graph);
  const auto layers = chosen_layers(graph, pass, options.layers);
  if (!layers) return Unexpected{layers.error()};
  std::erase_if(cores, [&](const AttentionCore& core) { return !layers->has(core.values); });
  return options.what == What::kDropout ? recompute_dropout(step, cores)
                                        : checkpoint_attention(step, cores);
}

}  // namespace perfmodel
