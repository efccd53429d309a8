#include "autocast.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "builders/emit/memory.hpp"
#include "grad_scaler.hpp"
#include "ops/catalogue.hpp"
#include "rewrite/graph_copy.hpp"

namespace perfmodel {
namespace {

constexpr std::int64_t kFloatCode = 6;

/// What a tensor of the source has become.
struct Now {
  std::int64_t id = 0, storage = 0;
  DType dtype = DType::kFloat32;
};
using Changes = std::unordered_map<std::int64_t, Now>;  // by id in the source

/// One cast of the forward pass, and what comes back to it.
struct Cast {
  std::int64_t sequence = -1;  // -1: autograd does not see it
  Now result;
  DType back_to = DType::kFloat32;
  std::optional<Tensor> gradient;  // what it is handed, a sum where its result was used twice
  GradientEdge edge;               // where that goes behind the cast
  int edges = 0;                   // how many it stands for
};

/// An argument of an autocast op that was cast.
struct CastUse {
  Shape shape;
  std::int64_t producer = -1;  // sequence number of the op that made it, -1: a parameter
  std::size_t cast = 0;
};

std::vector<std::uint32_t> entries(const ExecutionGraph& graph,
                                   std::span<const Argument> arguments) {
  std::vector<std::uint32_t> found;
  for_each_tensor(graph, arguments, [&](const Tensor& tensor) {
    found.push_back(static_cast<std::uint32_t>(&tensor - graph.tensors.data()));
  });
  return found;
}

/// Position and name of the first parameter of a schema that names a type; -1: none.
struct TypeParameter {
  int index = -1;
  std::string_view name;
};

TypeParameter type_parameter(std::string_view schema) {
  const std::size_t open = schema.find('(');
  if (open == std::string_view::npos) return {};
  int depth = 0, index = 0;
  std::size_t begin = open + 1;
  for (std::size_t i = begin; i < schema.size(); ++i) {
    const char c = schema[i];
    if ((c == ',' || c == ')') && depth == 0) {
      std::string_view parameter = schema.substr(begin, i - begin);
      parameter.remove_prefix(std::min(parameter.find_first_not_of(' '), parameter.size()));
      if (parameter.starts_with("ScalarType")) {
        const std::size_t space = parameter.find(' ');
        parameter.remove_prefix(space == std::string_view::npos ? 0 : space + 1);
        return {index, parameter.substr(0, parameter.find('='))};
      }
      if (parameter != "*") ++index;
      begin = i + 1;
      if (c == ')') break;
    }
    depth += c == '(' || c == '[' ? 1 : 0;
    depth -= c == ')' || c == ']' ? 1 : 0;
  }
  return {};
}

class Autocast {
 public:
  Autocast(const ExecutionGraph& graph, const BackwardPass& pass, DType half, bool on_gpu,
           bool grad_scaler)
      : source_(graph),
        pass_(pass),
        half_(half),
        on_gpu_(on_gpu),
        copy_(graph, dialect(on_gpu)),
        builder_(copy_.builder()),
        owner_(graph.nodes.size(), -1),
        done_(graph.nodes.size()),
        function_of_(graph.nodes.size(), -1) {
    if (grad_scaler) scaler_.emplace(builder_);
  }

  ExecutionGraph run() {
    prepare();
    const auto steps = iterations(source_);
    std::size_t step = 0;
    for (std::size_t i = 0; i < source_.nodes.size(); ++i) {
      if (step < steps.size() && static_cast<std::int32_t>(i) >= steps[step].begin) {
        cached_.clear();  // leaving the context of autocast forgets the casts of parameters
        ++step;
      }
      visit(static_cast<std::int32_t>(i));
    }
    update_scale(-1);
    ExecutionGraph made = copy_.finish();
    for (const auto& [position, function] : new_functions_) {
      const std::int32_t like = copy_.copied(function);
      if (like < 0) continue;  // the function stands in another one
      made.nodes[position].fw_parent = made.node(like).fw_parent;
    }
    return made;
  }

 private:
  static PyTorch dialect(bool on_gpu) {
    PyTorch pytorch;
    if (!on_gpu) pytorch.device = GraphBuilder::cpu();
    return pytorch;
  }

  const BackwardFunction& function(std::int32_t index) const { return pass_.functions[index]; }
  ExecutionGraph& made() { return builder_.graph_being_made(); }
  Shape shape(const Tensor& tensor) const {
    const auto sizes = source_.shape(tensor);
    return {sizes.begin(), sizes.end()};
  }

