#include "pointwise_unit.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "base/contains.hpp"
#include "loop_rules.hpp"
#include "ops/catalogue.hpp"
#include "step/backward_pass.hpp"
#include "step/tensor_arguments.hpp"

namespace perfmodel {
namespace {

// Calls one op and launches nothing itself; the inner op is looked at.
bool is_wrapper(std::string_view name) {
  return is_conversion(name) || name == "aten::dropout" || name == "aten::type_as";
}

// A cast, or a copy into new memory, that turned out to be a view.
bool gives_its_input(const ExecutionGraph& graph, std::int32_t node, OpKind kind) {
  if (is_copy(graph.name(node))) return false;
  const Tensor *given = input_at(graph, node, 0), *result = output_at(graph, node);
  if (given && result) return given->storage_id == result->storage_id;
  return kind == OpKind::kCast && graph.children(node).empty();
}

// Calls "aten::fill_" and nothing else that launches a kernel.
bool is_fill(std::string_view name) {
  static constexpr auto kFills = std::to_array<std::string_view>(
      {"aten::fill_", "aten::zero_", "aten::full", "aten::zeros", "aten::ones", "aten::full_like",
       "aten::zeros_like", "aten::ones_like", "aten::new_full", "aten::new_zeros", "aten::new_ones",
       "aten::scalar_tensor"});
  return contains(kFills, name);
}

std::string_view short_name(std::string_view name) {
  return is_fill(name) ? "full" : bare_op_name(name);  // as compilers call them
}

// An op with a kernel of its own may call another one after it; these call one instead.
bool hands_over(const Op& op, std::string_view name, std::string_view called) {
  const std::string_view bare = bare_op_name(called);
  return bare == bare_op_name(name) || op.calls.find(bare) != std::string_view::npos;
}

// True for casts between types, and for `x ** 1.0`.
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
std::int32_t find_primitive(const ExecutionGraph& graph, std::int32_t index, bool with_fills) {
  const Node& op = graph.node(index);
  if (op.is_label || op.is_structural || op.scope != Scope::kFunction) return -1;
  if (op.kernel_time_us >= 0 || op.kernel_time_scale != 1 || op.kernel_backend != 0) return -1;
  const std::string_view name = graph.name(op);
  const Op* row = find_op(name);
  const bool fills = with_fills && is_fill(name);
  const bool is_pointwise = row && row->kind == OpKind::kPointwise;
  if (!fills && (is_pointwise ? !row->fusible : !is_wrapper(name))) return -1;
  std::int32_t called = -1;
  for (const std::int32_t child : graph.children(op)) {
    if (launches_nothing(graph, child)) continue;
    if (called >= 0) return -1;
    called = child;
  }
  const bool is_primitive = is_pointwise || (fills && row && row->kind == OpKind::kFill);
  if (called < 0) return is_primitive ? index : -1;
  if (is_pointwise && !hands_over(*row, name, graph.name(called))) return -1;
  if (!is_copy(graph.name(called))) return find_primitive(graph, called, with_fills);
  const bool calls_copy = name == "aten::_to_copy" || name == "aten::pow";
  return calls_copy && copies_on_gpu(graph, called) ? called : -1;
}

// Fails for lists of tensors. Copies and fills do not read the tensor that they write.
bool read_tensors(const ExecutionGraph& graph, std::int32_t op, PointwiseUnit& unit) {
  const auto is_tensor_or_list = [](const Argument& argument) {
    return argument.kind == Argument::Kind::kTensor || argument.kind == Argument::Kind::kList;
  };
  const bool writes_first = is_copy(graph.name(op)) || is_fill(graph.name(op));
  for (const Argument& input : graph.inputs(op).subspan(writes_first ? 1 : 0)) {
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

// Whether the op gives back the result of the primitive.
bool returns_result(const ExecutionGraph& graph, const PointwiseUnit& unit) {
  const auto outputs = graph.outputs(unit.root);
  if (outputs.empty() || outputs[0].kind != Argument::Kind::kTensor) return false;
  const Tensor &given = graph.tensors[outputs[0].index],
               &made = graph.tensors[unit.outputs.front()];
  return given.id == made.id && given.storage_id == made.storage_id;
}

}  // namespace

std::optional<PointwiseUnit> pointwise_unit(const ExecutionGraph& graph, std::int32_t root,
                                            bool with_fills) {
  const std::int32_t primitive = find_primitive(graph, root, with_fills);
  if (primitive < 0) return std::nullopt;
  const std::string_view name = graph.name(primitive);
  const bool is_cast =
      is_copy(name) && graph.name(graph.node(primitive).parent) == "aten::_to_copy";
  PointwiseUnit unit{.root = root,
                     .name = is_cast ? "_to_copy" : short_name(name),
                     .sequence = graph.node(root).seq_id,
                     .inputs = {},
                     .outputs = {}};
  const bool is_unit = read_tensors(graph, primitive, unit) && is_elementwise(graph, unit) &&
                       returns_result(graph, unit);
  return is_unit ? std::optional(std::move(unit)) : std::nullopt;
}

bool launches_nothing(const ExecutionGraph& graph, std::int32_t node) {
  const Op* op = find_op(graph.name(node));
  if (!op) return false;
  const bool is_silent =
      op->kind == OpKind::kView || op->kind == OpKind::kAllocation || op->kind == OpKind::kQuery;
  const bool moves = op->kind == OpKind::kCopy || op->kind == OpKind::kCast;
  if (!is_silent && !(moves && gives_its_input(graph, node, op->kind))) return false;
  return std::ranges::all_of(graph.children(node),
                             [&](std::int32_t child) { return launches_nothing(graph, child); });
}

bool is_region(const ExecutionGraph& graph, const Node& node) {
  return node.is_label || node.is_structural || node.scope == Scope::kBackward ||
         is_evaluate_function(graph, node) ||
         (node.children_count > 0 && graph.name(node).find("::") == std::string_view::npos);
}

}  // namespace perfmodel
