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

// record(backward function, inputs, outputs, text, saved): `text` is called with the gradient of
// each output and what was saved, and gives the gradients of the inputs. Returns the outputs.
Item recorded(const ModuleCall& c) {
  const bool single = c.given[2].get<TensorRef>() != nullptr;
  const auto outputs = single ? std::vector<TensorRef>{c.tensor(2)} : c.tensors(2);
  c.tape.record(c.text(0), c.tensors(1), outputs,
                [&run = c.run, text = c.text(3),
                 saved = c.given[4]](const std::vector<TensorRef>& gradients) {
                  return run.call_backward(text, gradients, saved.list());
                });
  return c.given[2];
}

// Closes the op that "begin" has opened, with a result or a list of them, which it returns.
Item end_op(const ModuleCall& c) {
  c.graph.end_op(c.given[0].get<TensorRef>() ? std::vector<Value>{c.tensor(0)} : c.arguments(0));
  return c.given[0];
}

// `x.to(dtype)` with the ops inside; of "like" the type of another tensor.
Item converted_in_steps(const ModuleCall& c) {
  const DType dtype = c.text(1) == "like" ? c.graph.dtype(c.tensor(2)) : c.dtype(1);
  return to_dtype(c.graph, c.tensor(0), dtype, c.tape.sequence());
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
  const Item kernel = c.has(6) ? c.given[6] : c.run.names().at("attention");
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

Item normed_by_batch(const ModuleCall& c) {
  const auto part = [&](std::string_view name) { return *c.member(1, name).get<TensorRef>(); };
  const BatchNorm norm = {.weight = part("weight"),
                          .bias = part("bias"),
                          .mean = part("mean"),
                          .variance = part("variance"),
                          .batches = part("batches"),
                          .epsilon = c.member(1, "epsilon").real()};
  return batch_norm(c.tape, c.tensor(0), norm);
}

Pool2d window(const ModuleCall& c) { return {c.integer(1), c.integer(2), c.integer(3)}; }

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

// (optimizer, learning rate, rows, dims, batch, indices, offsets) of FBGEMM's tables.
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
                             .learning_rate = c.real(1)};
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
  static const std::map<std::string_view, DType> kNames = {{"float32", DType::kFloat32},
                                                           {"int64", DType::kInt64},
                                                           {"int32", DType::kInt32},
                                                           {"uint8", DType::kUInt8},
                                                           {"bool", DType::kBool}};
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
const std::map<std::string_view, ModuleFunction>& module_functions() {
  using C = const ModuleCall&;
  static const std::map<std::string_view, ModuleFunction> kFunctions = {
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
    {"converted_in_steps", converted_in_steps},

    // Ops
    {"cast", [](C c) -> Item { return cast(c.tape, c.tensor(0), c.dtype(1)); }},
    {"contiguous", [](C c) -> Item { return contiguous(c.tape, c.tensor(0)); }},
    {"reshape", [](C c) -> Item { return reshape(c.tape, c.tensor(0), c.shape(1)); }},
    {"cat", [](C c) -> Item { return cat(c.tape, c.tensors(0), c.dim(1)); }},
    {"split_with_sizes", [](C c) -> Item { return split_with_sizes(c.tape, c.tensor(0), c.shape(1), c.dim(2)); }},
    {"split", [](C c) -> Item { return split(c.tape, c.tensor(0), c.integer(1), c.dim(2)); }},
    {"chunk", [](C c) -> Item { return chunk(c.tape, c.tensor(0), c.dim(1), c.dim(2)); }},
    {"matmul", [](C c) -> Item { return matmul(c.tape, c.tensor(0), c.tensor(1)); }},
    {"product", [](C c) -> Item { return linear(c.tape, c.tensor(0), c.tensor(1), c.tensor(2)); }},
    {"normed", [](C c) -> Item { return layer_norm(c.tape, c.tensor(0), c.tensor(1), c.tensor(2), c.real(3)); }},
    {"fused_rms_norm", [](C c) -> Item { return fused_rms_norm(c.tape, c.tensor(0), c.tensor(1), c.real(2)); }},
    {"softmax", [](C c) -> Item { return softmax(c.tape, c.tensor(0), c.dim(1), c.flag(2)); }},
    {"dropout", [](C c) -> Item { return dropout(c.tape, c.tensor(0), c.real(1)); }},
    {"embedding", [](C c) -> Item { return embedding_lookup(c.tape, c.tensor(0), c.tensor(1), c.has(2) ? c.integer(2) : -1); }},
    {"fused_attention", attention_in_one_op},
    {"cross_entropy", [](C c) -> Item { return cross_entropy(c.tape, c.tensor(0), c.tensor(1), c.has(2) ? c.real(2) : 0); }},

    {"begin", [](C c) -> Item { c.graph.begin_op(c.text(0), c.arguments(1), c.tape.sequence()); return {}; }},
    {"end", end_op},
    {"undefined", [](C c) -> Item { return c.graph.undefined(); }},
    {"requires_grad", [](C c) -> Item { return c.step.tape().requires_grad(c.tensor(0)); }},
    {"empty", [](C c) -> Item { return empty(c.graph, c.dtype(0), c.shape(1)); }},
    {"empty_of", [](C c) -> Item { return empty(c.graph, c.graph.dtype(c.tensor(0)), c.shape(1)); }},
    {"empty_like", [](C c) -> Item { return empty_like(c.graph, c.tensor(0), c.tape.sequence()); }},
    {"empty_like_contiguous", [](C c) -> Item { return empty_like_contiguous(c.graph, c.tensor(0), c.tape.sequence()); }},
    {"zero_", [](C c) -> Item { zero(c.graph, c.tensor(0), c.tape.sequence()); return {}; }},
    {"detach", [](C c) -> Item { return detach(c.graph, c.tensor(0), c.tape.sequence()); }},
    {"to_host", to_host},
    {"flatten", [](C c) -> Item { return flatten(c.tape, c.tensor(0), c.dim(1)); }},
    {"unbind", [](C c) -> Item { return unbind(c.tape, c.tensor(0), c.dim(1)); }},
    {"stack", [](C c) -> Item { return stack(c.tape, c.tensors(0), c.dim(1)); }},
    {"log_softmax", [](C c) -> Item { return log_softmax(c.tape, c.tensor(0), c.dim(1)); }},
    {"learning_parameters", [](C c) -> Item { return c.step.parameters(); }},

    // Images
    {"conv2d", convolution},
    {"batch_norm", normed_by_batch},
    {"max_pool2d", [](C c) -> Item { return max_pool2d(c.tape, c.tensor(0), window(c)); }},
    {"avg_pool2d", [](C c) -> Item { return avg_pool2d(c.tape, c.tensor(0), window(c)); }},
    {"adaptive_avg_pool2d", [](C c) -> Item { return adaptive_avg_pool2d(c.tape, c.tensor(0), c.shape(1)); }},
    {"upsample_nearest2d", [](C c) -> Item { return upsample_nearest2d(c.tape, c.tensor(0), c.shape(1)); }},
    {"index_put_accumulate", [](C c) -> Item { index_put_accumulate(c.graph, c.tensor(0), c.tensors(1), c.tensor(2)); return {}; }},
    {"allocate", [](C c) -> Item { allocate(c.graph, c.tensor(0), {.layout = false, .order = true}); return {}; }},
    {"as_strided", [](C c) -> Item { return as_strided(c.graph, c.tensor(0), c.shape(1), c.shape(2)); }},
    {"divide_in_place", [](C c) -> Item { divide_in_place(c.graph, c.tensor(0), c.integer(1)); return {}; }},
    {"non_maximum_suppression", [](C c) -> Item { return non_maximum_suppression(c.graph, c.tensor(0), c.tensor(1), c.real(2), c.integer(3)); }},

    // Recurrent layers
    {"parameter_part", parameter_part},
    {"python_zeros", python_zeros},
    {"view_at", [](C c) -> Item { const Shape shape = c.shape(1); return c.graph.new_view(c.tensor(0), shape, contiguous_strides(shape), c.integer(2)); }},
    {"unsafe_chunk", [](C c) -> Item { return unsafe_chunk(c.tape, c.tensor(0), c.dim(1), c.dim(2)); }},
    {"mul_in_place", [](C c) -> Item { mul_in_place(c.tape, c.tensor(0), c.tensor(1)); return {}; }},
    {"hardtanh_", [](C c) -> Item { hardtanh_in_place(c.tape, c.tensor(0), c.dim(1), c.dim(2)); return {}; }},
    {"ctc_loss", [](C c) -> Item { return ctc_loss(c.tape, c.tensor(0), c.tensor(1), c.tensor(2), c.tensor(3)); }},

    // Tables
    {"embedding_bag", [](C c) -> Item { return embedding_bag(c.tape, c.tensor(0), c.tensor(1), c.tensor(2), c.flag(3)); }},
    {"table_batched_lookup", lookup_in_batched_tables},
    {"index_matrix", [](C c) -> Item { return index_matrix(c.tape, c.tensor(0), c.tensor(1), c.tensor(2)); }},
    {"binary_cross_entropy", [](C c) -> Item { return binary_cross_entropy(c.tape, c.tensor(0), c.tensor(1)); }},
    {"binary_cross_entropy_with_logits", [](C c) -> Item { return binary_cross_entropy_with_logits(c.tape, c.tensor(0), c.tensor(1)); }},

    // Experts
    {"grouped_linear", [](C c) -> Item { return grouped_linear(c.tape, c.tensor(0), c.tensor(1), c.tensor(2)); }},
    {"top_k_of_last", [](C c) -> Item { return top_k_of_last(c.tape, c.tensor(0), c.integer(1)); }},
    {"sorted_places", [](C c) -> Item { return sorted_places(c.tape, c.tensor(0)); }},
    {"add_rows", [](C c) -> Item { return add_rows(c.tape, c.tensor(0), c.tensor(1), c.tensor(2)); }},
    {"one_hot", [](C c) -> Item { return one_hot(c.tape, c.tensor(0), c.integer(1)); }},
    {"max_of_last", [](C c) -> Item { return max_of_last(c.tape, c.tensor(0)); }},
    {"pick_rows_of_mask", [](C c) -> Item { return pick_rows_of_mask(c.tape, c.tensor(0), c.tensor(1), c.integer(2)); }},
    {"put_rows", [](C c) -> Item { put_rows(c.tape, c.tensor(0), c.tensor(1), c.tensor(2)); return {}; }},
  };
  return kFunctions;
}
// clang-format on

}  // namespace perfmodel