  void prepare() {
    const std::vector<bool> region = autocast_region(source_, pass_, on_gpu_);
    for (std::size_t i = 0; i < source_.nodes.size(); ++i) {
      const Node& n = source_.nodes[i];
      const std::int32_t above = n.parent < 0 ? -1 : owner_[n.parent];
      if (above >= 0) {
        owner_[i] = above;
      } else if (region[i] && autocast_policy(source_.name(n), on_gpu_) != AutocastPolicy::kKeep) {
        owner_[i] = static_cast<std::int32_t>(i);
      }
    }
    edges_from_.resize(pass_.functions.size());
    pending_.resize(pass_.functions.size());
    fed_.resize(pass_.functions.size());
    arrived_.resize(pass_.functions.size());
    for (std::size_t i = 0; i < pass_.functions.size(); ++i) {
      function_of_[pass_.functions[i].evaluate] = static_cast<std::int32_t>(i);
    }
    for (const GradientEdge& edge : pass_.edges) {
      edges_from_[edge.from].push_back(edge);
      ++pending_[edge.to];
      fed_[edge.to] = true;
      const std::int32_t owner = owner_of(edge.from);
      if (owner >= 0 && function(edge.to).accumulates()) {
        parameter_shapes_[owner].push_back(shape(source_.tensors[edge.tensor]));
      }
    }
    if (scaler_) find_first_gradients();
  }

  void find_first_gradients() {
    std::unordered_map<std::int64_t, std::int32_t> makers;  // tensor -> node outside of functions
    std::vector<std::int32_t> roots(source_.nodes.size(), -1);
    for (std::size_t f = 0; f < pass_.functions.size(); ++f) {
      const auto index = static_cast<std::int32_t>(f);
      if (starts_pass(index)) roots[function(index).function] = index;
    }
    for (std::size_t i = 0; i < source_.nodes.size(); ++i) {
      const Node& n = source_.nodes[i];
      if (roots[i] >= 0) {
        const auto inputs = entries(source_, source_.inputs(n));
        const auto maker =
            inputs.empty() ? makers.end() : makers.find(source_.tensors[inputs.front()].id);
        if (maker != makers.end()) first_gradients_[maker->second] = roots[i];
      } else if (!pass_.in_backward[i] && !n.is_label && source_.name(n) == "aten::ones_like" &&
                 !entries(source_, source_.inputs(n)).empty()) {
        for_each_tensor(source_, source_.outputs(n), [&](const Tensor& tensor) {
          makers[tensor.id] = static_cast<std::int32_t>(i);
        });
      }
    }
  }

  // The autocast op whose gradient a function computes, -1: none.
  std::int32_t owner_of(std::int32_t index) const {
    const std::int32_t forward = function(index).forward;
    return forward < 0 ? -1 : owner_[forward];
  }

  void visit(std::int32_t index) {
    if (done_[index]) return;
    update_scale(index);
    const std::int32_t f = function_of_[index];
    if (f >= 0) {
      schedule(f);
    } else if (source_.node(index).is_label) {
      if (source_.name(index).starts_with("Optimizer.step")) unscale(index);
      copy_.copy(index);
      done_[index] = true;
    } else {
      const auto first = scaler_ ? first_gradients_.find(index) : first_gradients_.end();
      if (first == first_gradients_.end()) {
        emit(index, DType::kUnknown);
      } else {
        scale_loss(index, first->second);
      }
    }
  }

  // The scaler of losses.

  // `index` makes the gradient of the loss, function `root` takes it: between the two stands the
  // gradient of the product, which has the highest number.
  void scale_loss(std::int32_t index, std::int32_t root) {
    copy_.close_beside(index);
    const auto inputs = entries(source_, source_.inputs(index));
    const Tensor& loss = source_.tensors[inputs.front()];
    const auto last = sequences_.find(function(root).sequence);
    const std::int64_t sequence =
        (last == sequences_.end() ? function(root).sequence : last->second) + 1;
    scaler_->scale(reference(changed(loss)), sequence);
    ++shift_;
    const Tensor& scaled = made().tensors.back();
    Changes changes = {{loss.id, {scaled.id, scaled.storage_id, scaled.dtype}}};
    changes_ = &changes;
    emit(index, DType::kUnknown);
    changes_ = nullptr;
    scaled_roots_[root] = sequence;
  }

  void run_scaled_root(std::int32_t root, std::int64_t sequence) {
    const auto inputs = entries(source_, source_.inputs(function(root).function));
    const Tensor& gradient = source_.tensors[inputs.front()];
    begin_function(root, "MulBackward0", changed(gradient), sequence);
    scaler_->scale_gradient(reference(changed(gradient)));
    const Tensor& scaled = made().tensors.back();
    arrived_[root][gradient.id] = {scaled.id, scaled.storage_id, scaled.dtype};
    builder_.end_op();
    builder_.end_op();
  }

