#include "autocast_ops.hpp"

#include <initializer_list>

#include "builders/emit/graph_builder.hpp"

namespace perfmodel {
namespace {

constexpr std::int64_t kFloatCode = 6;

/// The first parameter of a schema that names a type, if the op was given that many arguments.
struct TypeParameter {
  std::size_t position = 0;
  std::string_view name = {};
};

std::optional<TypeParameter> type_parameter(const ExecutionGraph& graph, const Node& node) {
  std::string_view schema = graph.names.text(node.op_schema);
  schema = schema.substr(0, schema.find(" -> "));
  const std::size_t open = schema.find('('), type = schema.find("ScalarType", open);
  if (type == std::string_view::npos) return std::nullopt;
  TypeParameter found;
  int depth = 0;
  for (const char c : schema.substr(open + 1, type - open - 1)) {
    depth += (c == '(' || c == '[') - (c == ')' || c == ']');
    if (c == ',' && depth == 0) ++found.position;
    if (c == '*') --found.position;  // named parameters follow
  }
  const std::size_t name = schema.find(' ', type) + 1;
  found.name = schema.substr(name, schema.find_first_of(",=)", name) - name);
  return found.position < node.inputs_count ? std::optional(found) : std::nullopt;
}

DType first_known(std::initializer_list<DType> types) {
  const auto* known =
      std::ranges::find_if(types, [](DType type) { return type != DType::kUnknown; });
  return known == types.end() ? DType::kFloat32 : *known;
}

}  // namespace

std::vector<const Tensor*> tensors_of(const ExecutionGraph& graph,
                                      std::span<const Argument> arguments) {
  std::vector<const Tensor*> found;
  for_each_tensor(graph, arguments, [&](const Tensor& tensor) { found.push_back(&tensor); });
  return found;
}

AutocastOps::AutocastOps(const StepView& step, const std::vector<bool>& region,
                         const AutocastOptions& options, AutocastPlan& plan)
    : graph_(step.graph()),
      pass_(step.backward()),
      options_(options),
      plan_(plan),
      owner_(graph_.nodes.size(), -1),
      types_(step.tensors()),
      parameter_casts_(step.tensors()),
      gradients_of_parameters_(graph_.nodes.size()) {
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(owner_.size()); ++i) {
    const std::int32_t parent = graph_.node(i).parent;
    if (parent >= 0) owner_[i] = owner_[parent];
    if (owner_[i] < 0 && region[i] && policy(i) != AutocastPolicy::kKeep) owner_[i] = i;
  }
  for (const GradientEdge& edge : pass_.edges) {
    const std::int32_t owner = owner_of(pass_.functions[edge.from]);
    if (owner < 0 || !pass_.functions[edge.to].accumulates()) continue;
    gradients_of_parameters_[owner].push_back(&graph_.tensors[edge.tensor]);
  }
}

AutocastPolicy AutocastOps::policy(std::int32_t node) const {
  return autocast_policy(graph_.name(node), options_.on_gpu);
}

void AutocastOps::plan_tree(std::int32_t node, DType around) {
  using enum AutocastPolicy;
  const AutocastPolicy policy = owner_[node] == node ? this->policy(node) : kKeep;
  PlannedOp& op = plan_.ops[node];
  op.is_wrapped = policy != kKeep && policy != kBanned;
  if (policy == kFp32Type) {  // callers may name the type of a sum or softmax
    const auto type = type_parameter(graph_, graph_.node(node));
    op.gives_fp32 = type && common_type(graph_.node(node)) == options_.half &&
                    graph_.inputs(node)[type->position].kind == Argument::Kind::kNone;
  } else if (policy != kKeep) {
    const bool is_half = policy == kLower || (policy == kPromote && !takes_fp32(graph_.node(node)));
    cast_arguments(node, is_half ? options_.half : DType::kFloat32);
  }
  if (op.gives_fp32) {
    plan_fp32_result(node, around);
  } else {
    with(op.casts, [&] { plan_op(node, around); });
  }
}

// softmax(x, dtype=float) converts in its kernel where x is fp16 and through a copy where it is
// bfloat16; sums always convert in their kernel.
void AutocastOps::plan_fp32_result(std::int32_t node, DType around) {
  begin(node, around, true);
  const std::string_view name = graph_.name(node);
  const Tensor* input = first_fp32(graph_.node(node));
  if (name.ends_with("softmax") && options_.half == DType::kBFloat16) {
    cast(node, *input, DType::kFloat32, true);
  }
  with(plan_.ops[node].casts, [&] {
    for (const std::int32_t child : graph_.children(node)) {
      plan_op(child, DType::kUnknown, graph_.name(child) == name);
    }
  });
  mention(graph_.outputs(node));
}

