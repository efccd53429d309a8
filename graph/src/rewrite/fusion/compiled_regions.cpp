#include "compiled_regions.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "base/contains.hpp"
#include "ops/catalogue.hpp"
#include "step/tree_walk.hpp"

namespace perfmodel {
namespace {

bool any_tensor(const ExecutionGraph& graph, std::int32_t node, bool (Tensor::*is)() const) {
  bool found = false;
  const auto look = [&](const Tensor& tensor) { found |= (tensor.*is)(); };
  for_each_tensor(graph, graph.inputs(node), look);
  for_each_tensor(graph, graph.outputs(node), look);
  return found;
}

bool is_recurrent_layer(std::string_view name) {
  return name == "aten::lstm" || name == "aten::gru" || name.starts_with("aten::rnn_") ||
         name.starts_with("aten::_cudnn_rnn") || name.starts_with("aten::miopen_rnn") ||
         name.starts_with("recurrent::");
}

// TorchDynamo leaves the graph at this node.
bool breaks_graph(const ExecutionGraph& graph, std::int32_t node) {
  const std::string_view name = graph.name(node);
  if (graph.node(node).comm >= 0 || name.starts_with("c10d::")) return true;
  static constexpr auto kBreaks = std::to_array<std::string_view>(
      {"aten::_local_scalar_dense", "aten::item", "aten::nonzero", "aten::masked_select",
       "aten::_unique2", "aten::_unique", "aten::argwhere", "aten::unique_consecutive",
       "aten::unique_dim", "aten::equal", "aten::is_nonzero", "torchvision::nms"});
  if (contains(kBreaks, name) || is_recurrent_layer(name)) return true;
  const std::size_t colons = name.find("::");
  const bool is_foreign = colons != std::string_view::npos && !name.starts_with("aten::") &&
                          !name.starts_with("autograd::") && !name.starts_with("prims::");
  return is_foreign && !find_op(name);
}

bool holds_break(const ExecutionGraph& graph, std::int32_t node) {
  if (breaks_graph(graph, node)) return true;
  const std::int32_t parent = graph.node(node).parent;
  if (parent >= 0 && is_recurrent_layer(graph.name(parent))) return true;
  return std::ranges::any_of(graph.children(node),
                             [&](std::int32_t child) { return holds_break(graph, child); });
}

bool is_loss(std::string_view name) {
  return name.ends_with("_loss") || name.ends_with("_loss_nd") || name.ends_with("_loss2d") ||
         name.ends_with("log_softmax") || name.starts_with("aten::binary_cross_entropy");
}

bool holds_collective(const ExecutionGraph& graph, std::int32_t node) {
  return graph.node(node).comm >= 0 ||
         std::ranges::any_of(graph.children(node),
                             [&](std::int32_t child) { return holds_collective(graph, child); });
}

class RegionFinder {
 public:
  RegionFinder(const StepView& step, CompileExtent extent)
      : step_(step),
        graph_(step.graph()),
        extent_(extent),
        hands_to_others_(graph_.nodes.size()),
        takes_from_others_(graph_.nodes.size()) {
    for (const BackwardFunction& function : step.backward().functions) {
      const std::int32_t op = step.forward().op_around(function.forward);
      if (op < 0) continue;
      hands_to_others_[op] = hands_to_others_[op] || holds_collective(graph_, function.evaluate);
      takes_from_others_[op] = takes_from_others_[op] || takes_from_collective(function);
    }
  }

  std::vector<CompiledRegion> find() {
    std::int32_t last = -1;
    for (const std::int32_t op : step_.forward().ops()) {
      const bool on_other_thread = last >= 0 && graph_.node(last).thread != graph_.node(op).thread;
      if (on_other_thread || (last >= 0 && holds_backward(last, op))) close();
      last = op;
      if (is_under_optimizer(graph_, op) || holds_break(graph_, op) || hands_to_others_[op]) {
        close();
        continue;
      }
      open_.ops.push_back(op);
      if (takes_from_others_[op]) close();
    }
    close();
    add_functions();
    return std::move(regions_);
  }

 private:
  // Whether a collective between the functions of the backward pass made or changed its gradient.
  bool takes_from_collective(const BackwardFunction& function) const {
    bool found = false;
    for_each_tensor(graph_, graph_.inputs(function.function), [&](const Tensor& gradient) {
      for (const std::int32_t before : users(gradient)) {
        found |= before < function.evaluate && !step_.backward().in_backward[before] &&
                 holds_collective(graph_, before);
      }
    });
    return found;
  }
  std::vector<std::int32_t> users(const Tensor& tensor) const {
    const std::int32_t storage = step_.storages().of(tensor);
    const auto readers = step_.storages().readers(storage);
    std::vector<std::int32_t> nodes(readers.begin(), readers.end());
    if (const std::int32_t maker = step_.storages().maker(storage); maker >= 0) {
      nodes.push_back(maker);
    }
    return nodes;
  }

  bool holds_backward(std::int32_t begin, std::int32_t end) const {
    const auto& in_backward = step_.backward().in_backward;
    return std::any_of(in_backward.begin() + begin, in_backward.begin() + end,
                       [](bool is) { return is; });
  }