  // Before the optimizer's step; gradients are what the accumulating functions kept.
  void unscale(std::int32_t index) {
    if (!scaler_ || kept_gradients_.empty()) return;
    copy_.close_beside(index);
    std::vector<TensorRef> gradients;
    for (const Tensor& kept : kept_gradients_) gradients.push_back(reference(kept));
    scaler_->unscale(gradients);
    kept_gradients_.clear();
    optimizer_ = index;
  }

  // Behind the optimizer's step, as soon as a node comes that is not in it; -1: no more come.
  void update_scale(std::int32_t index) {
    if (optimizer_ < 0) return;
    if (source_.find_around(index, [&](std::int32_t i) { return i == optimizer_; }) >= 0) return;
    copy_.close_beside(optimizer_);
    scaler_->update();
    optimizer_ = -1;
  }

  // What an accumulating function kept: the last thing that came out of it.
  void keep_gradient(std::int32_t f) {
    const auto children = source_.children(function(f).function);
    if (children.empty()) return;
    const auto outputs = entries(source_, source_.outputs(children.back()));
    if (outputs.empty()) return;
    kept_gradients_.push_back(changed(source_.tensors[outputs.back()]));
  }

  // Tensors.

  Now resolve(const Tensor& tensor) const {
    const Now same{tensor.id, tensor.storage_id, tensor.dtype};
    if (tensor.dtype != DType::kFloat32) return same;
    if (changes_ != nullptr) {
      if (const auto at = changes_->find(tensor.id); at != changes_->end()) return at->second;
    }
    const auto at = state_.find(tensor.id);
    return at == state_.end() ? same : at->second;
  }

  static void apply(Tensor& tensor, const Now& now) {
    tensor.id = now.id;
    tensor.storage_id = now.storage;
    tensor.dtype = now.dtype;
    tensor.item_size = size_in_bytes(now.dtype);
  }

  Tensor changed(const Tensor& tensor) const {
    Tensor made = tensor;
    if (tensor.dtype == DType::kFloat32) apply(made, resolve(tensor));
    return made;
  }

  // Gives the tensors of a copied node what they have become.
  void retag(std::span<const Argument> from, std::uint32_t begin, std::uint32_t count) {
    const auto sources = entries(source_, from);
    const auto copies = entries(made(), {made().arguments.data() + begin, count});
    for (std::size_t i = 0; i < sources.size(); ++i) {
      made().tensors[copies[i]] = changed(source_.tensors[sources[i]]);
    }
  }
  void retag_inputs(std::int32_t index, std::size_t position) {
    const Node& copy = made().nodes[position];
    retag(source_.inputs(index), copy.inputs_begin, copy.inputs_count);
  }
  void retag_outputs(std::int32_t index, std::size_t position) {
    const Node& copy = made().nodes[position];
    retag(source_.outputs(index), copy.outputs_begin, copy.outputs_count);
  }

  TensorRef reference(const Tensor& tensor) {
    made().tensors.push_back(tensor);
    return builder_.tensor_of_source(static_cast<std::uint32_t>(made().tensors.size() - 1));
  }

  // Type promotion of fp32 and one half type; scalars count only among themselves.
  DType common_type(const Node& n) const {
    DType of_tensors = DType::kUnknown, of_scalars = DType::kUnknown;
    for_each_tensor(source_, source_.inputs(n), [&](const Tensor& tensor) {
      if (tensor.dtype != DType::kFloat32) return;
      DType& type = tensor.rank > 0 ? of_tensors : of_scalars;
      const DType now = resolve(tensor).dtype;
      if (type != DType::kFloat32) type = now;
    });
    return of_tensors != DType::kUnknown ? of_tensors : of_scalars;
  }

  DType first_type(const Node& n) const {
    DType first = DType::kUnknown;
    for_each_tensor(source_, source_.inputs(n), [&](const Tensor& tensor) {
      if (first == DType::kUnknown && tensor.dtype == DType::kFloat32) {
        first = resolve(tensor).dtype;
      }
    });
    return first;
  }

  // Types of an op's results, where its children do not say better.
  void assign_outputs(std::int32_t index, DType type) {
    const Node& n = source_.node(index);
    const std::string_view name = source_.name(n);
    const bool first_only =
        name.find("batch_norm") != std::string_view::npos ||
        (name.find("attention") != std::string_view::npos && !name.ends_with("_backward"));
    const auto inputs = entries(source_, source_.inputs(n));
    std::size_t k = 0;
    for_each_tensor(source_, source_.outputs(n), [&](const Tensor& tensor) {
      const bool first = k++ == 0;
      if (is_in(inputs, tensor)) return;
      if (tensor.dtype != DType::kFloat32) {
        state_.erase(tensor.id);
        return;
      }
      Now now{tensor.id, tensor.storage_id, first || !first_only ? type : DType::kFloat32};
      if (name.starts_with("fbgemm::")) now.dtype = DType::kFloat32;
      for (std::uint32_t entry : inputs) {  // a view has the type and the storage of its base
        const Tensor& base = source_.tensors[entry];
        if (tensor.storage_id == 0 || base.storage_id != tensor.storage_id) continue;
        if (base.dtype != DType::kFloat32) continue;
        now.storage = resolve(base).storage;
        now.dtype = resolve(base).dtype;
        break;
      }
      set(tensor.id, now);
    });
  }

