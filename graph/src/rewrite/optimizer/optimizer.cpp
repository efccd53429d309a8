#include "perfmodel/graph/rewrites/training.hpp"

#include <fmt/format.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "builders/emit/optimizers.hpp"
#include "optimizer_writer.hpp"
#include "rewrite/graph_edit.hpp"
#include "step/dialect.hpp"
#include "step/optimizer_reader.hpp"

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

  GraphEdit edit(graph, pytorch);
  for (const auto& [label, step] : steps) {
    edit.refill(label, [&] { write_optimizer_step(edit.copy(), step, rewrite); });
  }
  edit.on_each_copy([&](std::int32_t index, Node& copy) {
    const bool zeroes = graph.name(index).starts_with("Optimizer.zero_grad#");
    if (!rewrite.optimizer || (!zeroes && !steps.contains(index))) return;
    copy.name = edit.made().names.intern(label_name(graph.name(index), *rewrite.optimizer));
  });
  return edit.write();
}

}  // namespace perfmodel