  // The host gives inputs; the ops after the last input are compiled.
  bool comes_from_host(std::int32_t op) const {
    if (!any_tensor(graph_, op, &Tensor::on_gpu)) return true;
    const auto inputs = graph_.inputs(op);
    if (inputs.empty() || inputs[0].kind != Argument::Kind::kTensor) return false;
    const Op* row = find_op(graph_.name(op));
    const bool moves = row && (row->kind == OpKind::kCast || row->kind == OpKind::kCopy);
    return moves && graph_.tensors[inputs[0].index].on_cpu();
  }

  // Whether the op prepares later ones: it makes the gradient of the loss, or memory that a
  // collective writes.
  bool prepares(std::int32_t op) const {
    const Op* row = find_op(graph_.name(op));
    return graph_.name(op) == "aten::ones_like" || (row && row->kind == OpKind::kAllocation);
  }

  void close() {
    std::vector<std::int32_t>& ops = open_.ops;
    const auto first =
        std::ranges::find_if_not(ops, [&](std::int32_t op) { return comes_from_host(op); });
    ops.erase(ops.begin(), first);
    while (!ops.empty() && (comes_from_host(ops.back()) || prepares(ops.back()))) ops.pop_back();
    if (extent_ == CompileExtent::kModel) leave_loss_out();
    if (!ops.empty()) regions_.push_back(std::move(open_));
    open_ = {};
  }

  // The first op of a loss after which nothing else computes.
  void leave_loss_out() {
    std::vector<std::int32_t>& ops = open_.ops;
    auto first = ops.end();
    for (auto at = ops.end(); at != ops.begin();) {
      --at;
      const Op* op = find_op(graph_.name(*at));
      const bool computes =
          op && (op->kind == OpKind::kProduct || op->kind == OpKind::kConvolution ||
                 graph_.name(*at) == "aten::linear");
      if (computes) break;
      if (is_loss(graph_.name(*at))) first = at;
    }
    if (first == ops.end()) return;
    // Views and slices that the loss alone reads.
    const ForwardFlow& flow = step_.forward();
    while (first != ops.begin()) {
      const std::int32_t before = *(first - 1);
      const Op* op = find_op(graph_.name(before));
      const bool is_view = op && (op->kind == OpKind::kView || op->kind == OpKind::kCopy ||
                                  op->kind == OpKind::kCast);
      const bool is_read_before =
          std::ranges::any_of(flow.outputs(before), [&](const Version* made) {
            return std::ranges::any_of(made->readers,
                                       [&](std::int32_t reader) { return reader < *first; });
          });
      if (!is_view || is_read_before) break;
      --first;
    }
    ops.erase(first, ops.end());
  }

  // The op around a node, or the first one below it.
  std::int32_t op_of(std::int32_t forward) const {
    if (forward < 0) return -1;
    const std::int32_t end = last_below(graph_, forward);
    std::int32_t op = -1;
    for (std::int32_t node = forward; op < 0 && node <= end; ++node) {
      op = step_.forward().op_around(node);
    }
    return op;
  }

  void add_functions() {
    std::vector<std::int32_t> region_of(graph_.nodes.size(), -1);
    std::vector<std::pair<std::int64_t, std::int64_t>> numbers;  // autograd's first and last
    for (std::size_t i = 0; i < regions_.size(); ++i) {
      std::int64_t first = step_.backward().last_sequence + 1, last = -1;
      for (const std::int32_t op : regions_[i].ops) {
        region_of[op] = static_cast<std::int32_t>(i);
        if (graph_.node(op).seq_id < 0) continue;
        first = std::min(first, graph_.node(op).seq_id);
        last = std::max(last, graph_.node(op).seq_id);
      }
      numbers.emplace_back(first, last);
    }
    const auto& functions = step_.backward().functions;
    for (std::size_t i = 0; i < functions.size(); ++i) {
      const BackwardFunction& function = functions[i];
      if (function.accumulates() || holds_collective(graph_, function.evaluate)) continue;
      const std::int32_t op = op_of(function.forward);
      std::int32_t region = op < 0 ? -1 : region_of[op];
      if (function.forward < 0) {  // some recordings lack the numbers of ops inside others
        const auto holds = [&](const auto& of) {
          return of.first <= function.sequence && function.sequence <= of.second;
        };
        const auto found = std::ranges::find_if(numbers, holds);
        region = found == numbers.end() ? -1 : static_cast<std::int32_t>(found - numbers.begin());
      }
      if (region < 0) continue;
      if (op > function.forward && function.forward >= 0) {
        regions_[region].wrappers.push_back(function.forward);
      }
      regions_[region].functions.push_back(static_cast<std::int32_t>(i));
      regions_[region].sequence = std::max(regions_[region].sequence, function.sequence);
    }
  }

  const StepView& step_;
  const ExecutionGraph& graph_;
  CompileExtent extent_;
  // By op: its backward function holds a collective; one of the backward pass made its gradient.
  std::vector<bool> hands_to_others_, takes_from_others_;
  CompiledRegion open_;
  std::vector<CompiledRegion> regions_;
};

}  // namespace

std::vector<CompiledRegion> compiled_regions(const StepView& step, CompileExtent extent) {
  return RegionFinder(step, extent).find();
}

}  // namespace perfmodel