void AutocastOps::plan_op(std::int32_t node, DType around, bool fp32_result) {
  const DType below = begin(node, around, fp32_result);
  for (const std::int32_t child : graph_.children(node)) plan_tree(child, below);
  mention(graph_.outputs(node));
}

// Plans the op without those below it, which may know the types of its results better. Gives the
// type in which they compute.
DType AutocastOps::begin(std::int32_t node, DType around, bool fp32_result) {
  const Node& op = graph_.node(node);
  mention(graph_.inputs(op));
  // Forward ops move up by the casts that came before; functions follow them.
  if (op.seq_id >= 0 && !pass_.in_backward[node]) plan_.ops[node].sequence = op.seq_id + shift_;
  const DType type = common_type(op);
  assign_results(op, result_type(node, type, around, fp32_result));
  const std::string_view name = graph_.name(op);
  return is_conversion(name) || is_empty(name) || type == DType::kUnknown ? around : type;
}

RetypedTensor AutocastOps::retyped(const Tensor& tensor) const {
  const RetypedTensor& type = types_[tensor];
  const bool is_source = tensor.dtype != DType::kFloat32 || type.dtype == DType::kUnknown;
  return is_source ? RetypedTensor{.dtype = tensor.dtype} : type;
}

void AutocastOps::mention(std::span<const Argument> arguments) {
  for_each_tensor(graph_, arguments, [&](const Tensor& tensor) {
    plan_.mentions[mention_index(graph_, tensor)] = retyped(tensor);
  });
}

// Arguments are cast from the last to the first (the order in which compilers evaluate them), a
// list from its first tensor on.
void AutocastOps::cast_arguments(std::int32_t op, DType target) {
  const auto arguments = graph_.inputs(op);
  for (std::size_t i = arguments.size(); i-- > 0;) {
    for_each_tensor(graph_, {&arguments[i], 1}, [&](const Tensor& tensor) {
      const bool is_here = options_.on_gpu ? tensor.on_gpu() : tensor.on_cpu();
      if (tensor.dtype != DType::kFloat32 || !is_here || retyped(tensor).dtype == target) return;
      cast(op, tensor, target, false);
    });
  }
}

void AutocastOps::cast(std::int32_t op, const Tensor& tensor, DType target, bool by_options) {
  const auto tensors = tensors_of(graph_, graph_.inputs(op));
  const std::ptrdiff_t position = std::ranges::find(tensors, &tensor) - tensors.begin();
  const auto& producers = pass_.input_producers[op];
  const std::int64_t producer = position < std::ssize(producers) ? producers[position] : -1;
  const bool parameter = producer < 0 && is_parameter(op, tensor, position);
  const bool is_recorded = parameter || producer >= 0;
  const bool is_shared = parameter && target == options_.half;
  RetypedTensor by;
  if (is_shared) by = parameter_casts_[tensor];
  if (by.cast < 0) {
    by = add_cast({.tensor = &tensor,
                   .from = retyped(tensor),
                   .dtype = target,
                   .by_options = by_options,
                   .sequence = next_number(op),
                   .is_recorded = is_recorded});
    shift_ += is_recorded ? 1 : 0;
    if (is_shared) parameter_casts_[tensor] = by;
  }
  plan_.ops[op].casts.push_back({.tensor = &tensor, .by = by, .producer = producer});
}

RetypedTensor AutocastOps::add_cast(const PlannedCast& cast) {
  const auto made = static_cast<std::int32_t>(plan_.casts.size());
  plan_.casts.push_back(cast);
  return {.dtype = cast.dtype, .cast = made, .storage = made};
}

void AutocastOps::forget_parameters() {
  for (const Tensor& tensor : graph_.tensors) parameter_casts_[tensor] = {};
}

// Whether an argument that no op made is a parameter: its gradient is accumulated. Without a
// backward pass all arguments after the first count as parameters.
bool AutocastOps::is_parameter(std::int32_t op, const Tensor& tensor, std::ptrdiff_t position) {
  if (pass_.functions.empty()) return position > 0;
  auto& gradients = gradients_of_parameters_[op];
  const auto at = std::ranges::find_if(gradients, [&](const Tensor* gradient) {
    return std::ranges::equal(graph_.shape(*gradient), graph_.shape(tensor));
  });
  if (at == gradients.end()) return false;
  gradients.erase(at);
  return true;
}

// Number that the op, or a cast before it, is about to get.
std::int64_t AutocastOps::next_number(std::int32_t op) const {
  const Node* at = &graph_.node(op);
  while (at->seq_id < 0 && at->children_count > 0) at = &graph_.node(graph_.children(*at)[0]);
  return at->seq_id < 0 ? -1 : at->seq_id + shift_;
}

