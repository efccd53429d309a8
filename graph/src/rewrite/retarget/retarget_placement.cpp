#include "retarget_placement.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "builders/emit/graph_builder.hpp"
#include "ops/catalogue.hpp"
#include "step/autograd_names.hpp"

namespace perfmodel {
namespace {

constexpr std::string_view kThreadName = "[pytorch|profiler|execution_trace|thread]";

bool in_place(std::string_view op) { return op.ends_with('_'); }

// Ops that take a number next to a tensor, which Python's binding wraps into a tensor.
bool takes_numbers(std::string_view name) {
  const Op* op = find_op(name);
  return op && op->takes_numbers;
}

/// Tensors that are met first where an op takes a weight, a statistic or a constant are no inputs
/// of the step, even where no optimizer updates them.
bool is_weight_argument(std::string_view name, std::size_t position) {
  const Op* op = find_op(name);
  return op && (op->weights.has(position) || op->constants.has(position));
}

bool is_parameter(std::string_view name, std::size_t position) {
  const Op* op = find_op(name);
  return op && op->weights.has(position);
}

bool is_data_argument(std::string_view name, std::size_t position) {
  const Op* op = find_op(name);
  return op && op->data.has(position);
}

/// What these hand out belongs to a sparse tensor, which itself has no storage.
bool hands_out_part(std::string_view op) {
  return op == "aten::_indices" || op == "aten::_values" || op == "aten::indices" ||
         op == "aten::values";
}

/// One tensor of an op's inputs: its entry and the position of the argument that holds it.
struct Use {
  std::uint32_t tensor;
  std::size_t position;
};

void collect(const ExecutionGraph& graph, std::span<const Argument> arguments,
             std::size_t position_of_all, bool is_list, std::vector<Use>& uses) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::size_t position = is_list ? position_of_all : i;
    if (arguments[i].kind == Argument::Kind::kTensor) {
      uses.push_back({arguments[i].index, position});
    } else if (arguments[i].kind == Argument::Kind::kList) {
      collect(graph, graph.elements(arguments[i]), position, true, uses);
    }
  }
}

std::vector<Use> uses_of(const ExecutionGraph& graph, std::span<const Argument> arguments) {
  std::vector<Use> uses;
  collect(graph, arguments, 0, false, uses);
  return uses;
}