  bool is_in(const std::vector<std::uint32_t>& inputs, const Tensor& tensor) const {
    return std::any_of(inputs.begin(), inputs.end(),
                       [&](std::uint32_t entry) { return source_.tensors[entry].id == tensor.id; });
  }

  void set(std::int64_t id, const Now& now) {
    if (changes_ != nullptr) changes_->erase(id);
    state_[id] = now;
  }

  // Ops.

  void emit(std::int32_t index, DType around) {
    done_[index] = true;
    const AutocastPolicy policy = owner_[index] == index
                                      ? autocast_policy(source_.name(index), on_gpu_)
                                      : AutocastPolicy::kKeep;
    if (policy == AutocastPolicy::kKeep) {
      copy_.copy(index);
      emit_inner(index, around);
    } else if (policy == AutocastPolicy::kBanned) {
      Changes changes;
      cast_arguments(index, DType::kFloat32, changes);
      changes_ = &changes;
      copy_.copy(index);
      emit_inner(index, around);
      finish_autocast(index, std::move(changes));
    } else {
      emit_autocast(index, policy, around);
    }
  }

  // The node was opened; types of its arguments and results, then all below it.
  void emit_inner(std::int32_t index, DType around, bool fp32_result = false) {
    const Node& n = source_.node(index);
    const std::size_t position = builder_.innermost();
    retag_inputs(index, position);
    number(index, position);
    const DType type = common_type(n);
    const DType result = result_type(index, position, type, around, fp32_result);
    assign_outputs(index, result);
    const std::string_view name = source_.name(n);
    const bool as_around = is_conversion(name) || is_empty(name) || type == DType::kUnknown;
    const DType below = as_around ? around : type;
    for (std::int32_t child : source_.children(n)) {
      emit(child, below);
    }
    retag_outputs(index, position);
    note_outputs(index);
  }

  // Forward ops move up by the casts that came before; functions follow them.
  void number(std::int32_t index, std::size_t position) {
    const Node& n = source_.node(index);
    if (n.seq_id < 0 || pass_.in_backward[index]) return;
    made().nodes[position].seq_id = n.seq_id + shift_;
    sequences_[n.seq_id] = n.seq_id + shift_;
    first_types_[n.seq_id] = first_type(n);
    recorded_ops_[n.seq_id] = index;
  }

  void note_outputs(std::int32_t index) {
    const Node& n = source_.node(index);
    if (n.seq_id < 0 || pass_.in_backward[index]) return;
    auto& types = output_types_[index];
    for_each_tensor(source_, source_.outputs(n), [&](const Tensor& tensor) {
      types.push_back({shape(tensor), resolve(tensor).dtype});
    });
  }

  Argument* type_argument(std::int32_t index, std::size_t position, std::string_view* name) {
    const TypeParameter parameter =
        type_parameter(source_.names.text(source_.node(index).op_schema));
    const Node& copy = made().nodes[position];
    if (parameter.index < 0 || static_cast<std::uint32_t>(parameter.index) >= copy.inputs_count) {
      return nullptr;
    }
    *name = parameter.name;
    return &made().arguments[copy.inputs_begin + static_cast<std::uint32_t>(parameter.index)];
  }

  static void name_type(Argument& argument, DType type) {
    const int code = scalar_type_code(type);
    argument = {.kind = Argument::Kind::kInt, .integer = code, .real = static_cast<double>(code)};
  }

  // The type that the op above gives to the tensor which `index` allocates for it. An op of mixed
  // types, as a batch norm with half images and fp32 weights, allocates results of both.
  std::optional<DType> type_above(std::int32_t index) const {
    const Node& n = source_.node(index);
    if (n.parent < 0 || source_.outputs(n).empty()) return std::nullopt;
    const auto made = entries(source_, source_.outputs(n));
    const auto results = entries(source_, source_.outputs(n.parent));
    if (made.size() != 1 || !is_in(results, source_.tensors[made.front()])) return std::nullopt;
    const auto at = state_.find(source_.tensors[made.front()].id);
    return at == state_.end() ? std::nullopt : std::optional(at->second.dtype);
  }

