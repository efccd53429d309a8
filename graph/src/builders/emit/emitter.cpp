#include "emitter.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "memory.hpp"
#include "ops/programs.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {
namespace {

Shape broadcast(const GraphBuilder& graph, const std::vector<TensorRef>& inputs) {
  Shape shape;
  for (TensorRef input : inputs) {
    const Shape& other = graph.shape(input);
    if (other.size() > shape.size()) shape.insert(shape.begin(), other.size() - shape.size(), 1);
    for (std::size_t i = 0; i < other.size(); ++i) {
      std::int64_t& size = shape[shape.size() - other.size() + i];
      if (other[i] != 1) size = other[i];
    }
  }
  return shape;
}

// Dense strides of `shape` whose axes follow each other in memory as in `order`.
Shape strides_in_order(const Shape& shape, const Shape& order) {
  std::vector<std::size_t> axes(shape.size());
  std::iota(axes.begin(), axes.end(), std::size_t{0});
  std::stable_sort(axes.begin(), axes.end(), [&](std::size_t a, std::size_t b) {
    return order[a] > order[b];  // equal ones stay row-major
  });
  Shape strides(shape.size());
  std::int64_t stride = 1;
  for (std::size_t i = axes.size(); i-- > 0;) {
    strides[axes[i]] = stride;
    stride *= std::max<std::int64_t>(shape[axes[i]], 1);
  }
  return strides;
}

TensorRef tensor_in(const Value& value) {
  const TensorRef* tensor = std::get_if<TensorRef>(&value.variant());
  return tensor ? *tensor : TensorRef{};
}

using Tensors = std::vector<TensorRef>;

/// Runs the program of one call: names of arguments, results and values on the way.
class ProgramRun {
 public:
  /// `wrapped`: tensors of the caller that were numbers.
  ProgramRun(GraphBuilder& graph, Tensors wrapped) : graph_(graph), wrapped_(std::move(wrapped)) {}

  void name(std::string_view name, const Value& value) { names_.insert_or_assign(name, value); }
  const Tensors& wrapped() const { return wrapped_; }

  /// Numbers in the place of tensors become tensors.
  void wrap_numbers(const OpProgram& program, std::vector<Value>& values) {
    for (std::size_t i = 0; i < std::min(values.size(), program.arguments.size()); ++i) {
      const bool real = std::holds_alternative<double>(values[i].variant());
      const bool whole = std::holds_alternative<std::int64_t>(values[i].variant());
      if (!program.arguments[i].is_tensor || (!real && !whole)) continue;
      const TensorRef made = wrapped_number(graph_, real ? DType::kFloat64 : DType::kInt64);
      wrapped_.push_back(made);
      values[i] = made;
    }
  }

  void bind(const OpProgram& program, const std::vector<Value>& values) {
    for (std::size_t i = 0; i < std::min(values.size(), program.arguments.size()); ++i) {
      name(program.arguments[i].name, values[i]);
    }
  }

  TensorRef call_op(std::string_view op, std::vector<Value> values, std::int64_t sequence,
                    const Expression::Call& given) {
    if (const auto at = written_ops().find(op); at != written_ops().end()) {
      return tensor_in(at->second({graph_, values, sequence}));
    }
    const OpProgram& program = program_of(op);
    ProgramRun inside(graph_, wrapped_);
    inside.wrap_numbers(program, values);
    inside.bind(program, values);
    TensorRef result = inside.result_of(program, values, given.gives_flags);
    if (!given.like.empty()) result = perfmodel::like(graph_, tensor_in(names_.at(given.like)));
    graph_.begin_op(op, values, sequence);
    inside.cast_numbers(values);
    for (const Statement& statement : program.calls) {
      const Value value = inside.execute(statement, sequence);
      if (&statement == &program.calls.back()) result = tensor_in(value);
    }
    return graph_.end_with(result);
  }

  /// `sequence`: of the op around it.
  Value execute(const Statement& statement, std::int64_t sequence = -1) {
    const Value value = evaluate(statement.value, sequence);
    if (!statement.target.empty()) name(statement.target, value);
    return value;
  }

 private:
  bool is_wrapped(TensorRef tensor) const {
    return std::ranges::any_of(wrapped_, [&](TensorRef one) { return one.index == tensor.index; });
  }

  // The tensors that say shape and type of the result.
  Tensors operands(const std::vector<Value>& values) const {
    Tensors tensors;
    for (const Value& value : values) {
      const TensorRef tensor = tensor_in(value);
      if (tensor.exists() && !is_wrapped(tensor)) tensors.push_back(tensor);
    }
    return tensors;
  }

  TensorRef result_of(const OpProgram& program, const std::vector<Value>& values, bool flags) {
    if (program.in_place) return tensor_in(values.front());
    if (!program.like.empty()) return perfmodel::like(graph_, tensor_in(names_.at(program.like)));
    if (!program.calls.empty()) return {};
    const Tensors tensors = operands(values);
    const DType dtype = flags ? DType::kBool : graph_.dtype(tensors.front());
    return pointwise_result(graph_, tensors, dtype);
  }

