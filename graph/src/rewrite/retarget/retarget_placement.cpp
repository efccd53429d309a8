#include "retarget_placement.hpp"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "ops/catalogue.hpp"
#include "perfmodel/graph/captured.hpp"
#include "rewrite/name_pattern.hpp"

namespace perfmodel {
namespace {

/// One tensor of an op's inputs: its entry and the position of the argument that holds it.
struct Use {
  std::uint32_t tensor;
  std::size_t position;
};

void collect_uses(const ExecutionGraph& graph, const Argument& argument, std::size_t position,
                  std::vector<Use>& uses) {
  if (argument.kind == Argument::Kind::kTensor) uses.push_back({argument.index, position});
  if (argument.kind != Argument::Kind::kList) return;
  for (const Argument& element : graph.elements(argument)) {
    collect_uses(graph, element, position, uses);
  }
}

std::vector<Use> uses_of(const ExecutionGraph& graph, std::span<const Argument> arguments) {
  std::vector<Use> uses;
  for (std::size_t i = 0; i < arguments.size(); ++i) collect_uses(graph, arguments[i], i, uses);
  return uses;
}

// Ops that take a number next to a tensor, which Python's binding wraps into a tensor.
bool takes_numbers(std::string_view name) {
  const Op* op = find_op(name);
  return op && op->takes_numbers;
}

// For each label PyTorch 1.13 makes a handle, in host memory on all machines: a byte tensor
// inside it and, before it, a tensor of one zero.
bool holds_handle(const ExecutionGraph& graph, std::int32_t label) {
  const auto children = graph.children(label);
  if (!graph.node(label).is_label || children.empty()) return false;
  const Node& first = graph.node(children.front());
  const auto outputs = graph.outputs(first);
  if (graph.name(first) != "aten::empty" || outputs.size() != 1 ||
      outputs.front().kind != Argument::Kind::kTensor) {
    return false;
  }
  const Tensor& made = graph.tensors[outputs.front().index];
  return made.dtype == DType::kUInt8 && made.rank == 1 && first.children_count == 0;
}

bool makes_one_zero(const ExecutionGraph& graph, std::int32_t index) {
  const auto inputs = graph.inputs(index);
  if (!is_zeros(graph.name(index)) || inputs.size() < 2) return false;
  if (inputs[0].kind != Argument::Kind::kList || inputs[1].kind != Argument::Kind::kNone) {
    return false;
  }
  const auto sizes = graph.elements(inputs[0]);
  return sizes.size() == 1 && sizes[0].integer == 1;
}

std::vector<bool> find_artefacts(const ExecutionGraph& graph) {
  std::vector<bool> makes_handle(graph.nodes.size());
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(graph.nodes.size()); ++i) {
    const auto children = graph.children(i);
    if (holds_handle(graph, i)) makes_handle[children.front()] = true;
    for (std::size_t k = 0; k + 1 < children.size(); ++k) {
      if (makes_one_zero(graph, children[k]) && holds_handle(graph, children[k + 1])) {
        makes_handle[children[k]] = true;
      }
    }
  }
  return at_or_below(graph, [&](std::size_t i) { return makes_handle[i]; });
}

class Placer {
 public:
  explicit Placer(const StepView& step)
      : step_(step), graph_(step.graph()), written_(step.storages()), results_(step.tensors()) {}

  Placement place() {
    placed_.is_artefact = find_artefacts(graph_);
    placed_.on_host.resize(graph_.nodes.size());
    placed_.tensors_on_host.resize(graph_.tensors.size());
    for (std::int32_t i = 0; i < num_nodes(); ++i) note_written(i);
    if (is_to_retarget(graph_)) {
      placed_.device = "meta";
      take_host_tensors();
    } else {
      find_host_tensors();
    }
    find_inputs();
    return std::move(placed_);
  }

 private:
  /// The last result under an id, from an op that has ended. A wrapped number, which no op gives,
  /// may have the id of a tensor that is gone; mostly its type is another.
  struct LastResult {
    DType dtype = DType::kUnknown;
    bool is_number = false, on_host = false;
  };

  std::int32_t num_nodes() const { return static_cast<std::int32_t>(graph_.nodes.size()); }