  // Type of what an op makes; arguments that name the type follow.
  DType result_type(std::int32_t index, std::size_t position, DType type, DType around,
                    bool fp32_result) {
    const std::string_view name = source_.name(index);
    if (name.find("batch_norm") != std::string_view::npos) return first_type(source_.node(index));
    const DType result = type != DType::kUnknown     ? type
                         : around != DType::kUnknown ? around
                                                     : DType::kFloat32;
    if (half_to_float_ && (name == "aten::_softmax" || name == "aten::_log_softmax")) {
      Node& copy = made().nodes[position];
      if (copy.inputs_count > 2) made().arguments[copy.inputs_begin + 2].integer = 1;
      return DType::kFloat32;
    }
    const std::optional<DType> result_of_op = is_empty(name) ? type_above(index) : std::nullopt;
    std::string_view parameter;
    Argument* argument = type_argument(index, position, &parameter);
    if (argument == nullptr) return result_of_op.value_or(result);
    if (fp32_result) {
      name_type(*argument, DType::kFloat32);
      return DType::kFloat32;
    }
    if (argument->kind != Argument::Kind::kInt || argument->integer != kFloatCode) {
      return result;
    }
    DType named = around != DType::kUnknown ? around
                  : type != DType::kUnknown ? type
                                            : DType::kFloat32;
    if (result_of_op) named = *result_of_op;
    if (parameter == "input_dtype") {  // of the op that this one is the gradient of
      const auto forward = first_types_.find(backward_sequence_);
      if (forward != first_types_.end()) named = forward->second;
    }
    if (named != DType::kFloat32) name_type(*argument, named);
    return named;
  }

  DType target_type(AutocastPolicy policy, const Node& n) const {
    if (policy == AutocastPolicy::kLower) return half_;
    if (policy == AutocastPolicy::kPromote) {
      bool mixed = false;
      for_each_tensor(source_, source_.inputs(n), [&](const Tensor& tensor) {
        mixed |= resolve(tensor).dtype == DType::kFloat32;
      });
      return mixed ? DType::kFloat32 : half_;
    }
    return DType::kFloat32;
  }

  void emit_autocast(std::int32_t index, AutocastPolicy policy, DType around) {
    const Node& n = source_.node(index);
    copy_.copy(index);
    const std::size_t outer = builder_.innermost();
    retag_inputs(index, outer);
    made().nodes[outer].seq_id = -1;  // the kernel of autocast stands in front of autograd's
    Changes changes;
    bool fp32_result = false;
    if (policy == AutocastPolicy::kFp32Type) {
      std::string_view unused;
      result_type(index, outer, common_type(n), around, false);
      const Argument* given = type_argument(index, outer, &unused);
      fp32_result =
          common_type(n) == half_ && given != nullptr && given->kind == Argument::Kind::kNone;
    } else {
      cast_arguments(index, target_type(policy, n), changes);
    }
    changes_ = &changes;
    copy_.nest(index);
    emit_nested(index, around, fp32_result, changes);
    retag_outputs(index, outer);
    finish_autocast(index, std::move(changes));
  }

  // The op below autocast. softmax(x, dtype=float) converts in its kernel where x is fp16 and
  // through a copy where it is bfloat16; sums always convert in their kernel.
  void emit_nested(std::int32_t index, DType around, bool fp32_result, Changes& changes) {
    if (!fp32_result) {
      emit_inner(index, around);
      return;
    }
    const std::size_t position = builder_.innermost();
    const Node& n = source_.node(index);
    retag_inputs(index, position);
    number(index, position);
    result_type(index, position, common_type(n), around, true);
    assign_outputs(index, DType::kFloat32);
    const std::string_view name = source_.name(n);
    const bool softmax = name.ends_with("softmax");
    if (softmax && half_ == DType::kBFloat16) {
      const auto inputs = entries(source_, source_.inputs(n));
      if (!inputs.empty()) {
        cast(index, source_.tensors[inputs.front()], 0, DType::kFloat32, changes, Style::kLayout);
      }
    }
    half_to_float_ = softmax && half_ == DType::kFloat16;
    for (std::int32_t child : source_.children(n)) {
      done_[child] = true;
      copy_.copy(child);
      emit_inner(child, DType::kUnknown, source_.name(child) == name);
    }
    half_to_float_ = false;
    retag_outputs(index, position);
    note_outputs(index);
  }

  void finish_autocast(std::int32_t index, Changes changes) {
    changes_ = nullptr;
    changes_of_[index] = std::move(changes);
  }

