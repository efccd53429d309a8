#include "retarget_rules.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "builders/emit/memory.hpp"
#include "ops/catalogue.hpp"
#include "step/autograd_names.hpp"

namespace perfmodel {
namespace {

const Tensor* entry(const ExecutionGraph& graph, std::span<const Argument> arguments,
                    std::size_t position) {
  if (position >= arguments.size() || arguments[position].kind != Argument::Kind::kTensor) {
    return nullptr;
  }
  return &graph.tensors[arguments[position].index];
}

Value value_of(GraphBuilder& builder, const ExecutionGraph& graph, const Argument& argument) {
  using Kind = Argument::Kind;
  switch (argument.kind) {
    case Kind::kNone:
      break;
    case Kind::kTensor:
      return builder.tensor_of_source(argument.index);
    case Kind::kInt:
      return argument.integer;
    case Kind::kDouble:
      return argument.real;
    case Kind::kBool:
      return argument.integer != 0;
    case Kind::kString:
      return std::string(graph.names.text(argument.index)).c_str();
    case Kind::kOpaque:
      return Value::Opaque{std::string(graph.names.text(argument.index))};
    case Kind::kList: {
      Value::List list;
      for (const Argument& element : graph.elements(argument)) {
        list.push_back(value_of(builder, graph, element));
      }
      return list;
    }
  }
  return kNone;
}

// Rule of an op by the op's name; null: none. In-place variants go as they are, but for lists.
RetargetRule find_rule(std::string_view name) {
  static const auto kRules = [] {
    std::unordered_map<std::string_view, RetargetRule> all;
    for (const auto table :
         {elementwise_retarget_rules(), matmul_retarget_rules(), convolution_retarget_rules(),
          norm_retarget_rules(), embedding_retarget_rules(), index_retarget_rules(),
          foreach_retarget_rules(), attention_retarget_rules()}) {
      for (const NamedRetargetRule& named : table) all.emplace(named.name, named.rule);
    }
    return all;
  }();
  const Op* op = find_op(name);
  if (!op || (op->name != name && op->kind != OpKind::kForeach)) return nullptr;
  const std::string_view named = retarget_rule(*op);
  if (named.empty()) return nullptr;
  const auto rule = kRules.find(named);
  PERFMODEL_CHECK(rule != kRules.end());  // a row names a rule that no table has
  return rule->second;
}

}  // namespace

Retargeter::Retargeter(const Placement& placement, const PyTorch& pytorch,
                       const RetargetOptions& options)
    : placement_(placement),
      options_(options),
      copy_(placement.graph, pytorch),
      left_out_(placement.graph.nodes.size(), false),
      verbatim_(placement.graph.nodes.size(), false) {}

std::string_view Retargeter::parent_name(std::int32_t index) const {
  const std::int32_t parent = source().node(index).parent;
  return parent < 0 ? std::string_view() : name(parent);
}

std::int32_t Retargeter::child(std::int32_t index, std::string_view wanted) const {
  for (std::int32_t below : children(index)) {
    if (name(below) == wanted) return below;
  }
  return -1;
}

const Tensor* Retargeter::input_entry(std::int32_t index, std::size_t position) const {
  return entry(source(), source().inputs(index), position);
}
const Tensor* Retargeter::output_entry(std::int32_t index, std::size_t position) const {
  return entry(source(), source().outputs(index), position);
}
bool Retargeter::given(std::int32_t index, std::size_t position) const {
  const Tensor* tensor = input_entry(index, position);
  return tensor && tensor->storage_id != 0;
}
std::int64_t Retargeter::integer(std::int32_t index, std::size_t position) const {
  const auto inputs = source().inputs(index);
  return position < inputs.size() ? inputs[position].integer : 0;
}
double Retargeter::real(std::int32_t index, std::size_t position) const {
  const auto inputs = source().inputs(index);
  return position < inputs.size() ? inputs[position].real : 0;
}

Value Retargeter::input(std::int32_t index, std::size_t position) {
  const auto inputs = source().inputs(index);
  return position < inputs.size() ? value_of(graph(), source(), inputs[position]) : Value(kNone);
}
TensorRef Retargeter::input_tensor(std::int32_t index, std::size_t position,
                                   std::optional<int> rank) {
  const Tensor* entry = input_entry(index, position);
  if (!entry) return missing(index, fmt::format("a tensor as input {}", position));
  if (rank && entry->rank != *rank) {
    return missing(index, fmt::format("a tensor of {} dimensions as input {}", *rank, position));
  }
  return tensor(source().inputs(index)[position]);
}
TensorRef Retargeter::output_tensor(std::int32_t index, std::size_t position) {
  if (!output_entry(index, position)) {
    return missing(index, fmt::format("a tensor as output {}", position));
  }
  return copy_.tensor(source().outputs(index)[position]);
}

TensorRef Retargeter::missing(std::int32_t index, std::string_view expected) {
  if (!error_) {
    error_ = {.code = ErrorCode::kFormat,
              .message = fmt::format("retarget: expected {}, found another \"{}\" (node {})",
                                     expected, name(index), source().node(index).id)};
  }
  return graph().new_tensor(DType::kFloat32, {1, 1, 1, 1, 1});
}

Value Retargeter::value(const Argument& argument) { return value_of(graph(), source(), argument); }

TensorRef Retargeter::tensor(const Argument& argument) {
  const auto view = strides_.find(source().tensors[argument.index].id);
  return graph().tensor_of_source(argument.index, view == strides_.end() ? nullptr : &view->second);
}

// A graph holds no strides but in the arguments of as_strided, in which all views end.
void Retargeter::note_strides(std::int32_t index) {
  for_each_tensor(source(), source().outputs(index), [&](const Tensor& out) {
    const Tensor* in = input_entry(index, 0);
    if (!in || in->id != out.id) strides_.erase(out.id);
  });
  const Tensor* view = output_entry(index, 0);
  const auto inputs = source().inputs(index);
  if (!gives_strides(name(index)) || !view || inputs.size() < 3) return;
  Shape strides;
  for (const Argument& stride : source().elements(inputs[2])) strides.push_back(stride.integer);
  strides_[view->id] = std::move(strides);
}

void Retargeter::leave_out_children(std::int32_t index) {
  for (std::int32_t below : children(index)) leave_out(below);
}

void Retargeter::adopt_outputs(Start start, std::int32_t source_node) {
  const ExecutionGraph& made = graph().graph_being_made();
  const auto new_outputs = made.outputs(made.nodes[start.node]);
  for (std::size_t i = 0; i < new_outputs.size(); ++i) {
    const Tensor* from = entry(made, new_outputs, i);
    const Tensor* to = output_entry(source_node, i);
    if (from && to) rename_tensor(start, *from, *to);
  }
}

void Retargeter::rename_tensor(Start start, const Tensor& made, const Tensor& as) {
  const std::int64_t id = made.id, storage = made.storage_id;
  std::vector<Tensor>& tensors = graph().graph_being_made().tensors;
  for (std::size_t t = start.tensor; t < tensors.size(); ++t) {
    if (tensors[t].id == id) tensors[t].id = as.id;
    if (storage != 0 && tensors[t].storage_id == storage) tensors[t].storage_id = as.storage_id;
  }
}

Result<ExecutionGraph> Retargeter::run() {
  find_copies();
  const auto count = static_cast<std::int32_t>(source().nodes.size());
  for (std::int32_t i = 0; i < count; ++i) {
    const std::int32_t parent = source().node(i).parent;
    if (parent >= 0 && parent != i) {
      if (left_out_[parent]) left_out_[i] = true;
      if (verbatim_[parent]) verbatim_[i] = true;
    }
    note_strides(i);
    write_inputs(i);
    if (!left_out_[i]) visit(i);
    if (error_) return Unexpected{std::move(*error_)};
  }
  return copy_.finish();
}

void Retargeter::visit(std::int32_t index) {
  // A CPU casts the number of `x / 3` in an op of its own, a GPU's kernel does it on the way.
  const std::int32_t parent = source().node(index).parent;
  const bool casts_number = is_conversion(name(index)) && parent >= 0 && on_host(index) &&
                            !on_host(parent) && !source().node(parent).is_label;
  if (casts_number) return leave_out(index);
  if (on_host(index)) keep_tree(index);
  if (verbatim_[index] || source().node(index).is_label) return copy(index);
  if (handle_backward(index)) return;
  if (const auto moved = moved_by_program_.find(index); moved != moved_by_program_.end()) {
    leave_out_children(index);
    continue_beside(index);
    return write_input(moved->second, index);
  }
  const RetargetRule rule = find_rule(name(index));
  if (!rule) return copy(index);
  rule(*this, index);
}

// Backward functions of ops that are other ops now.
bool Retargeter::handle_backward(std::int32_t index) {
  const bool evaluates = name(index).starts_with(kEvaluate);
  std::int32_t function = source().node(index).scope == Scope::kBackward ? index : -1;
  if (evaluates && !children(index).empty()) function = children(index).front();
  if (function < 0) return false;
  const auto renamed = renamed_.find(source().node(function).seq_id);
  if (renamed == renamed_.end() || source().node(function).scope != Scope::kBackward) return false;
  copy(index);
  ExecutionGraph& made = graph().graph_being_made();
  made.nodes.back().name =
      made.names.intern(evaluates ? std::string(kEvaluate) + renamed->second : renamed->second);
  return true;
}

// Inputs are copied before everything else of their step, or where the program itself asks for it.
void Retargeter::find_copies() {
  if (options_.inputs == RetargetOptions::Inputs::kOnDevice) return;
  for (const StepInput& input : placement_.inputs) {
    const bool asks =
        is_conversion(name(input.node)) && input_entry(input.node, 0) &&
        output_entry(input.node, 0) &&
        input_entry(input.node, 0)->storage_id == output_entry(input.node, 0)->storage_id;
    if (asks) {
      moved_by_program_[input.node] = input;
      continue;
    }
    std::int32_t at = input.node;
    while (source().node(at).parent >= 0 &&
           !source().node(source().node(at).parent).is_structural &&
           !parent_name(at).starts_with("ProfilerStep#")) {
      at = source().node(at).parent;
    }
    if (source().node(at).parent >= 0) {
      const auto siblings = children(source().node(at).parent);
      const auto first = std::find_if(siblings.begin(), siblings.end(), [&](std::int32_t i) {
        return !placement_.is_artefact[i] && !source().node(i).is_structural;
      });
      if (first != siblings.end()) at = *first;
    }
    copies_before_[at].push_back(input);
  }
}

void Retargeter::write_inputs(std::int32_t index) {
  const auto copies = copies_before_.find(index);
  if (copies == copies_before_.end()) return;
  continue_beside(index);
  for (const StepInput& input : copies->second) write_input(input, index);
}

// The tensor that the ops know is the one on the GPU; the host's is a new one.
void Retargeter::write_input(const StepInput& input, std::int32_t before) {
  std::int64_t sequence = -1;  // autograd's next number
  for (auto i = static_cast<std::size_t>(before); sequence < 0 && i < source().nodes.size(); ++i) {
    sequence = source().nodes[i].seq_id;
  }
  const Tensor device = source().tensors[input.tensor];
  const auto sizes = source().shape(device);
  const TensorRef host =
      graph().new_tensor(device.dtype, graph().cpu(), Shape(sizes.begin(), sizes.end()));
  const Start made = start();
  to_device(graph(), host, options_.inputs == RetargetOptions::Inputs::kPinned, sequence);
  const ExecutionGraph& result = graph().graph_being_made();
  rename_tensor(made, *entry(result, result.outputs(result.nodes[made.node]), 0), device);
}

}  // namespace perfmodel