std::int32_t num_nodes(const ExecutionGraph& graph) {
  return static_cast<std::int32_t>(graph.nodes.size());
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

bool inside_optimizer(const ExecutionGraph& graph, std::int32_t i) {
  for (std::int32_t at = graph.node(i).parent; at >= 0; at = graph.node(at).parent) {
    if (graph.name(at).starts_with("Optimizer.step#")) return true;
    if (graph.node(at).parent == at) break;
  }
  return false;
}

// A fused op without a row takes parameters that the ops below it name as such.
std::unordered_set<std::int64_t> find_parameters(const ExecutionGraph& graph) {
  std::unordered_set<std::int64_t> parameters;
  for (std::int32_t i = 0; i < num_nodes(graph); ++i) {
    if (graph.node(i).is_structural) continue;
    for (const Use& use : uses_of(graph, graph.inputs(i))) {
      if (!is_parameter(graph.name(i), use.position)) continue;
      parameters.insert(graph.tensors[use.tensor].storage_id);
    }
  }
  return parameters;
}

// `on_host`: per entry of tensors, whether it stays in host memory.
void move_tensors(const std::vector<bool>& on_host, Placement& placed) {
  ExecutionGraph& graph = placed.graph;
  for (std::size_t t = 0; t < graph.tensors.size(); ++t) {
    Tensor& tensor = graph.tensors[t];
    if (tensor.on_cpu() && !on_host[t]) {
      tensor.device = {.kind = Device::Kind::kGpu, .index = 0};
    }
  }
  const NameId gpu = graph.names.intern("cuda:0");
  for (std::int32_t i = 0; i < num_nodes(graph); ++i) {
    if (placed.on_host[i]) continue;
    const Node& at = graph.node(i);
    for (std::uint32_t k = 0; k < at.inputs_count; ++k) {
      Argument& argument = graph.arguments[at.inputs_begin + k];
      if (argument.kind == Argument::Kind::kOpaque && graph.names.text(argument.index) == "cpu") {
        argument.index = gpu;
      }
    }
  }
}

std::vector<std::int32_t> backward_roots(const ExecutionGraph& graph) {
  std::vector<std::int32_t> roots;
  std::vector<bool> inside(graph.nodes.size(), false);
  for (std::int32_t i = 0; i < num_nodes(graph); ++i) {
    const std::int32_t parent = graph.node(i).parent;
    const bool nested = parent >= 0 && parent != i && inside[parent];
    const bool evaluates =
        graph.name(i).starts_with(kEvaluate) && graph.node(i).thread == GraphBuilder::kMainThread;
    if (evaluates && !nested) roots.push_back(i);
    inside[i] = nested || evaluates;
  }
  return roots;
}

std::string thread_name(const ExecutionGraph& graph) {
  for (const Node& at : graph.nodes) {
    if (graph.name(at).ends_with("|thread]")) return std::string(graph.name(at));
  }
  return std::string(kThreadName);
}

// A CPU's backward functions run on the thread that asked for them, a GPU's on a thread of their
// own, whose node is started by the first.
void move_backward(const ExecutionGraph& source, Placement& placed) {
  ExecutionGraph& graph = placed.graph;
  const std::vector<std::int32_t> roots = backward_roots(source);
  if (roots.empty()) return;
  for (Node& at : graph.nodes) {  // room for one more id
    at.id = 2 * at.id + 1;
    at.parent_id = 2 * at.parent_id + 1;
    if (at.fw_parent != 0) at.fw_parent = 2 * at.fw_parent + 1;
  }
  constexpr std::int32_t kThread = GraphBuilder::kAutogradThread;
  const std::int64_t thread_id = graph.node(roots.front()).id - 1;
  std::vector<bool> moved(graph.nodes.size(), false);
  for (std::int32_t root : roots) {
    Node& at = graph.node(root);
    const std::int64_t caller = at.parent_id;
    at.parent_id = thread_id;
    moved[root] = true;
    for (std::int32_t child : source.children(root)) {
      Node& function = graph.node(child);
      if (function.scope == Scope::kBackward) function.fw_parent = caller;
    }
  }
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const std::int32_t parent = source.nodes[i].parent;
    if (!moved[i] && parent >= 0) moved[i] = moved[parent];
    if (moved[i]) graph.nodes[i].thread = kThread;
  }
  const auto at = static_cast<std::ptrdiff_t>(roots.front());
  Node thread = graph.nodes.front();
  thread.id = thread_id;
  thread.parent_id = graph.nodes.front().id;
  thread.name = graph.names.intern(thread_name(source));
  thread.thread = kThread;
  thread.rf_id = graph.node(roots.front()).rf_id;
  graph.nodes.insert(graph.nodes.begin() + at, thread);
  placed.on_host.insert(placed.on_host.begin() + at, false);
  placed.is_artefact.insert(placed.is_artefact.begin() + at, false);
  for (StepInput& input : placed.inputs) input.node += input.node >= roots.front() ? 1 : 0;
  index_graph(graph);
}

class Placer {
 public:
  explicit Placer(const ExecutionGraph& graph) : graph_(graph) {
    placed_.on_host.resize(graph.nodes.size(), false);
    placed_.is_artefact.resize(graph.nodes.size(), false);
  }

  Placement place() {
    find_artefacts();
    find_storages();
    find_host_tensors();
    find_inputs();
    placed_.graph = graph_;
    move_tensors(on_host_, placed_);
    move_backward(graph_, placed_);
    return std::move(placed_);
  }