  // Arguments are cast from the last to the first (the order in which compilers evaluate them),
  // those of a list in its order.
  void cast_arguments(std::int32_t index, DType target, Changes& changes) {
    const auto arguments = source_.inputs(index);
    std::vector<std::size_t> first_entry;
    std::size_t count = 0;
    for (const Argument& argument : arguments) {
      first_entry.push_back(count);
      count += entries(source_, {&argument, 1}).size();
    }
    for (std::size_t a = arguments.size(); a-- > 0;) {
      const auto tensors = entries(source_, {&arguments[a], 1});
      for (std::size_t k = 0; k < tensors.size(); ++k) {
        const Tensor& tensor = source_.tensors[tensors[k]];
        const bool here = on_gpu_ ? tensor.on_gpu() : tensor.on_cpu();
        if (tensor.dtype != DType::kFloat32 || !here || resolve(tensor).dtype == target) continue;
        cast(index, tensor, first_entry[a] + k, target, changes, Style::kType);
      }
    }
  }

  // How a cast is called: x.to(dtype), or with all options as toType() does.
  enum class Style { kType, kLayout };

  void cast(std::int32_t owner, const Tensor& tensor, std::size_t position, DType target,
            Changes& changes, Style style) {
    const auto& producers = pass_.input_producers[owner];
    const std::int64_t producer = position < producers.size() ? producers[position] : -1;
    const bool parameter = producer < 0 && take_parameter(owner, shape(tensor), position);
    const auto cached = cached_.find(tensor.id);
    std::size_t at = casts_.size();
    if (parameter && target == half_ && cached != cached_.end()) {
      at = cached->second;
    } else {
      Cast made;
      made.back_to = resolve(tensor).dtype;
      const bool recorded = parameter || producer >= 0;
      made.result = write_cast(changed(tensor), target, sequence_of(owner), style);
      if (recorded) {
        made.sequence = sequence_of(owner);
        ++shift_;
      }
      casts_.push_back(made);
      if (parameter && target == half_) cached_[tensor.id] = at;
    }
    changes[tensor.id] = casts_[at].result;
    if (casts_[at].sequence >= 0) {
      uses_[owner].push_back({.shape = shape(tensor), .producer = producer, .cast = at});
    }
  }

  // Whether an argument that no op made is a parameter: its gradient is accumulated. Without a
  // backward pass all but the first argument are taken for parameters.
  bool take_parameter(std::int32_t owner, const Shape& sizes, std::size_t position) {
    if (pass_.functions.empty()) return position > 0;
    auto& shapes = parameter_shapes_[owner];
    const auto at = std::find(shapes.begin(), shapes.end(), sizes);
    if (at == shapes.end()) return false;
    shapes.erase(at);
    return true;
  }

  // Number that the op, or a cast before it, is about to get.
  std::int64_t sequence_of(std::int32_t owner) const {
    std::int32_t at = owner;
    while (source_.node(at).seq_id < 0 && source_.node(at).children_count > 0)
      at = source_.children(at)[0];
    return source_.node(at).seq_id < 0 ? -1 : source_.node(at).seq_id + shift_;
  }

  Now write_cast(const Tensor& tensor, DType target, std::int64_t sequence, Style style) {
    const TensorRef from = reference(tensor);
    if (style == Style::kType) {
      to_dtype(builder_, from, target, sequence);
    } else {
      to(builder_, from, builder_.new_tensor(target, builder_.device(from), builder_.shape(from)),
         {}, sequence);
    }
    const Tensor& written = made().tensors.back();
    return {written.id, written.storage_id, target};
  }

  // The backward pass. Functions run in order of their numbers, highest first: every function has
  // a lower number than those that hand it gradients.

  void schedule(std::int32_t f) {
    mark_done(function(f).evaluate);
    if (const auto root = scaled_roots_.find(f); root != scaled_roots_.end()) {
      run_scaled_root(f, root->second);
    }
    if (function(f).accumulates()) {
      if (pending_[f] > 0) {
        waiting_.push_back(f);
      } else {
        run_function(f);
      }
    } else {
      const auto at = sequences_.find(function(f).sequence);
      run_casts(f, at == sequences_.end() ? function(f).sequence : at->second);
      run_function(f);
    }
    const bool last =
        static_cast<std::size_t>(f) + 1 == pass_.functions.size() || starts_pass(f + 1);
    if (last) run_casts(f, -1);
  }

  void mark_done(std::int32_t tree) {
    done_[tree] = true;
    for (std::int32_t child : source_.children(tree)) mark_done(child);
  }

  // A function that is handed its gradient by none starts a backward pass.
  bool starts_pass(std::int32_t f) const { return !function(f).accumulates() && !fed_[f]; }

  // Casts that come before number `sequence`; `f`: a function beside which they stand.
  void run_casts(std::int32_t f, std::int64_t sequence) {
    for (auto at = ready_.rbegin(); at != ready_.rend() && at->first > sequence;
         at = ready_.rbegin()) {
      const std::size_t cast = at->second;
      ready_.erase(std::prev(ready_.end()));
      run_cast(f, cast);
    }
  }

