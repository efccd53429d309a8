#include <fmt/args.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/budget.hpp"
#include "builders/emit/ops.hpp"
#include "builders/emit/optimizer_settings.hpp"
#include "config_checks.hpp"
#include "module_run.hpp"

namespace perfmodel {
namespace {

void refuse_if(const Result<void>& good) {
  if (!good) throw Refusal{good.error().message};
}

// "... {} ..." with values.
std::string formatted(const ModuleCall& c) {
  fmt::dynamic_format_arg_store<fmt::format_context> values;
  for (std::size_t i = 1; i < c.given.size(); ++i) {
    if (const auto* whole = c.given[i].get<std::int64_t>()) {
      values.push_back(*whole);
    } else if (const auto* text = c.given[i].get<std::string>()) {
      values.push_back(*text);
    } else {
      values.push_back(c.given[i].real());
    }
  }
  return fmt::vformat(c.text(0), values);
}

// Models loop over it and make nodes: more numbers than a graph may have nodes are refused at once.
Item::List range(std::int64_t count) {
  if (count > 0) growth_point(static_cast<std::size_t>(count));
  Item::List numbers;
  for (std::int64_t i = 0; i < count; ++i) numbers.emplace_back(i);
  return numbers;
}

// max(a, b) or min(a, b).
Item extreme(const ModuleCall& c, bool largest) {
  const bool first = (c.real(0) > c.real(1)) == largest;
  return c.given[first ? 0 : 1];
}

// leaf(op, arguments, result), or a list of results.
Item leaf(const ModuleCall& c) {
  if (!c.given[2].get<TensorRef>()) {
    c.graph.leaf_op(c.text(0), c.arguments(1), c.arguments(2), c.tape.sequence());
    return c.given[2];
  }
  return c.graph.leaf(c.text(0), c.arguments(1), c.tensor(2), c.tape.sequence());
}

// record(backward function, inputs, outputs, text, saved, listed): `text` is called with the
// gradient of each output, or a list of them, and what was saved, and gives the gradients of the
// inputs. Returns the outputs.
Item recorded(const ModuleCall& c) {
  const bool single = c.given[2].get<TensorRef>() != nullptr;
  const auto outputs = single ? std::vector<TensorRef>{c.tensor(2)} : c.tensors(2);
  c.tape.record(c.text(0), c.tensors(1), outputs,
                [&run = c.run, text = c.text(3), saved = c.given[4],
                 listed = c.flag(5)](const std::vector<TensorRef>& gradients) {
                  return run.call_backward(text, gradients, saved.list(), listed);
                });
  return c.given[2];
}

// Closes the op that "begin" has opened, with a result or a list of them, which it returns.
Item end_op(const ModuleCall& c) {
  c.graph.end_op(c.given[0].get<TensorRef>() ? std::vector<Value>{c.tensor(0)} : c.arguments(0));
  return c.given[0];
}

// A tensor of one number, like x.
Item full_like(const ModuleCall& c) {
  GraphBuilder& graph = c.graph;
  graph.begin_op("aten::full_like", {c.tensor(0), c.integer(1), kNone, kNone, kNone, kNone, kNone},
                 c.tape.sequence());
  const TensorRef made = empty_like(graph, c.tensor(0));
  fill(graph, made, c.integer(1));
  return graph.end_with(made);
}

// (query, key, value, dropout, causal, mask, kernel); without a kernel the setting's.
Item attention_in_one_op(const ModuleCall& c) {
  FusedAttention options{.dropout = c.real(3), .causal = c.flag(4)};
  const Item kernel = c.has(6) ? c.given[6] : *c.run.get("attention");
  if (*kernel.get<std::string>() == "flash") {
    options.kernel = FusedAttention::Kernel::kFlash;
  } else {
    options.mask = c.tensor(5);  // flash has none: batches without padding need none
  }
  return fused_attention(c.tape, c.tensor(0), c.tensor(1), c.tensor(2), options);
}

std::int64_t elements(const ModuleCall& c) { return c.graph.numel(c.tensor(0)); }

// (x, weight, bias, stride, padding, groups, transposed)
Item convolution(const ModuleCall& c) {
  const Conv2d conv = {
      .stride = c.shape(3), .padding = c.shape(4), .groups = c.integer(5), .transposed = c.flag(6)};
  return conv2d(c.tape, c.tensor(0), c.tensor(1), c.tensor(2), conv);
}

// `torch.zeros(shape)`; the caller may name the type.
Item python_zeros(const ModuleCall& c) {
  const TensorRef made = c.graph.new_tensor(DType::kFloat32, c.shape(0));
  zeros(c.graph, made, from_python(c.flag(1)));
  return made;
}

// A parameter that is a part of a buffer: (buffer, offset, shape).
Item parameter_part(const ModuleCall& c) {
  const Shape shape = c.shape(2);
  return c.step.adopt_parameter(
      c.graph.new_view(c.tensor(0), shape, contiguous_strides(shape), c.integer(1)));
}

// (optimizer, learning rate, rows, dims, batch, indices, offsets, placeholder) of FBGEMM's tables.
Item lookup_in_batched_tables(const ModuleCall& c) {
  using Optimizer = TableBatch::Optimizer;
  static const std::map<std::string_view, Optimizer> kOptimizers = {
      {"sgd", Optimizer::kSgd},
      {"adagrad", Optimizer::kAdagrad},
      {"rowwise_adagrad", Optimizer::kRowwiseAdagrad},
      {"adam", Optimizer::kAdam}};
  const TableBatch tables = {.optimizer = kOptimizers.at(c.text(0)),
                             .rows = c.shape(2),
                             .dims = c.shape(3),
                             .learning_rate = c.real(1),
                             .placeholder = c.tensor(7)};
  return table_batched_lookup(c.tape, tables, c.integer(4), c.tensor(5), c.tensor(6));
}

// The host waits for the numbers.
Item to_host(const ModuleCall& c) {
  if (!c.graph.pytorch().on_gpu()) return {};
  const TensorRef x = c.tensor(0);
  const TensorRef host =
      c.graph.new_tensor(c.graph.dtype(x), GraphBuilder::cpu(), c.graph.shape(x));
  to(c.graph, x, host, {.tensor = {.dtype = false, .layout = false}});
  return {};
}

Item check_of_optimizer(const ModuleCall& c) {
  const TrainingOptions& step = c.step.options();
  refuse_if(check_optimizer(step.optimizer, step.implementation, step.pytorch));
  return {};
}

}  // namespace

DType ModuleCall::dtype(std::size_t i) const {
  if (const auto* of = given[i].get<TensorRef>()) return graph.dtype(*of);
  static const std::map<std::string_view, DType> kNames = {
      {"float32", DType::kFloat32}, {"float64", DType::kFloat64}, {"int64", DType::kInt64},
      {"int32", DType::kInt32},     {"uint8", DType::kUInt8},     {"bool", DType::kBool}};
  return kNames.at(text(i));
}

Shape ModuleCall::shape(std::size_t i) const {
  Shape sizes;
  for (const Item& size : given[i].list()) sizes.push_back(*size.get<std::int64_t>());
  return sizes;
}

std::vector<TensorRef> ModuleCall::tensors(std::size_t i) const {
  std::vector<TensorRef> all;
  for (const Item& tensor : given[i].list()) all.push_back(*tensor.get<TensorRef>());
  return all;
}

std::vector<Value> ModuleCall::arguments(std::size_t i) const {
  std::vector<Value> all;
  for (const Item& item : given[i].list()) all.push_back(item.argument());
  return all;
}

// Texts cannot say these: tensors without ops, ops that differ between devices and versions,
// derivatives in C++.
// clang-format off
static ModuleFunctions step_functions() {
  using C = const ModuleCall&;
  return {
    // Numbers
    {"max", [](C c) -> Item { return extreme(c, true); }},
    {"min", [](C c) -> Item { return extreme(c, false); }},
    {"sqrt", [](C c) -> Item { return std::sqrt(c.real(0)); }},
    {"log", [](C c) -> Item { return std::log(c.real(0)); }},
    {"rounded", [](C c) -> Item { return static_cast<std::int64_t>(std::llround(c.real(0))); }},
    {"real", [](C c) -> Item { return c.real(0); }},
    {"range", [](C c) -> Item { return range(c.integer(0)); }},
    {"length", [](C c) -> Item { return static_cast<std::int64_t>(c.given[0].list().size()); }},
    {"elements", [](C c) -> Item { return elements(c); }},

    // Checks of settings
    {"text", [](C c) -> Item { return formatted(c); }},
    {"refuse", [](C c) -> Item { throw Refusal{formatted(c)}; }},
    {"at_least", [](C c) -> Item { refuse_if(expect_at_least(c.text(0), c.integer(1), c.integer(2))); return {}; }},
    {"check_layers", [](C c) -> Item { refuse_if(expect_layers(c.text(0), c.integer(1))); return {}; }},
    {"probability", [](C c) -> Item { refuse_if(expect_probability(c.text(0), c.real(1))); return {}; }},
    {"countable", [](C c) -> Item { refuse_if(expect_countable(c.text(0), c.shape(1))); return {}; }},
    {"check_optimizer", check_of_optimizer},
    {"on_gpu", [](C c) -> Item { return c.graph.pytorch().on_gpu(); }},
    {"before", [](C c) -> Item { return c.graph.pytorch().before(c.dim(0), c.dim(1)); }},
    {"has_half_weights", [](C c) -> Item { return c.step.options().weights != DType::kFloat32; }},

    // Parameters, inputs and tensors without an op
    {"parameter", [](C c) -> Item { return c.step.parameter(c.shape(0), c.flag(1)); }},
    {"freeze", [](C c) -> Item { c.step.freeze(c.flag(0)); return {}; }},
    {"input", [](C c) -> Item { return c.step.input(c.dtype(0), c.shape(1)); }},
    {"tensor", [](C c) -> Item { return c.graph.new_tensor(c.dtype(0), c.shape(1)); }},
    {"cpu_tensor", [](C c) -> Item { return c.graph.new_tensor(c.dtype(0), GraphBuilder::cpu(), c.shape(1)); }},
    {"like", [](C c) -> Item { return c.has(1) ? c.graph.new_tensor(c.graph.dtype(c.tensor(0)), c.shape(1)) : like(c.graph, c.tensor(0)); }},
    {"contiguous_view", [](C c) -> Item { return contiguous_view(c.graph, c.tensor(0), c.shape(1)); }},

    // New tensors
    {"ones", [](C c) -> Item { return ones(c.graph, DType::kFloat32, c.shape(0)); }},
    {"zeros", [](C c) -> Item { return zeros(c.graph, c.dtype(0), c.shape(1)); }},
    {"full", [](C c) -> Item { return full(c.graph, c.shape(0), c.real(1)); }},
    {"full_like", full_like},
    {"arange", [](C c) -> Item { return arange(c.graph, c.integer(0)); }},
    {"new_zeros", [](C c) -> Item { return new_zeros(c.graph, c.tensor(0), c.shape(1)); }},
    {"zeros_like", [](C c) -> Item { return c.has(1) ? zeros_like(c.graph, c.tensor(0), c.dtype(1)) : zeros_like(c.graph, c.tensor(0)); }},
    {"tensor_of_number", [](C c) -> Item { return tensor_of_number(c.tape, DType::kFloat32); }},

    // Ops without a gradient
    {"leaf", leaf},
    {"unrecorded", [](C c) -> Item { return emit(c.graph, c.text(0), c.arguments(1), c.tape.sequence()); }},
    {"record", recorded},
    {"clone", [](C c) -> Item { return clone(c.graph, c.tensor(0), c.tape.sequence()); }},
    {"copy", [](C c) -> Item { copy(c.graph, c.tensor(0), c.tensor(1)); return {}; }},
    {"fill", [](C c) -> Item { fill(c.graph, c.tensor(0), c.integer(1), c.tape.sequence()); return {}; }},
    {"same_dtype", [](C c) -> Item { to_same_dtype(c.graph, c.tensor(0), c.tape.sequence()); return {}; }},
    {"converted", [](C c) -> Item { return to_dtype_alone(c.graph, c.tensor(0), c.dtype(1), c.tape.sequence()); }},
    {"converted_in_steps", [](C c) -> Item { return to_dtype(c.graph, c.tensor(0), c.dtype(1), c.tape.sequence()); }},

    // Ops
    {"cast", [](C c) -> Item { return cast(c.tape, c.tensor(0), c.dtype(1)); }},
    {"contiguous", [](C c) -> Item { return contiguous(c.tape, c.tensor(0)); }},
    {"reshape", [](C c) -> Item { return reshape(c.tape, c.tensor(0), c.shape(1)); }},
    {"pieces_of_sizes", [](C c) -> Item { return split_with_sizes(c.graph, c.tensor(0), c.shape(1), c.dim(2), c.tape.sequence()); }},
    {"stacked", [](C c) -> Item { return stack(c.graph, c.tensors(0), c.dim(1), c.tape.sequence()); }},
    {"cat", [](C c) -> Item { return cat(c.tape, c.tensors(0), c.dim(1)); }},
    {"matmul", [](C c) -> Item { return matmul(c.tape, c.tensor(0), c.tensor(1)); }},
    {"product", [](C c) -> Item { return linear(c.tape, c.tensor(0), c.tensor(1), c.tensor(2)); }},
    {"normed", [](C c) -> Item { return layer_norm(c.tape, c.tensor(0), c.tensor(1), c.tensor(2), c.real(3)); }},
    {"softmax", [](C c) -> Item { return softmax(c.tape, c.tensor(0), c.dim(1), c.flag(2)); }},
    {"dropout", [](C c) -> Item { return dropout(c.tape, c.tensor(0), c.real(1)); }},
    {"embedding", [](C c) -> Item { return embedding_lookup(c.tape, c.tensor(0), c.tensor(1), c.has(2) ? c.integer(2) : -1); }},
    {"fused_attention", attention_in_one_op},

    {"begin", [](C c) -> Item { c.graph.begin_op(c.text(0), c.arguments(1), c.tape.sequence()); return {}; }},
    {"end", end_op},
    {"undefined", [](C c) -> Item { return c.graph.undefined(); }},
    {"requires_grad", [](C c) -> Item { return c.step.tape().requires_grad(c.tensor(0)); }},
    {"empty", [](C c) -> Item { return empty(c.graph, c.dtype(0), c.shape(1)); }},
    {"empty_like", [](C c) -> Item { return empty_like(c.graph, c.tensor(0), c.tape.sequence()); }},
    {"empty_like_in_order", [](C c) -> Item { return empty_like_in_order(c.graph, c.tensor(0)); }},
    {"empty_like_contiguous", [](C c) -> Item { return empty_like_contiguous(c.graph, c.tensor(0), c.tape.sequence()); }},
    {"zero_", [](C c) -> Item { zero(c.graph, c.tensor(0), c.tape.sequence()); return {}; }},
    {"detach", [](C c) -> Item { return detach(c.graph, c.tensor(0), c.tape.sequence()); }},
    {"to_host", to_host},
    {"flatten", [](C c) -> Item { return flatten(c.tape, c.tensor(0), c.dim(1)); }},
    {"log_softmax", [](C c) -> Item { return log_softmax(c.tape, c.tensor(0), c.dim(1), c.flag(2)); }},
    {"learning_parameters", [](C c) -> Item { return c.step.parameters(); }},

    // Images
    {"conv2d", convolution},
    {"windows_of_any_size", [](C c) -> Item { return windows_of_any_size(c.graph, c.tensor(0), c.shape(1), c.tape.sequence()); }},
    {"windows_of_any_size_backward", [](C c) -> Item { return windows_of_any_size_backward(c.graph, c.tensor(0), c.tensor(1)); }},
    {"index_put_accumulate", [](C c) -> Item { index_put_accumulate(c.graph, c.tensor(0), c.tensors(1), c.tensor(2)); return {}; }},
    {"allocate", [](C c) -> Item { allocate(c.graph, c.tensor(0), {.layout = false, .order = true}); return {}; }},
    {"as_strided", [](C c) -> Item { return as_strided(c.graph, c.tensor(0), c.shape(1), c.shape(2), c.has(3) ? c.integer(3) : 0, c.has(3)); }},
    {"divide", [](C c) -> Item { return divide(c.graph, c.tensor(0), c.integer(1), c.tape.sequence()); }},
    {"is_row_major", [](C c) -> Item { return c.graph.is_contiguous(c.tensor(0)); }},
    {"divide_in_place", [](C c) -> Item { divide_in_place(c.graph, c.tensor(0), c.integer(1)); return {}; }},

    // Recurrent layers
    {"parameter_part", parameter_part},
    {"python_zeros", python_zeros},
    {"view_at", [](C c) -> Item { const Shape shape = c.shape(1); return c.graph.new_view(c.tensor(0), shape, contiguous_strides(shape), c.integer(2)); }},
    {"mul_in_place", [](C c) -> Item { mul_in_place(c.tape, c.tensor(0), c.tensor(1)); return {}; }},
    {"hardtanh_", [](C c) -> Item { hardtanh_in_place(c.tape, c.tensor(0), c.dim(1), c.dim(2)); return {}; }},

    // Tables
    {"embedding_bag", [](C c) -> Item { return embedding_bag(c.tape, c.tensor(0), c.tensor(1), c.tensor(2), c.flag(3)); }},
    {"table_batched_lookup", lookup_in_batched_tables},
    {"index_matrix", [](C c) -> Item { return index_matrix(c.tape, c.tensor(0), c.tensor(1), c.tensor(2)); }},
    {"binary_cross_entropy", [](C c) -> Item { return binary_cross_entropy(c.tape, c.tensor(0), c.tensor(1)); }},

  };
}
// clang-format on

const ModuleFunctions& module_functions() {
  static const ModuleFunctions kFunctions = [] {
    ModuleFunctions all = step_functions();
    all.merge(job_functions());
    return all;
  }();
  return kFunctions;
}

}  // namespace perfmodel