 private:
  void find_artefacts() {
    for (std::int32_t i = 0; i < num_nodes(graph_); ++i) {
      const auto children = graph_.children(i);
      if (holds_handle(graph_, i)) mark_artefact(children.front());
      for (std::size_t k = 0; k + 1 < children.size(); ++k) {
        if (makes_one_zero(graph_, children[k]) && holds_handle(graph_, children[k + 1])) {
          mark_artefact(children[k]);
        }
      }
    }
    for (std::int32_t i = 0; i < num_nodes(graph_); ++i) {  // parents stand before their children
      const std::int32_t parent = graph_.node(i).parent;
      if (parent >= 0 && parent < i && is_artefact(parent)) mark_artefact(i);
    }
  }
  bool is_artefact(std::int32_t i) const { return placed_.is_artefact[i]; }
  void mark_artefact(std::int32_t i) { placed_.is_artefact[i] = true; }

  // Ids are addresses: what lives through the whole step shares its storage with no op's result.
  void find_storages() {
    for (std::int32_t i = 0; i < num_nodes(graph_); ++i) {
      if (graph_.node(i).is_structural || hands_out_part(graph_.name(i))) continue;
      std::unordered_set<std::int64_t> given;
      for_each_tensor(graph_, graph_.inputs(i),
                      [&](const Tensor& tensor) { given.insert(tensor.storage_id); });
      for_each_tensor(graph_, graph_.outputs(i), [&](const Tensor& tensor) {
        if (!given.contains(tensor.storage_id)) made_.insert(tensor.storage_id);
      });
      if (in_place(graph_.name(i))) note_written(i);
    }
  }

  void note_written(std::int32_t i) {
    const auto inputs = graph_.inputs(i);
    if (inputs.empty()) return;
    // A fused optimizer updates all its lists; other ops the first argument.
    const bool all = graph_.name(i).find("_fused_") != std::string_view::npos;
    for (const Argument& argument : inputs.first(all ? inputs.size() : 1)) {
      for_each_tensor(graph_, std::span(&argument, 1),
                      [&](const Tensor& tensor) { written_.insert(tensor.storage_id); });
    }
  }

  bool is_external(const Tensor& tensor) const {
    return tensor.storage_id != 0 && !made_.contains(tensor.storage_id);
  }

  // Numbers: wrapped ones of arithmetic ops, step counters of optimizers, what is computed from
  // these alone.
  void find_host_tensors() {
    on_host_.resize(graph_.tensors.size(), false);
    std::vector<std::int32_t> open;
    const auto close = [&] {
      leave(open.back());
      open.pop_back();
    };
    for (std::int32_t i = 0; i < num_nodes(graph_); ++i) {
      while (!open.empty() && open.back() != graph_.node(i).parent) close();
      enter(i);
      open.push_back(i);
    }
    while (!open.empty()) close();
  }

  void enter(std::int32_t i) {
    const std::vector<Use> uses = uses_of(graph_, graph_.inputs(i));
    const bool host = is_artefact(i) || casts_host_number(graph_.node(i).parent);
    bool all = !uses.empty() || host || makes_counter(i);
    for (const Use& use : uses) {
      if (host || is_host_number(i, use, uses)) on_host_[use.tensor] = true;
      all &= static_cast<bool>(on_host_[use.tensor]);
    }
    placed_.on_host[i] = all;
  }

  // New state of an optimizer: the number of its steps.
  bool makes_counter(std::int32_t i) const {
    const auto outputs = uses_of(graph_, graph_.outputs(i));
    if (outputs.size() != 1 || !inside_optimizer(graph_, i)) return false;
    const Tensor& tensor = graph_.tensors[outputs[0].tensor];
    return tensor.rank == 0 && tensor.dtype == DType::kFloat32 && tensor.on_cpu() &&
           uses_of(graph_, graph_.inputs(i)).empty();
  }

  void leave(std::int32_t i) {
    const bool host = placed_.on_host[i];
    for (const Use& use : uses_of(graph_, graph_.outputs(i))) {
      const Tensor& tensor = graph_.tensors[use.tensor];
      if (host) on_host_[use.tensor] = true;
      numbers_[tensor.id] = {tensor.dtype, tensor.rank == 0, host};
    }
  }

  // What lies under such a cast works on host memory too.
  bool casts_host_number(std::int32_t i) const {
    return i >= 0 && placed_.on_host[i] && is_conversion(graph_.name(i));
  }