  void run_function(std::int32_t f) {
    const BackwardFunction& info = function(f);
    const std::int32_t owner = owner_of(f);
    Changes changes;
    if (owner >= 0) changes = changes_of_[owner];
    for (const auto& [id, now] : arrived_[f]) changes[id] = now;
    changes_ = &changes;
    backward_sequence_ = info.sequence;
    if (info.evaluate != info.function) copy_.copy(info.evaluate);
    copy_.copy(info.function);
    const std::size_t position = builder_.innermost();
    retag_inputs(info.function, position);
    if (const auto at = sequences_.find(info.sequence); at != sequences_.end()) {
      made().nodes[position].seq_id = at->second;
    }
    for (std::int32_t child : source_.children(info.function)) {
      emit(child, DType::kUnknown);
    }
    if (info.accumulates()) keep_gradient(f);
    if (info.evaluate != info.function) hand_over(f);
    changes_ = nullptr;
  }

  // What stands behind a function: sums over broadcast axes, casts to the type that is expected,
  // sums of gradients.
  void hand_over(std::int32_t f) {
    const auto& edges = edges_from_[f];
    const BackwardFunction& info = function(f);
    const auto adds = [&](std::int32_t child) {
      return std::any_of(edges.begin(), edges.end(),
                         [&](const GradientEdge& edge) { return edge.sum == child; });
    };
    for (std::int32_t child : source_.children(info.evaluate)) {
      if (child != info.function && !adds(child)) emit(child, DType::kUnknown);
    }
    for (const GradientEdge& edge : edges) {
      const auto cast = cast_of(edge);
      if (cast) {
        reach_cast(edge, *cast);
      } else {
        reach_function(edge);
      }
    }
  }

  // The cast through which a gradient passes.
  std::optional<std::size_t> cast_of(const GradientEdge& edge) const {
    const auto uses = uses_.find(owner_of(edge.from));
    if (uses == uses_.end()) return std::nullopt;
    const Shape sizes = shape(source_.tensors[edge.tensor]);
    for (const CastUse& use : uses->second) {
      if (use.producer == function(edge.to).sequence && use.shape == sizes) return use.cast;
    }
    return std::nullopt;
  }

  void reach_cast(const GradientEdge& edge, std::size_t at) {
    Cast& cast = casts_[at];
    if (edge.sum >= 0 && cast.gradient) {  // a cast that was used twice: summed in front of it
      emit(edge.sum, DType::kUnknown);
      cast.edge.tensor = source_.outputs(edge.sum)[0].index;
    } else {
      cast.edge = edge;
      ready_[cast.sequence] = at;
    }
    cast.gradient = changed(source_.tensors[cast.edge.tensor]);
    ++cast.edges;
  }

  void reach_function(const GradientEdge& edge) {
    const Tensor& gradient = source_.tensors[edge.tensor];
    Now now = resolve(gradient);
    const DType expected = expected_type(edge.to, shape(gradient));
    if (gradient.dtype == DType::kFloat32 && now.dtype != expected && expected != DType::kUnknown) {
      copy_.close_to(function(edge.from).evaluate);
      now = write_cast(changed(gradient), expected, -1, Style::kType);
    }
    arrive(edge, now, [this](std::int32_t sum) { emit(sum, DType::kUnknown); });
    --pending_[edge.to];
  }

  // A gradient has come to the function that takes it, or to the sum in front of it.
  void arrive(const GradientEdge& edge, const Now& now,
              const std::function<void(std::int32_t)>& write_sum) {
    Changes& there = arrived_[edge.to];
    there[source_.tensors[edge.tensor].id] = now;
    if (edge.sum < 0) return;
    Changes changes = there;
    Changes* before = std::exchange(changes_, &changes);
    write_sum(edge.sum);
    const Tensor& sum = source_.tensors[source_.outputs(edge.sum)[0].index];
    there[sum.id] = resolve(sum);
    changes_ = before;
  }

  DType expected_type(std::int32_t f, const Shape& sizes) const {
    if (function(f).accumulates()) return DType::kFloat32;
    const auto recorded = recorded_ops_.find(function(f).sequence);
    if (recorded == recorded_ops_.end()) return DType::kUnknown;
    const auto outputs = output_types_.find(recorded->second);
    if (outputs == output_types_.end() || outputs->second.empty()) return DType::kUnknown;
    for (const auto& [shape, type] : outputs->second) {
      if (shape == sizes) return type;
    }
    return outputs->second.front().second;
  }

  void run_cast(std::int32_t f, std::size_t at) {
    const Cast cast = casts_[at];
    begin_function(f, "ToCopyBackward0", *cast.gradient, cast.sequence);
    const Now now = write_cast(*cast.gradient, cast.back_to, -1, Style::kLayout);
    builder_.end_op();
    arrive(cast.edge, now, [this](std::int32_t sum) { write_sum_here(sum); });
    builder_.end_op();
    const std::int32_t to = cast.edge.to;
    pending_[to] -= cast.edges;
    const auto waits = std::find(waiting_.begin(), waiting_.end(), to);
    if (waits != waiting_.end() && pending_[to] <= 0) {
      waiting_.erase(waits);
      run_function(to);
    }
  }

