#include "optimizer_writer.hpp"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "builders/emit/memory.hpp"
#include "step/tensor_arguments.hpp"

namespace perfmodel {
namespace {

using Implementation = TrainingOptions::Implementation;
using Optimizer = TrainingOptions::Optimizer;

template <class Visit>
void visit_below(const ExecutionGraph& graph, std::int32_t node, const Visit& visit) {
  visit(node);
  for (const std::int32_t child : graph.children(node)) visit_below(graph, child, visit);
}

// Told by how often the update looks rows of its state up: SparseAdam does it for both of its
// means.
Optimizer optimizer_of_sparse(const ExecutionGraph& graph, const std::vector<std::int32_t>& ops) {
  const auto looks = std::ranges::count_if(
      ops, [&](std::int32_t op) { return graph.name(op) == "aten::sparse_mask"; });
  return looks == 0 ? Optimizer::kSgd : looks == 1 ? Optimizer::kAdagrad : Optimizer::kSparseAdam;
}

// Indices or values of a sparse tensor, as an op below has asked for them; -1: none has.
std::int64_t part_of_sparse(const ExecutionGraph& graph, const std::vector<std::int32_t>& ops,
                            std::string_view asks, std::int64_t sparse) {
  std::int64_t found = -1;
  for (const std::int32_t op : ops) {
    visit_below(graph, op, [&](std::int32_t node) {
      const Tensor* of = input_at(graph, node, 0);
      const auto outputs = graph.outputs(node);
      const bool is_it = graph.name(node) == asks && of && of->id == sparse && outputs.size() == 1;
      if (found < 0 && is_it) found = outputs[0].index;
    });
  }
  return found;
}

class StepWriter {
 public:
  StepWriter(GraphCopy& copy, const ReadStep& step, const FactsOfValues<TensorRef>* others)
      : copy_(copy), graph_(copy.builder()), step_(step), others_(others) {}

  // Neighbouring groups of equal settings become one, as PyTorch has one list per parameter group.
  void write() {
    for (const std::int32_t op : step_.first) copy_.copy_tree(op);
    copy_.close_to(step_.label);
    for (const ReadGroup& group : step_.groups) {
      if (!(group.settings == settings_)) write_updates();
      settings_ = group.settings;
      for (const ReadUpdate& update : group.updates) {
        if (update.sparse) {
          add_sparse(update);
        } else {
          add(update, changed(update.gradient));
        }
        last_op_ = update.last_op;
      }
    }
    write_updates();
  }

 private:
  void write_updates() {
    emit_optimizer(graph_, settings_, std::exchange(updates_, {}));
    for (const auto& [weight, master] : std::exchange(masters_, {})) {
      perfmodel::copy(graph_, weight, master);
    }
  }

  TensorRef tensor(std::int64_t index) {
    if (index < 0) return {};
    return graph_.tensor_of_source(static_cast<std::uint32_t>(index));
  }

  // Returns the tensor that a parameter or a gradient has become.
  TensorRef changed(std::int64_t index) {
    const TensorRef other = others_ ? (*others_)[copy_.source().tensors[index]] : TensorRef{};
    return other.exists() ? other : tensor(index);
  }

  // The ops between the update before and the end of this one.
  std::vector<std::int32_t> ops_of(const ReadUpdate& update) const {
    const auto& nodes = copy_.source().nodes;
    const auto order = [&](std::int32_t node) { return nodes[node].rf_id; };
    std::vector<std::int32_t> ops;
    for (const std::int32_t op : children_in_order(copy_.source(), nodes[step_.label])) {
      const bool is_first = std::ranges::find(step_.first, op) != step_.first.end();
      const bool is_before = last_op_ >= 0 && order(op) <= order(last_op_);
      if (!is_first && !is_before && order(op) <= order(update.last_op)) ops.push_back(op);
    }
    return ops;
  }

  // An update that stays is copied; another one needs the entries of the gradient.
  void add_sparse(const ReadUpdate& update) {
    const std::vector<std::int32_t> ops = ops_of(update);
    if (optimizer_of_sparse(copy_.source(), ops) == settings_.optimizer) {
      write_updates();
      for (const std::int32_t op : ops) copy_.copy_tree(op);
      copy_.close_to(step_.label);
      return;
    }
    const TensorRef gradient = tensor(update.gradient);
    const std::int64_t id = copy_.source().tensors[update.gradient].id;
    const auto part = [&](const char* op) {
      return tensor(part_of_sparse(copy_.source(), ops, op, id));
    };
    graph_.set_sparse_parts(gradient, part("aten::_indices"), part("aten::_values"));
    add(update, gradient);
  }

  void add(const ReadUpdate& update, TensorRef gradient) {
    const TensorRef parameter = changed(update.parameter);
    const DType from = graph_.dtype(gradient), to = graph_.dtype(parameter);
    const bool is_cast = from != to && is_floating_point(from) && is_floating_point(to);
    updates_.push_back({.parameter = parameter,
                        .gradient = is_cast ? to_dtype(graph_, gradient, to) : gradient,
                        .step = tensor(update.step),
                        .first = tensor(update.first),
                        .second = tensor(update.second),
                        .first_scale = tensor(update.first_scale),
                        .second_scale = tensor(update.second_scale)});
    if (update.weight >= 0) masters_.emplace_back(tensor(update.weight), parameter);
  }

  GraphCopy& copy_;
  GraphBuilder& graph_;
  const ReadStep& step_;
  const FactsOfValues<TensorRef>* others_;
  OptimizerSettings settings_;  // for the updates at hand
  std::int32_t last_op_ = -1;   // last op of the update before
  std::vector<ParameterUpdate> updates_;
  std::vector<std::pair<TensorRef, TensorRef>> masters_;  // weight, its copy
};

OptimizerSettings rewritten_settings(const OptimizerSettings& from, const OptimizerRewrite& rewrite,
                                     const PyTorch& pytorch) {
  OptimizerSettings settings = from;
  if (rewrite.optimizer && *rewrite.optimizer != from.optimizer) {
    settings = optimizer_settings(*rewrite.optimizer, from.implementation);
    settings.steps = from.steps;
  }
  if (rewrite.implementation) settings.implementation = resolved(*rewrite.implementation, pytorch);
  return settings;
}

}  // namespace

// State stays with its kind, in 8 bits with its own; counters of fused steps are on the GPU, others
// on the CPU.
ReadStep rewritten_step(ReadStep step, const OptimizerRewrite& rewrite, const PyTorch& pytorch) {
  for (ReadGroup& group : step.groups) {
    const OptimizerSettings from =
        std::exchange(group.settings, rewritten_settings(group.settings, rewrite, pytorch));
    const auto changes = [&](Implementation how) {
      return (from.implementation == how) != (group.settings.implementation == how);
    };
    const bool has_other_state =
        from.optimizer != group.settings.optimizer || changes(Implementation::kEightBit);
    for (ReadUpdate& update : group.updates) {
      if (has_other_state || changes(Implementation::kFused)) update.step = -1;
      if (has_other_state) {
        update.first = update.second = update.first_scale = update.second_scale = -1;
      }
    }
  }
  return step;
}

void write_optimizer_step(GraphCopy& copy, const ReadStep& step,
                          const FactsOfValues<TensorRef>* others) {
  StepWriter(copy, step, others).write();
}

}  // namespace perfmodel