bool AutocastOps::takes_fp32(const Node& node) const {
  const auto tensors = tensors_of(graph_, graph_.inputs(node));
  return std::ranges::any_of(
      tensors, [&](const Tensor* tensor) { return retyped(*tensor).dtype == DType::kFloat32; });
}

// Type promotion of fp32 and one half type; scalars count only among themselves.
DType AutocastOps::common_type(const Node& node) const {
  DType of_tensors = DType::kUnknown, of_scalars = DType::kUnknown;
  for_each_tensor(graph_, graph_.inputs(node), [&](const Tensor& tensor) {
    if (tensor.dtype != DType::kFloat32) return;
    DType& type = tensor.rank > 0 ? of_tensors : of_scalars;
    if (type != DType::kFloat32) type = retyped(tensor).dtype;
  });
  return of_tensors != DType::kUnknown ? of_tensors : of_scalars;
}

const Tensor* AutocastOps::first_fp32(const Node& node) const {
  const auto tensors = tensors_of(graph_, graph_.inputs(node));
  const auto first = std::ranges::find(tensors, DType::kFloat32, &Tensor::dtype);
  return first == tensors.end() ? nullptr : *first;
}

// Type of the results of an op; an argument that names the type follows.
DType AutocastOps::result_type(std::int32_t node, DType type, DType around, bool fp32_result) {
  const std::string_view name = graph_.name(node);
  const Node& op = graph_.node(node);
  const auto arguments = graph_.inputs(op);
  if (name.find("batch_norm") != std::string_view::npos) {
    const Tensor* image = first_fp32(op);
    return image == nullptr ? DType::kUnknown : retyped(*image).dtype;
  }
  auto& type_argument = plan_.ops[node].type_argument;
  const bool converts = (name == "aten::_softmax" || name == "aten::_log_softmax") &&
                        options_.half == DType::kFloat16 && owner_[node] >= 0 &&
                        plan_.ops[owner_[node]].gives_fp32;
  if (converts) {
    if (arguments.size() > 2) type_argument.emplace(2, arguments[2]).second.integer = 1;
    return DType::kFloat32;
  }
  // An op of mixed types, as a batch norm with half images and fp32 weights, has said already which
  // type the tensor has that this one allocates for it.
  const auto made = tensors_of(graph_, graph_.outputs(op));
  const DType above = is_empty(name) && made.size() == 1 ? types_[*made[0]].dtype : DType::kUnknown;
  const auto parameter = type_parameter(graph_, op);
  if (!parameter) return first_known({above, type, around});
  const Argument& argument = arguments[parameter->position];
  const bool is_fp32 = argument.kind == Argument::Kind::kInt && argument.integer == kFloatCode;
  if (!fp32_result && !is_fp32) return first_known({type, around});
  const Tensor* input = forward_ < 0 ? nullptr : first_fp32(graph_.node(forward_));
  DType named = fp32_result ? DType::kFloat32 : first_known({above, around, type});
  if (parameter->name == "input_dtype" && input != nullptr) {
    named = plan_.mentions[mention_index(graph_, *input)].dtype;
  }
  if (!fp32_result && named == DType::kFloat32) return named;
  const int code = scalar_type_code(named);
  type_argument.emplace(
      parameter->position,
      Argument{.kind = Argument::Kind::kInt, .integer = code, .real = static_cast<double>(code)});
  return named;
}

// A view has the type and the storage of its base.
void AutocastOps::assign_results(const Node& node, DType type) {
  const std::string_view name = graph_.name(node);
  const bool is_attention =
      name.find("attention") != std::string_view::npos && !name.ends_with("_backward");
  const bool others_are_fp32 = is_attention || name.find("batch_norm") != std::string_view::npos;
  if (name.starts_with("fbgemm::")) type = DType::kFloat32;
  const DType of_first = type;
  const auto inputs = tensors_of(graph_, graph_.inputs(node));
  for (const Tensor* result : tensors_of(graph_, graph_.outputs(node))) {
    const bool is_debug_mask = is_attention && result->numel == 0;  // has the type of the queries
    const DType own = is_debug_mask     ? of_first
                      : others_are_fp32 ? std::exchange(type, DType::kFloat32)
                                        : type;
    const bool is_taken = std::ranges::find(inputs, result->id, &Tensor::id) != inputs.end();
    if (result->dtype != DType::kFloat32 || is_taken) continue;
    const auto base = std::ranges::find_if(inputs, [&](const Tensor* input) {
      return result->storage_id != 0 && input->storage_id == result->storage_id &&
             input->dtype == DType::kFloat32;
    });
    RetypedTensor& retyped = types_[*result] = {.dtype = own};
    if (base == inputs.end()) continue;
    retyped = this->retyped(**base);
    retyped.cast = -1;
  }
}

}  // namespace perfmodel