  // Opens a function that the source does not have, beside function `f` of the source.
  void begin_function(std::int32_t f, const std::string& name, const Tensor& gradient,
                      std::int64_t sequence) {
    const BackwardFunction& beside = function(f);
    copy_.close_beside(beside.evaluate);
    builder_.begin_plain("autograd::engine::evaluate_function: " + name);
    builder_.begin_backward_function(name, {reference(gradient)}, sequence);
    const std::size_t position = builder_.innermost();
    made().nodes[position].fw_thread = source_.node(beside.function).fw_thread;
    new_functions_.push_back({position, beside.function});
  }

  void write_sum_here(std::int32_t index) {
    builder_.copy_node(source_.node(index));
    const std::size_t position = builder_.innermost();
    retag_inputs(index, position);
    assign_outputs(index, common_type(source_.node(index)));
    retag_outputs(index, position);
    builder_.close();
  }

  const ExecutionGraph& source_;
  const BackwardPass& pass_;
  const DType half_;
  const bool on_gpu_;
  GraphCopy copy_;
  GraphBuilder& builder_;
  std::optional<GradScaler> scaler_;

  // Of the forward pass.
  std::vector<std::int32_t> owner_;  // per node: the autocast op that it is or stands in, or -1
  std::vector<bool> done_;
  Changes state_;               // what is not as it was in the source
  Changes* changes_ = nullptr;  // what counts inside one op or function, before state_
  bool half_to_float_ = false;
  std::int64_t shift_ = 0;  // of sequence numbers
  std::vector<Cast> casts_;
  std::unordered_map<std::int64_t, std::size_t> cached_;  // parameter -> its cast
  std::unordered_map<std::int32_t, Changes> changes_of_;  // by autocast op
  std::unordered_map<std::int32_t, std::vector<CastUse>> uses_;
  std::unordered_map<std::int32_t, std::vector<Shape>> parameter_shapes_;
  std::unordered_map<std::int64_t, std::int64_t> sequences_;  // old -> new
  std::unordered_map<std::int64_t, std::int32_t> recorded_ops_;
  std::unordered_map<std::int64_t, DType> first_types_;  // of a recorded op's first input
  std::unordered_map<std::int32_t, std::vector<std::pair<Shape, DType>>> output_types_;

  // Of the backward pass, by function.
  std::vector<std::int32_t> function_of_;  // per node that evaluates one
  std::vector<std::vector<GradientEdge>> edges_from_;
  std::vector<int> pending_;      // gradients that are still to come
  std::vector<bool> fed_;         // by another function
  std::vector<Changes> arrived_;  // gradients as they are handed over
  std::vector<std::int32_t> waiting_;
  std::map<std::int64_t, std::size_t> ready_;  // casts by number
  std::int64_t backward_sequence_ = -1;
  std::vector<std::pair<std::size_t, std::int32_t>> new_functions_;

  // Of the scaler.
  std::unordered_map<std::int32_t, std::int32_t> first_gradients_;  // node -> function it feeds
  std::unordered_map<std::int32_t, std::int64_t> scaled_roots_;     // function -> number
  std::vector<Tensor> kept_gradients_;
  std::int32_t optimizer_ = -1;  // the label of its step, while that is open
};

bool under_optimizer(const ExecutionGraph& graph, const Node& node) {
  const auto holds = [&](std::int32_t i) { return graph.name(i).starts_with("Optimizer."); };
  return graph.find_around(node.parent, holds) >= 0;
}

}  // namespace

std::vector<bool> autocast_region(const ExecutionGraph& graph, const BackwardPass& pass,
                                  bool on_gpu) {
  std::vector<bool> region(graph.nodes.size());
  for (const GraphIteration& step : iterations(graph)) {
    for (std::int32_t i = step.begin; i < step.end; ++i) {
      const Node& node = graph.nodes[i];
      if (pass.in_backward[i]) break;  // what follows is the optimizer's
      bool here = false;
      for_each_tensor(graph, graph.inputs(node), [&](const Tensor& tensor) {
        here |= on_gpu ? tensor.on_gpu() : tensor.on_cpu();
      });
      region[i] = here && !node.is_label && !under_optimizer(graph, node);
    }
  }
  return region;
}

ExecutionGraph autocast_graph(const ExecutionGraph& graph, const BackwardPass& pass, DType half,
                              bool on_gpu, bool grad_scaler) {
  return Autocast(graph, pass, half, on_gpu, grad_scaler).run();
}

}  // namespace perfmodel