  bool is_host_number(std::int32_t i, const Use& use, const std::vector<Use>& uses) const {
    const Tensor& tensor = graph_.tensors[use.tensor];
    if (tensor.rank != 0 || !tensor.on_cpu()) return false;
    const auto last = numbers_.find(tensor.id);
    const bool made =
        last != numbers_.end() && last->second.is_number && last->second.dtype == tensor.dtype;
    if (made && last->second.on_host && !is_made_around(i, tensor.id)) return true;
    if (is_external(tensor) && written_.contains(tensor.storage_id)) {
      return tensor.dtype == DType::kFloat32 && inside_optimizer(graph_, i);
    }
    const std::int32_t parent = graph_.node(i).parent;
    if (parent >= 0 && is_conversion(graph_.name(i)) && takes_numbers(graph_.name(parent))) {
      return is_host_argument(parent, tensor.id);
    }
    if (!takes_numbers(graph_.name(i))) return false;
    if (tensor.dtype == DType::kFloat64 && uses.size() > 1) {
      const Tensor& other = graph_.tensors[uses[use.position == 0 ? 1 : 0].tensor];
      if (other.dtype != DType::kFloat64) return true;
    }
    return use.position > 0 && !made && !is_floating_point(tensor.dtype);
  }

  // Whether an op around a node makes the tensor: what had its id before is gone.
  bool is_made_around(std::int32_t i, std::int64_t id) const {
    const auto names = [&](std::span<const Argument> arguments) {
      bool named = false;
      for_each_tensor(graph_, arguments, [&](const Tensor& one) { named |= one.id == id; });
      return named;
    };
    const auto makes = [&](std::int32_t op) {
      return names(graph_.outputs(op)) && !names(graph_.inputs(op));
    };
    return graph_.find_around(graph_.node(i).parent, makes) >= 0;
  }

  bool is_host_argument(std::int32_t i, std::int64_t id) const {
    for (const Use& use : uses_of(graph_, graph_.inputs(i))) {
      if (graph_.tensors[use.tensor].id == id && on_host_[use.tensor]) return true;
    }
    return false;
  }

  void find_inputs() {
    const std::unordered_set<std::int64_t> parameters = find_parameters(graph_);
    std::unordered_set<std::int64_t> seen;
    std::vector<StepInput> unclear;
    std::unordered_set<std::int64_t> batches;
    for (std::int32_t i = 0; i < num_nodes(graph_); ++i) {
      if (graph_.node(i).is_structural || is_artefact(i)) continue;
      for (const Use& use : uses_of(graph_, graph_.inputs(i))) {
        const Tensor& tensor = graph_.tensors[use.tensor];
        if (tensor.rank == 0 || !is_external(tensor) || written_.contains(tensor.storage_id) ||
            !seen.insert(tensor.storage_id).second) {
          continue;
        }
        const std::string_view name = graph_.name(i);
        if (is_data_argument(name, use.position)) {
          placed_.inputs.push_back({use.tensor, i});
          batches.insert(graph_.shape(tensor).front());
        } else if (!is_weight_argument(name, use.position) &&
                   !parameters.contains(tensor.storage_id)) {
          unclear.push_back({use.tensor, i});
        }
      }
    }
    // The rest counts as data if it is as long as something that surely is: masks, weights of
    // samples, images that are normalized first. With nothing that surely is, all of it.
    for (const StepInput& input : unclear) {
      const std::int64_t length = graph_.shape(graph_.tensors[input.tensor]).front();
      if (batches.empty() || batches.contains(length)) placed_.inputs.push_back(input);
    }
    std::sort(placed_.inputs.begin(), placed_.inputs.end(),
              [](const StepInput& a, const StepInput& b) { return a.node < b.node; });
  }

  struct Number {
    DType dtype = DType::kUnknown;
    bool is_number = false, on_host = false;
  };

  const ExecutionGraph& graph_;
  Placement placed_;
  std::unordered_set<std::int64_t> made_, written_;   // storages
  std::vector<bool> on_host_;                         // per entry of tensors
  std::unordered_map<std::int64_t, Number> numbers_;  // last result under each id
};

}  // namespace

Placement place_on_gpu(const ExecutionGraph& graph) { return Placer(graph).place(); }

}  // namespace perfmodel