  void note_written(std::int32_t i) {
    const auto inputs = graph_.inputs(i);
    if (graph_.node(i).is_structural || !graph_.name(i).ends_with('_') || inputs.empty()) return;
    // A fused optimizer updates all its lists; other ops the first argument.
    const bool all = graph_.name(i).find("_fused_") != std::string_view::npos;
    for_each_tensor(graph_, inputs.first(all ? inputs.size() : 1),
                    [&](const Tensor& tensor) { written_[tensor] = true; });
  }

  bool is_external(const Tensor& tensor) const {
    const Values& storages = step_.storages();
    return tensor.storage_id != 0 && storages.maker(storages.of(tensor)) < 0;
  }

  bool inside_optimizer(std::int32_t i) const {
    const auto steps = [&](std::int32_t at) {
      return graph_.name(at).starts_with("Optimizer.step#");
    };
    return graph_.find_around(graph_.node(i).parent, steps) >= 0;
  }

  // A capture says itself what stays in host memory.
  void take_host_tensors() {
    for (std::size_t t = 0; t < graph_.tensors.size(); ++t) {
      placed_.tensors_on_host[t] = graph_.tensors[t].on_cpu();
    }
    for (std::int32_t i = 0; i < num_nodes(); ++i) {
      std::vector<Use> uses = uses_of(graph_, graph_.inputs(i));
      std::ranges::copy(uses_of(graph_, graph_.outputs(i)), std::back_inserter(uses));
      const auto on_host = [&](const Use& use) { return placed_.tensors_on_host[use.tensor]; };
      if (placed_.is_artefact[i]) {
        for (const Use& use : uses) placed_.tensors_on_host[use.tensor] = true;
      }
      placed_.on_host[i] = !uses.empty() && std::ranges::all_of(uses, on_host);
    }
  }

  // Numbers: wrapped ones of arithmetic ops, step counters of optimizers, and results computed only
  // from these.
  void find_host_tensors() {
    std::vector<std::int32_t> open;
    for (std::int32_t i = 0; i < num_nodes(); ++i) {
      for (; !open.empty() && open.back() != graph_.node(i).parent; open.pop_back()) {
        leave(open.back());
      }
      enter(i);
      open.push_back(i);
    }
    for (; !open.empty(); open.pop_back()) leave(open.back());
  }

  void enter(std::int32_t i) {
    const std::vector<Use> uses = uses_of(graph_, graph_.inputs(i));
    const bool host = placed_.is_artefact[i] || casts_host_number(graph_.node(i).parent);
    bool all = !uses.empty() || host || makes_counter(i);
    for (const Use& use : uses) {
      if (host || is_host_number(i, use, uses)) placed_.tensors_on_host[use.tensor] = true;
      all = all && placed_.tensors_on_host[use.tensor];
    }
    placed_.on_host[i] = all;
  }

  // New state of an optimizer: the number of its steps.
  bool makes_counter(std::int32_t i) const {
    const auto outputs = uses_of(graph_, graph_.outputs(i));
    if (outputs.size() != 1 || !inside_optimizer(i)) return false;
    const Tensor& tensor = graph_.tensors[outputs[0].tensor];
    return tensor.rank == 0 && tensor.dtype == DType::kFloat32 && tensor.on_cpu() &&
           uses_of(graph_, graph_.inputs(i)).empty();
  }

  void leave(std::int32_t i) {
    const bool host = placed_.on_host[i];
    for (const Use& use : uses_of(graph_, graph_.outputs(i))) {
      if (host) placed_.tensors_on_host[use.tensor] = true;
      const Tensor& tensor = graph_.tensors[use.tensor];
      results_[tensor] = {tensor.dtype, tensor.rank == 0, host};
    }
  }

  // Ops under such a cast work on host memory too.
  bool casts_host_number(std::int32_t i) const {
    return i >= 0 && placed_.on_host[i] && is_conversion(graph_.name(i));
  }

