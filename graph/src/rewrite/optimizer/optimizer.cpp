#include "perfmodel/graph/rewrites/training.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "builders/emit/optimizers.hpp"
#include "optimizer_writer.hpp"
#include "rewrite/graph_edit.hpp"
#include "step/step_view.hpp"

namespace perfmodel {
namespace {

using Optimizer = TrainingOptions::Optimizer;
using Implementation = TrainingOptions::Implementation;

Result<void> check_group(const ExecutionGraph& graph, const ReadGroup& group,
                         const PyTorch& pytorch) {
  const auto [optimizer, implementation] =
      std::pair(group.settings.optimizer, group.settings.implementation);
  if (auto good = check_optimizer(optimizer, implementation, pytorch); !good) return good;
  const auto sparse = std::ranges::find_if(group.updates, &ReadUpdate::sparse);
  const bool takes_sparse = (optimizer == Optimizer::kSgd || optimizer == Optimizer::kAdagrad ||
                             optimizer == Optimizer::kSparseAdam) &&
                            implementation == Implementation::kLoop;
  if (sparse == group.updates.end() || takes_sparse) return {};
  return fail(ErrorCode::kImpossible,
              fmt::format("optimizer: expected dense gradients for anything but loops of SGD and "
                          "Adagrad, found a sparse one of [{}]",
                          fmt::join(graph.shape(graph.tensors[sparse->gradient]), ", ")));
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
  const StepView step(graph);
  if (auto good = step.check("optimizer", {}); !good) return Unexpected{good.error()};
  const auto& steps = step.optimizers();
  if (!steps) return Unexpected{steps.error()};
  if (steps->empty()) {
    return fail(ErrorCode::kImpossible,
                "optimizer: expected a node Optimizer.step#..., found none in the graph");
  }
  const PyTorch& pytorch = step.dialect();
  OptimizerSteps changed;
  for (const auto& [label, one] : *steps) {
    ReadStep next = rewritten_step(one, rewrite, pytorch);
    for (const ReadGroup& group : next.groups) {
      if (auto good = check_group(step.graph(), group, pytorch); !good) {
        return Unexpected{good.error()};
      }
    }
    if (std::ranges::equal(one.groups, next.groups, {}, &ReadGroup::settings,
                           &ReadGroup::settings)) {
      continue;
    }
    changed.emplace(label, std::move(next));
  }
  if (changed.empty()) return graph;

  GraphEdit edit(step.graph(), pytorch);
  for (const auto& [label, one] : changed) {
    edit.refill(label, [&, &one = one] { write_optimizer_step(edit.copy(), one); });
  }
  edit.on_each_copy([&](std::int32_t index, Node& copy) {
    if (!rewrite.optimizer || (!is_zero_grad(graph, index) && !changed.contains(index))) return;
    copy.name = edit.made().names.intern(label_name(graph.name(index), *rewrite.optimizer));
  });
  return edit.write();
}

}  // namespace perfmodel
