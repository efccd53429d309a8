#include "pointwise_unit.hpp"

#include <algorithm>
#include <utility>

#include "ops/catalogue.hpp"
#include "step/backward_pass.hpp"

namespace perfmodel {
namespace {

// Calls one op and launches nothing itself; what it calls is looked at.
bool is_wrapper(std::string_view name) {
  return is_conversion(name) || name == "aten::dropout" || name == "aten::type_as";
}

std::string_view bare_name(std::string_view name) {
  name.remove_prefix(name.find("::") + 2);
  if (name.ends_with('_') && !name.ends_with("__")) name.remove_suffix(1);
  return name;
}

// Allocations, questions of types, and `x.to(dtype)` of a tensor that has this type.
bool launches_nothing(const ExecutionGraph& graph, std::int32_t op) {
  const std::string_view name = graph.name(op);
  const auto children = graph.children(op);
  if (name == "aten::to" || name == "aten::result_type") return children.empty();
  return is_empty(name) && std::ranges::all_of(children, [&](std::int32_t child) {
           return launches_nothing(graph, child);
         });
}

// Between types, and what `x ** 1.0` does.
bool copies_on_gpu(const ExecutionGraph& graph, std::int32_t op) {
  const auto inputs = graph.inputs(op);
  if (!graph.children(op).empty() || inputs.size() < 2) return false;
  for (const Argument& argument : inputs.first(2)) {
    if (argument.kind != Argument::Kind::kTensor) return false;
  }
  const Tensor &to = graph.tensors[inputs[0].index], &from = graph.tensors[inputs[1].index];
  return from.on_gpu() && from.device == to.device;
}

// The one node below `index`, or itself, that launches the kernel; -1: none, or not one.
std::int32_t find_primitive(const ExecutionGraph& graph, std::int32_t index) {
  const Node& op = graph.node(index);
  if (op.is_label || op.is_structural || op.scope != Scope::kFunction) return -1;
  if (op.kernel_time_us >= 0 || op.kernel_time_scale != 1 || op.kernel_backend != 0) return -1;
  const std::string_view name = graph.name(op);
  const Op* row = find_op(name);
  const bool is_pointwise = row && row->kind == OpKind::kPointwise;
  if (is_pointwise ? !row->fusible : !is_wrapper(name)) return -1;
  std::int32_t called = -1;
  for (const std::int32_t child : graph.children(op)) {
    if (launches_nothing(graph, child)) continue;
    if (called >= 0) return -1;
    called = child;
  }
  if (called < 0) return is_pointwise ? index : -1;
  if (!is_copy(graph.name(called))) return find_primitive(graph, called);
  const bool calls_copy = name == "aten::_to_copy" || name == "aten::pow";
  return calls_copy && copies_on_gpu(graph, called) ? called : -1;
}

// Fails for lists of tensors. A copy does not read the tensor that it writes.
bool read_tensors(const ExecutionGraph& graph, std::int32_t op, PointwiseUnit& unit) {
  const auto is_tensor_or_list = [](const Argument& argument) {
    return argument.kind == Argument::Kind::kTensor || argument.kind == Argument::Kind::kList;
  };
  for (const Argument& input : graph.inputs(op).subspan(is_copy(graph.name(op)) ? 1 : 0)) {
    if (input.kind == Argument::Kind::kTensor) unit.inputs.push_back(input.index);
    if (input.kind != Argument::Kind::kList) continue;
    if (std::ranges::any_of(graph.elements(input), is_tensor_or_list)) return false;
  }
  for (const Argument& output : graph.outputs(op)) {
    if (output.kind == Argument::Kind::kTensor) unit.outputs.push_back(output.index);
    if (output.kind == Argument::Kind::kList) return false;
  }
  return !unit.outputs.empty();
}

bool is_elementwise(const ExecutionGraph& graph, const PointwiseUnit& unit) {
  const Tensor& first = graph.tensors[unit.outputs.front()];
  const auto is_like_first = [&](std::uint32_t output) {
    const Tensor& made = graph.tensors[output];
    return made.on_gpu() && made.device == first.device && made.storage_id != 0 &&
           std::ranges::equal(graph.shape(made), graph.shape(first));
  };
  const auto is_broadcast = [&](std::uint32_t input) {
    const Tensor& read = graph.tensors[input];
    if (read.device.kind == Device::Kind::kNone) return true;  // not given
    if (read.on_cpu()) return read.rank == 0;                  // a number
    return read.device == first.device && read.storage_id != 0 && read.numel <= first.numel;
  };
  return first.numel != 0 && std::ranges::all_of(unit.outputs, is_like_first) &&
         std::ranges::all_of(unit.inputs, is_broadcast);
}

// Whether the result of the primitive is what the op gives back.
bool returns_result(const ExecutionGraph& graph, const PointwiseUnit& unit) {
  const auto outputs = graph.outputs(unit.root);
  if (outputs.empty() || outputs[0].kind != Argument::Kind::kTensor) return false;
  const Tensor &given = graph.tensors[outputs[0].index],
               &made = graph.tensors[unit.outputs.front()];
  return given.id == made.id && given.storage_id == made.storage_id;
}

}  // namespace

std::optional<PointwiseUnit> pointwise_unit(const ExecutionGraph& graph, std::int32_t root) {
  const std::int32_t primitive = find_primitive(graph, root);
  if (primitive < 0) return std::nullopt;
  const std::string_view name = graph.name(primitive);
  const bool is_cast =
      is_copy(name) && graph.name(graph.node(primitive).parent) == "aten::_to_copy";
  PointwiseUnit unit{.root = root,
                     .name = is_cast ? "_to_copy" : bare_name(name),
                     .sequence = graph.node(root).seq_id,
                     .inputs = {},
                     .outputs = {}};
  const bool is_unit = read_tensors(graph, primitive, unit) && is_elementwise(graph, unit) &&
                       returns_result(graph, unit);
  return is_unit ? std::optional(std::move(unit)) : std::nullopt;
}

bool is_region(const ExecutionGraph& graph, const Node& node) {
  return node.is_label || node.is_structural || node.scope == Scope::kBackward ||
         is_evaluate_function(graph, node) ||
         (node.children_count > 0 && graph.name(node).find("::") == std::string_view::npos);
}

}  // namespace perfmodel