  void cast_numbers(const std::vector<Value>& values) {
    for (const Value& value : values) {
      const TensorRef tensor = tensor_in(value);
      if (!tensor.exists() || !is_wrapped(tensor)) continue;
      cast_wrapped_number(graph_, tensor, graph_.dtype(operands(values).front()));
    }
  }

  Value evaluate(const Expression& expression, std::int64_t sequence) {
    struct Visit {
      ProgramRun& run;
      std::int64_t sequence;
      Value operator()(Expression::None) const { return kNone; }
      Value operator()(Expression::Name name) const { return run.names_.at(name.text); }
      Value operator()(std::int64_t number) const { return number; }
      Value operator()(double number) const { return number; }
      Value operator()(bool flag) const { return flag; }
      Value operator()(const Expression::Call& call) const { return run.evaluate(call, sequence); }
    };
    return std::visit(Visit{*this, sequence}, expression.value);
  }

  Value evaluate(const Expression::Call& call, std::int64_t sequence) {
    std::vector<Value> values;
    for (const Expression& argument : call.arguments) values.push_back(evaluate(argument, -1));
    if (call.function.find("::") == std::string_view::npos) {
      return written_ops().at(call.function)({graph_, values});
    }
    return call_op(call.function, std::move(values), call.seen_by_autograd ? sequence : -1, call);
  }

  GraphBuilder& graph_;
  Tensors wrapped_;
  std::map<std::string_view, Value> names_;
};

// The arguments that a derivative is given for.
struct DerivedInputs {
  Tensors tensors;
  std::vector<std::string_view> names;
};

DerivedInputs inputs_of(const OpProgram& program, const std::vector<Value>& values,
                        const ProgramRun& run) {
  DerivedInputs inputs;
  for (std::size_t i = 0; i < std::min(values.size(), program.arguments.size()); ++i) {
    const std::string_view name = program.arguments[i].name;
    const TensorRef tensor = tensor_in(values[i]);
    const bool number = std::ranges::any_of(
        run.wrapped(), [&](TensorRef wrapped) { return wrapped.index == tensor.index; });
    const auto of = [&](const Statement& gradient) { return gradient.target == name; };
    if (!tensor.exists() || number || std::ranges::none_of(program.gradients, of)) continue;
    inputs.tensors.push_back(tensor);
    inputs.names.push_back(name);
  }
  return inputs;
}

Tensors gradients_of(const AutogradTape& tape, const OpProgram& program,
                     const DerivedInputs& inputs, ProgramRun run, TensorRef gradient) {
  run.name("grad", gradient);
  Tensors gradients(inputs.tensors.size());
  for (const Statement& statement : program.gradients) {
    const bool is_gradient = std::ranges::any_of(
        program.arguments, [&](const auto& argument) { return argument.name == statement.target; });
    if (!is_gradient) {
      run.execute(statement);
      continue;
    }
    const auto at = std::ranges::find(inputs.names, statement.target) - inputs.names.begin();
    if (at == std::ssize(inputs.names) || !tape.requires_grad(inputs.tensors[at])) continue;
    gradients[at] = tensor_in(run.execute({{}, statement.value}));
  }
  return gradients;
}

}  // namespace

TensorRef pointwise_result(GraphBuilder& graph, const std::vector<TensorRef>& inputs, DType dtype) {
  Shape shape = broadcast(graph, inputs);
  for (TensorRef input : inputs) {
    if (graph.shape(input) != shape) continue;
    if (graph.is_contiguous(input)) break;
    Shape strides = strides_in_order(shape, graph.strides(input));
    return graph.new_tensor(dtype, graph.device(), std::move(shape), std::move(strides));
  }
  return graph.new_tensor(dtype, std::move(shape));
}

TensorRef emit(GraphBuilder& graph, std::string_view op, std::vector<Value> arguments,
               std::int64_t sequence) {
  return ProgramRun(graph, {}).call_op(op, std::move(arguments), sequence, {});
}

TensorRef emit(AutogradTape& tape, std::string_view op, std::vector<Value> arguments) {
  const OpProgram& program = program_of(op);
  PERFMODEL_CHECK(!program.node.empty());  // an op without a derivative: add it to rows.txt
  ProgramRun run(tape.graph(), {});
  run.wrap_numbers(program, arguments);
  run.bind(program, arguments);
  const DerivedInputs inputs = inputs_of(program, arguments, run);
  const TensorRef result = run.call_op(op, std::move(arguments), tape.sequence(), {});
  run.name("result", result);
  tape.record(std::string(program.node), inputs.tensors, result,
              [&tape, &program, inputs, run](TensorRef gradient) {
                return gradients_of(tape, program, inputs, run, gradient);
              });
  return result;
}

}  // namespace perfmodel
