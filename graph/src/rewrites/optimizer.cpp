#include "perfmodel/graph/rewrites/optimizer.hpp"

#include <fmt/format.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "../emit/optimizers.hpp"
#include "dialect.hpp"
#include "graph_copy.hpp"
#include "optimizer_reader.hpp"

namespace perfmodel {
namespace {

using Optimizer = TrainingOptions::Optimizer;
using Implementation = TrainingOptions::Implementation;

// The settings that a group of parameters gets.
OptimizerSettings changed(const OptimizerSettings& from, const OptimizerRewrite& rewrite,
                          const PyTorch& pytorch) {
  OptimizerSettings settings = from;
  if (rewrite.optimizer && *rewrite.optimizer != from.optimizer) {
    settings = optimizer_settings(*rewrite.optimizer, from.implementation);
    settings.steps = from.steps;
  }
  if (rewrite.implementation) settings.implementation = resolved(*rewrite.implementation, pytorch);
  return settings;
}

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
    const Tensor& gradient = graph.tensors[static_cast<std::size_t>(update.gradient)];
    return fail(ErrorCode::kImpossible,
                fmt::format("optimizer: expected dense gradients for anything but a loop of SGD, "
                            "found a sparse one of [{}]",
                            fmt::join(graph.shape(gradient), ", ")));
  }
  return {};
}

class StepWriter {
 public:
  StepWriter(GraphCopy& copy, const ReadStep& step) : copy_(copy), step_(step) {}

  // Groups that are alike now become one, as PyTorch has one list per parameter group.
  void write(const OptimizerRewrite& rewrite) {
    for (std::int32_t op : step_.first) copy_.copy_tree(op);
    copy_.close_to(step_.label);
    OptimizerSettings settings;
    std::vector<ParameterUpdate> updates;
    for (const ReadGroup& group : step_.groups) {
      const OptimizerSettings next = changed(group.settings, rewrite, copy_.builder().pytorch());
      if (!(next == settings)) {
        emit_optimizer(copy_.builder(), settings, std::exchange(updates, {}));
        settings = next;
      }
      for (const ReadUpdate& update : group.updates) {
        if (update.sparse) {  // stays as it is
          emit_optimizer(copy_.builder(), settings, std::exchange(updates, {}));
          copy_.copy_tree(update.last_op);
          copy_.close_to(step_.label);
        } else {
          updates.push_back(converted(update, group.settings, settings));
        }
      }
    }
    emit_optimizer(copy_.builder(), settings, std::move(updates));
  }

 private:
  TensorRef tensor(std::int64_t index) {
    if (index < 0) return {};
    return copy_.builder().tensor_of_source(static_cast<std::uint32_t>(index));
  }

  // State stays with its kind; counters of fused steps lie on the GPU, others on the CPU.
  ParameterUpdate converted(const ReadUpdate& update, const OptimizerSettings& from,
                            const OptimizerSettings& to) {
    ParameterUpdate made{.parameter = tensor(update.parameter),
                         .gradient = tensor(update.gradient)};
    if (from.optimizer != to.optimizer) return made;
    const auto fused = Implementation::kFused;
    if ((from.implementation == fused) == (to.implementation == fused)) {
      made.step = tensor(update.step);
    }
    made.first = tensor(update.first);
    made.second = tensor(update.second);
    return made;
  }

  GraphCopy& copy_;
  const ReadStep& step_;
};

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
  const PyTorch pytorch = dialect_of(graph);
  std::map<std::int32_t, ReadStep> steps;  // by label
  for (std::int32_t label : optimizer_steps(graph)) {
    auto step = read_optimizer_step(graph, label);
    if (!step) return Unexpected{step.error()};
    bool same = true;
    for (const ReadGroup& group : step->groups) {
      const OptimizerSettings settings = changed(group.settings, rewrite, pytorch);
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
    inside[i] =
        step != steps.end() || (node.parent >= 0 && inside[static_cast<std::size_t>(node.parent)]);
    if (inside[i]) continue;
    const auto index = static_cast<std::int32_t>(i);
    copy.copy(index);
    const bool zeroes = graph.name(node).starts_with("Optimizer.zero_grad#");
    if (rewrite.optimizer && (zeroes || steps.contains(index))) {
      ExecutionGraph& made = copy.builder().graph_being_made();
      made.nodes.back().name = made.names.intern(label_name(graph.name(node), *rewrite.optimizer));
    }
    if (const auto at = steps.find(index); at != steps.end()) {
      StepWriter(copy, at->second).write(rewrite);
    }
  }
  return copy.finish();
}

}  // namespace perfmodel
