#include "perfmodel/graph/rewrites/training.hpp"

#include <fmt/format.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "builders/emit/optimizers.hpp"
#include "optimizer_writer.hpp"
#include "rewrite/dialect.hpp"
#include "rewrite/graph_copy.hpp"
#include "rewrite/optimizer_reader.hpp"

namespace perfmodel {
namespace {

using Optimizer = TrainingOptions::Optimizer;
using Implementation = TrainingOptions::Implementation;

Result<void> check_group(const ExecutionGraph& graph, const ReadGroup& group,
                         const OptimizerSettings& settings, const PyTorch& pytorch) {
  if (auto good = check_optimizer(settings.optimizer, settings.implementation, pytorch); !good) {
    return good;
  }
  for (const ReadUpdate& update : group.updates) {
    if (!update.sparse) continue;
    if (settings.optimizer == Optimizer::kSgd && settings.implementation == Implementation::kLoop) {
      continue;
    }
    const Tensor& gradient = graph.tensors[update.gradient];
    return fail(ErrorCode::kImpossible,
                fmt::format("optimizer: expected dense gradients for anything but a loop of SGD, "
                            "found a sparse one of [{}]",
                            fmt::join(graph.shape(gradient), ", ")));
  }
  return {};
}

std::string label_name(std::string_view old, Optimizer optimizer) {
  const auto hash = old.find('#'), dot = old.find('.', hash);
  return fmt::format("{}{}{}", old.substr(0, hash + 1), optimizer_class(optimizer),
                     dot == std::string_view::npos ? "" : old.substr(dot));
}

}  // namespace

Result<ExecutionGraph> rewrite_optimizer(const ExecutionGraph& graph,
                                         const OptimizerRewrite& rewrite) {
  if (rewrite.optimizer == Optimizer::kNoOptimizer) {
    return fail(ErrorCode::kImpossible, "optimizer: expected a kind, found none");
  }
  if (auto good = check_nesting(graph); !good) return Unexpected{good.error()};
  const PyTorch pytorch = dialect_of(graph);
  std::map<std::int32_t, ReadStep> steps;  // by label
  for (std::int32_t label : optimizer_steps(graph)) {
    auto step = read_optimizer_step(graph, label);
    if (!step) return Unexpected{step.error()};
    bool same = true;
    for (const ReadGroup& group : step->groups) {
      const OptimizerSettings settings = rewritten_settings(group.settings, rewrite, pytorch);
      if (auto good = check_group(graph, group, settings, pytorch); !good) {
        return Unexpected{good.error()};
      }
      same = same && settings == group.settings;
    }
    if (!same) steps.emplace(label, std::move(*step));
  }
  if (optimizer_steps(graph).empty()) {
    return fail(ErrorCode::kImpossible,
                "optimizer: expected a node Optimizer.step#..., found none in the graph");
  }
  if (steps.empty()) return graph;

  GraphCopy copy(graph, pytorch);
  std::vector<bool> inside(graph.nodes.size(), false);  // a step that is written anew
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    const auto step = steps.find(node.parent);
    inside[i] = step != steps.end() || (node.parent >= 0 && inside[node.parent]);
    if (inside[i]) continue;
    const auto index = static_cast<std::int32_t>(i);
    copy.copy(index);
    const bool zeroes = graph.name(node).starts_with("Optimizer.zero_grad#");
    if (rewrite.optimizer && (zeroes || steps.contains(index))) {
      ExecutionGraph& made = copy.builder().graph_being_made();
      made.nodes.back().name = made.names.intern(label_name(graph.name(node), *rewrite.optimizer));
    }
    if (const auto at = steps.find(index); at != steps.end()) {
      write_optimizer_step(copy, at->second, rewrite);
    }
  }
  return copy.finish();
}

}  // namespace perfmodel