  bool is_host_number(std::int32_t i, const Use& use, const std::vector<Use>& uses) const {
    const Tensor& tensor = graph_.tensors[use.tensor];
    if (tensor.rank != 0 || !tensor.on_cpu()) return false;
    const LastResult& last = results_[tensor];
    const bool is_made = last.is_number && last.dtype == tensor.dtype;
    if (is_made && last.on_host) return true;
    if (is_external(tensor) && written_[tensor]) {
      return tensor.dtype == DType::kFloat32 && inside_optimizer(i);
    }
    const std::int32_t parent = graph_.node(i).parent;
    if (parent >= 0 && is_conversion(graph_.name(i)) && takes_numbers(graph_.name(parent))) {
      return is_host_argument(parent, tensor);
    }
    if (!takes_numbers(graph_.name(i))) return false;
    if (use.position == 0 && !is_made && wraps_number(parent)) return true;
    if (tensor.dtype == DType::kFloat64 && uses.size() > 1) {
      const Tensor& other = graph_.tensors[uses[use.position == 0 ? 1 : 0].tensor];
      if (other.dtype != DType::kFloat64) return true;
    }
    return use.position > 0 && !is_made && !is_floating_point(tensor.dtype);
  }

  // `x * 3` in place, which calls `mul_out` of the wrapped number and the tensor.
  bool wraps_number(std::int32_t i) const {
    if (i < 0 || !takes_numbers(graph_.name(i)) || graph_.inputs(i).size() < 2) return false;
    return graph_.inputs(i)[1].kind == Argument::Kind::kInt;
  }

  bool is_host_argument(std::int32_t i, const Tensor& tensor) const {
    return std::ranges::any_of(uses_of(graph_, graph_.inputs(i)), [&](const Use& use) {
      return graph_.tensors[use.tensor].id == tensor.id && placed_.tensors_on_host[use.tensor];
    });
  }

  // Storages that some op takes at such positions: a fused op without a row takes parameters that
  // the ops below it name as such, a view hands data on.
  FactsOfValues<bool> taken_as(Positions OpFacts::*positions) const {
    FactsOfValues<bool> taken(step_.storages());
    for (std::int32_t i = 0; i < num_nodes(); ++i) {
      const Op* op = graph_.node(i).is_structural ? nullptr : find_op(graph_.name(i));
      if (!op) continue;
      for (const Use& use : uses_of(graph_, graph_.inputs(i))) {
        if ((op->*positions).has(use.position)) taken[graph_.tensors[use.tensor]] = true;
      }
    }
    return taken;
  }

  // Tensors that are met first where an op takes a weight, a statistic or a constant are no inputs
  // of the step, even where no optimizer updates them.
  void find_inputs() {
    const FactsOfValues<bool> parameters = taken_as(&OpFacts::weights);
    const FactsOfValues<bool> data = taken_as(&OpFacts::data);
    FactsOfValues<bool> seen(step_.storages());
    std::vector<StepInput> unclear;
    std::set<std::int64_t> batches;
    for (std::int32_t i = 0; i < num_nodes(); ++i) {
      if (graph_.node(i).is_structural || placed_.is_artefact[i]) continue;
      const Op* op = find_op(graph_.name(i));
      for (const Use& use : uses_of(graph_, graph_.inputs(i))) {
        const Tensor& tensor = graph_.tensors[use.tensor];
        if (tensor.rank == 0 || placed_.tensors_on_host[use.tensor]) continue;
        if (!is_external(tensor) || written_[tensor] || seen[tensor]) continue;
        seen[tensor] = true;
        const bool is_view = op && op->kind == OpKind::kView;
        if (op && (op->data.has(use.position) || (is_view && data[tensor]))) {
          placed_.inputs.push_back({use.tensor, i});
          batches.insert(graph_.shape(tensor).front());
        } else if (!(op && op->constants.has(use.position)) && !parameters[tensor]) {
          unclear.push_back({use.tensor, i});
        }
      }
    }
    // The rest counts as data if it is as long as something that surely is: masks, weights of
    // samples, images that are normalized first. If nothing surely is, all of it counts.
    for (const StepInput& input : unclear) {
      const std::int64_t length = graph_.shape(graph_.tensors[input.tensor]).front();
      if (batches.empty() || batches.contains(length)) placed_.inputs.push_back(input);
    }
    std::sort(placed_.inputs.begin(), placed_.inputs.end(),
              [](const StepInput& a, const StepInput& b) { return a.node < b.node; });
  }

  const StepView& step_;
  const ExecutionGraph& graph_;
  Placement placed_;
  FactsOfValues<bool> written_;  // storages
  FactsOfValues<LastResult> results_;
};

}  // namespace

Placement place_on_gpu(const StepView& step) { return Placer(step).place(); }

}  // namespace perfmodel
