#include "pointwise_unit.hpp"

#include <algorithm>
#include <ranges>

#include "ops/catalogue.hpp"

namespace perfmodel {
namespace {

// Calls one op and launches nothing itself; what it calls is looked at.
bool is_wrapper(std::string_view name) {
  return is_conversion(name) || name == "aten::dropout" || name == "aten::type_as";
}

class PointwiseUnitReader {
 public:
  explicit PointwiseUnitReader(const ExecutionGraph& graph) : graph_(graph) {}

  std::optional<PointwiseUnit> read(std::int32_t root) const {
    const std::int32_t primitive = find_primitive(root);
    if (primitive < 0) return std::nullopt;
    const Node& op = graph_.node(primitive);
    PointwiseUnit unit;
    unit.root = root;
    unit.sequence = graph_.node(root).seq_id;
    const bool copies = is_copy(graph_.name(op));
    const bool is_cast = copies && graph_.name(op.parent) == "aten::_to_copy";
    unit.name = is_cast ? "_to_copy" : bare_name(graph_.name(op));
    if (!take_tensors(op, copies, unit) || !is_elementwise(unit)) return std::nullopt;
    if (!returns(graph_.node(root), unit)) return std::nullopt;
    return unit;
  }

 private:
  static std::string_view bare_name(std::string_view name) {
    name.remove_prefix(name.find("::") + 2);
    if (name.ends_with('_') && !name.ends_with("__")) name.remove_suffix(1);
    return name;
  }

  // The one node below `index`, or itself, that launches the kernel; -1: none, or not one.
  std::int32_t find_primitive(std::int32_t index) const {
    const Node& op = graph_.node(index);
    if (op.is_label || op.is_structural || op.scope != Scope::kFunction) return -1;
    if (op.kernel_time_us >= 0 || op.kernel_time_scale != 1 || op.kernel_backend != 0) return -1;
    const std::string_view name = graph_.name(op);
    const Op* row = find_op(name);
    const Op* known = row && row->kind == OpKind::kPointwise ? row : nullptr;
    if (known && !known->fusible) return -1;
    if (!known && !is_wrapper(name)) return -1;
    std::int32_t called = -1;
    for (std::int32_t child : graph_.children(op)) {
      if (launches_nothing(child)) continue;
      if (called >= 0) return -1;
      called = child;
    }
    if (called >= 0 && is_copy(graph_.name(called))) {
      return name == "aten::_to_copy" || name == "aten::pow" ? copy_on_gpu(called) : -1;
    }
    if (called >= 0) return find_primitive(called);
    return known ? index : -1;
  }

  // Allocations, questions of types, and `x.to(dtype)` of a tensor that has this type.
  bool launches_nothing(std::int32_t index) const {
    const Node& op = graph_.node(index);
    const std::string_view name = graph_.name(op);
    if (name == "aten::to" || name == "aten::result_type") return op.children_count == 0;
    return is_empty(name) && std::ranges::all_of(graph_.children(op), [this](std::int32_t child) {
             return launches_nothing(child);
           });
  }

  // Between types, and what `x ** 1.0` does.
  std::int32_t copy_on_gpu(std::int32_t index) const {
    const Node& op = graph_.node(index);
    const auto in = graph_.inputs(op);
    if (op.children_count > 0 || in.size() < 2) return -1;
    for (const Argument& argument : in.first(2)) {
      if (argument.kind != Argument::Kind::kTensor) return -1;
    }
    const Tensor &to = graph_.tensors[in[0].index], &from = graph_.tensors[in[1].index];
    return from.on_gpu() && from.device == to.device ? index : -1;
  }

  bool take_tensors(const Node& op, bool copies, PointwiseUnit& unit) const {
    const auto inputs = graph_.inputs(op);
    for (std::size_t i = copies ? 1 : 0; i < inputs.size(); ++i) {
      if (inputs[i].kind == Argument::Kind::kTensor) unit.inputs.push_back(inputs[i].index);
      if (inputs[i].kind == Argument::Kind::kList && holds_tensor(inputs[i])) return false;
    }
    for (const Argument& output : graph_.outputs(op)) {
      if (output.kind == Argument::Kind::kTensor) unit.outputs.push_back(output.index);
      if (output.kind == Argument::Kind::kList) return false;
    }
    return !unit.outputs.empty();
  }

  bool holds_tensor(const Argument& list) const {
    return std::ranges::any_of(graph_.elements(list), [](const Argument& element) {
      return element.kind == Argument::Kind::kTensor || element.kind == Argument::Kind::kList;
    });
  }

  bool is_elementwise(const PointwiseUnit& unit) const {
    const Tensor& first = graph_.tensors[unit.outputs.front()];
    for (std::uint32_t output : unit.outputs) {
      const Tensor& made = graph_.tensors[output];
      if (!made.on_gpu() || made.device != first.device || made.storage_id == 0) return false;
      if (!std::ranges::equal(graph_.shape(made), graph_.shape(first))) return false;
    }
    if (first.numel == 0) return false;
    return std::ranges::all_of(unit.inputs, [&](std::uint32_t input) {
      const Tensor& read = graph_.tensors[input];
      if (read.device.kind == Device::Kind::kNone) return true;  // not given
      if (read.on_cpu()) return read.rank == 0;                  // a number
      return read.device == first.device && read.storage_id != 0 && read.numel <= first.numel;
    });
  }

  // Whether the result of the primitive is what the op gives back.
  bool returns(const Node& root, const PointwiseUnit& unit) const {
    const auto outputs = graph_.outputs(root);
    if (outputs.empty() || outputs[0].kind != Argument::Kind::kTensor) return false;
    const Tensor &given = graph_.tensors[outputs[0].index],
                 &made = graph_.tensors[unit.outputs.front()];
    return given.id == made.id && given.storage_id == made.storage_id;
  }

  const ExecutionGraph& graph_;
};

}  // namespace

std::optional<PointwiseUnit> pointwise_unit(const ExecutionGraph& graph, std::int32_t root) {
  return PointwiseUnitReader(graph).read(root);
}

}  // namespace perfmodel
