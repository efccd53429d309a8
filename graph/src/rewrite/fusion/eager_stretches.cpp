#include "eager_stretches.hpp"

#include <algorithm>
#include <functional>
#include <utility>

#include "loop_rules.hpp"
#include "ops/catalogue.hpp"
#include "rewrite/graph_edit.hpp"

namespace perfmodel {
namespace {

// An op that sees memory which it writes as two tensors keeps its own kernel.
bool sees_twice(const ExecutionGraph& graph, const PointwiseUnit& unit) {
  return std::ranges::any_of(unit.outputs, [&](std::uint32_t output) {
    const auto is_other = [&](std::uint32_t mention) {
      const Tensor &one = graph.tensors[output], &other = graph.tensors[mention];
      return one.storage_id == other.storage_id && one.id != other.id;
    };
    return std::ranges::any_of(unit.inputs, is_other) ||
           std::ranges::any_of(unit.outputs, is_other);
  });
}

class StretchFinder {
 public:
  explicit StretchFinder(const ExecutionGraph& graph) : graph_(graph) {}

  std::vector<Stretch> find() {
    std::vector<std::int32_t> roots;  // an op whose parent the file lacks is among them
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(graph_.nodes.size()); ++i) {
      if (graph_.node(i).parent < 0) roots.push_back(i);
    }
    std::ranges::stable_sort(roots, {}, [&](std::int32_t i) { return graph_.node(i).rf_id; });
    walk(roots);
    return std::move(stretches_);
  }

 private:
  void walk(const std::vector<std::int32_t>& region) {
    close();
    for (const std::int32_t node : region) {
      if (is_on_other_thread(node)) close();
      if (is_evaluate_function(graph_, graph_.node(node))) {
        walk_function(node);
      } else {
        walk_or_add(node);
      }
    }
    close();
  }

  bool is_on_other_thread(std::int32_t node) const {
    return !open_.empty() && graph_.node(open_.back().node).thread != graph_.node(node).thread;
  }

  void walk_or_add(std::int32_t node) {
    if (is_region(graph_, graph_.node(node))) {
      return walk(children_in_order(graph_, graph_.node(node)));
    }
    if (auto part = part_of(node)) return add(std::move(*part));
    if (!only_calls_others(graph_, node)) return close();
    for (const std::int32_t child : children_in_order(graph_, graph_.node(node))) {
      walk_or_add(child);
    }
  }

  std::optional<StretchPart> part_of(std::int32_t op) const {
    StretchPart part{.node = op, .unit = pointwise_unit(graph_, op, true)};
    const bool fits = part.unit ? !sees_twice(graph_, *part.unit) : launches_nothing(graph_, op);
    return fits ? std::optional(std::move(part)) : std::nullopt;
  }

  // Ops of a function and the ones after it in the engine's node. An op that only calls others is
  // left out for its children, since it goes with the last of them.
  void add_ops_of(std::int32_t parent, std::vector<std::int32_t>& ops) const {
    for (const std::int32_t child : children_in_order(graph_, graph_.node(parent))) {
      const bool calls_others = !is_region(graph_, graph_.node(child)) && !part_of(child) &&
                                only_calls_others(graph_, child);
      if (graph_.node(child).scope == Scope::kBackward || calls_others) {
        add_ops_of(child, ops);
      } else {
        ops.push_back(child);
      }
    }
  }

  void walk_function(std::int32_t evaluate) {
    std::vector<std::int32_t> ops;
    add_ops_of(evaluate, ops);
    if (ops.empty() && graph_.name(evaluate).ends_with("AccumulateGrad")) return close();
    std::vector<StretchPart> parts;
    for (const std::int32_t op : ops) {
      auto part = is_region(graph_, graph_.node(op)) ? std::nullopt : part_of(op);
      if (!part) break;
      parts.push_back(std::move(*part));
    }
    if (parts.size() < ops.size()) {
      close();
      for (const std::int32_t op : ops) walk_or_add(op);
      return;
    }
    add({.node = evaluate, .is_function = true});
    const std::size_t function = open_.size() - 1;
    for (StretchPart& part : parts) add(std::move(part));
    open_[function].end = open_.size();
  }

  void add(StretchPart part) {
    part.end = open_.size() + 1;
    open_.push_back(std::move(part));
  }

  void close() {
    const auto has_kernel = [](const StretchPart& part) { return part.unit.has_value(); };
    if (std::ranges::count_if(open_, has_kernel) > 1) stretches_.push_back(std::move(open_));
    open_.clear();
  }

  const ExecutionGraph& graph_;
  Stretch open_;
  std::vector<Stretch> stretches_;
};

}  // namespace

bool only_calls_others(const ExecutionGraph& graph, std::int32_t node) {
  const Node& of = graph.node(node);
  const Op* op = find_op(graph.name(node));
  const bool has_given_time = of.kernel_time_us >= 0 || of.kernel_time_scale != 1;
  if (!op || of.children_count == 0 || of.kernel_backend != 0 || has_given_time) return false;
  if (dispatches_again(graph, node)) return true;
  const auto is_part = [&](std::int32_t child) {
    return launches_nothing(graph, child) || pointwise_unit(graph, child, true).has_value();
  };
  const auto children = graph.children(node);
  return op->kind == OpKind::kComposite &&
         std::ranges::count_if(children, std::not_fn(is_part)) <= 1;
}

std::vector<Stretch> eager_stretches(const ExecutionGraph& graph) {
  return StretchFinder(graph).find();
}

}  // namespace perfmodel
