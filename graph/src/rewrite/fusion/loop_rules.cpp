#include "loop_rules.hpp"

#include <array>
#include <functional>

#include "base/contains.hpp"
#include "ops/catalogue.hpp"
#include "step/tensor_arguments.hpp"

namespace perfmodel {
namespace {

bool is_data(const Tensor& tensor) {
  return tensor.on_gpu() && tensor.storage_id != 0 && tensor.numel > 0;
}

// Views whose elements have the order of the viewed tensor.
bool keeps_order(std::string_view name) {
  static constexpr auto kViews = std::to_array<std::string_view>(
      {"view", "view_as", "_unsafe_view", "_reshape_alias", "unsqueeze", "squeeze", "detach",
       "alias", "flatten", "unflatten", "resolve_conj", "resolve_neg", "lift", "lift_fresh"});
  return contains(kViews, bare_op_name(name));
}

// Kinds whose ops Inductor calls as they are, if no op below is one.
bool is_library_kind(OpKind kind) {
  switch (kind) {
    case OpKind::kProduct:
    case OpKind::kConvolution:
    case OpKind::kAttention:
    case OpKind::kRecurrent:
    case OpKind::kSort:
    case OpKind::kEmbedding:
    case OpKind::kDetection:
    case OpKind::kForeach:
    case OpKind::kOptimizer:
    case OpKind::kTriton: return true;
    default: return false;
  }
}

bool holds_library_call(const ExecutionGraph& graph, std::int32_t node) {
  return std::ranges::any_of(graph.children(node), [&](std::int32_t child) {
    const Op* op = find_op(graph.name(child));
    return (op && is_library_kind(op->kind)) || holds_library_call(graph, child);
  });
}

bool is_fused_attention(std::string_view name) {
  return name.starts_with("aten::_scaled_dot_product_") && !name.ends_with("_math") &&
         name != "aten::_scaled_dot_product_attention";
}

// The ops of reduction kernels that Inductor writes itself: no scans, no selections.
bool is_loop_reduction(std::string_view name) {
  static constexpr auto kReductions = std::to_array<std::string_view>({"sum",
                                                                       "mean",
                                                                       "nansum",
                                                                       "nanmean",
                                                                       "prod",
                                                                       "max",
                                                                       "min",
                                                                       "amax",
                                                                       "amin",
                                                                       "argmax",
                                                                       "argmin",
                                                                       "norm",
                                                                       "linalg_vector_norm",
                                                                       "var",
                                                                       "std",
                                                                       "var_mean",
                                                                       "std_mean",
                                                                       "all",
                                                                       "any",
                                                                       "count_nonzero",
                                                                       "logsumexp"});
  return contains(kReductions, bare_op_name(name));
}

}  // namespace

std::string_view bare_op_name(std::string_view name) {
  const std::size_t colons = name.rfind(':');
  if (colons != std::string_view::npos) name.remove_prefix(colons + 1);
  if (name.ends_with('_') && !name.ends_with("__")) name.remove_suffix(1);
  return name;
}

bool dispatches_again(const ExecutionGraph& graph, std::int32_t node) {
  return std::ranges::any_of(graph.children(node), [&](std::int32_t child) {
    return graph.node(child).name == graph.node(node).name && !graph.outputs(child).empty();
  });
}

const Tensor* data_of(const Tensor* tensor) {
  return tensor && is_data(*tensor) ? tensor : nullptr;
}

std::vector<const Tensor*> data_of(const ExecutionGraph& graph,
                                   std::span<const Argument> arguments) {
  std::vector<const Tensor*> found;
  for_each_tensor(graph, arguments, [&](const Tensor& tensor) {
    if (is_data(tensor)) found.push_back(&tensor);
  });
  return found;
}

const Tensor* LoopRules::in(std::int32_t node, std::size_t at) const {
  return data_of(input_at(graph_, node, at));
}
const Tensor* LoopRules::out(std::int32_t node, std::size_t at) const {
  return data_of(output_at(graph_, node, at));
}

LoopOp LoopRules::loop(std::int32_t node, std::vector<LoopRead> reads, std::int64_t rows) const {
  return op_of(LoopKind::kPointwise, node, std::move(reads), rows, 1);
}

LoopOp LoopRules::op_of(LoopKind kind, std::int32_t node, std::vector<LoopRead> reads,
                        std::int64_t rows, std::int64_t columns) const {
  return {.kind = kind,
          .name = std::string(bare_op_name(graph_.name(node))),
          .node = node,
          .reads = std::move(reads),
          .rows = rows,
          .columns = columns};
}

void LoopRules::add_to(std::int32_t value, LoopOp op) {
  op.writes = {value};
  loops_.add(std::move(op));
}

void LoopRules::read_below(std::int32_t node) {
  for (const std::int32_t child : graph_.children(node)) read(child);
}

void LoopRules::read(std::int32_t node) {
  if (inside_ && !(*inside_)[node]) return;
  const std::string_view name = graph_.name(node);
  if (graph_.node(node).scope == Scope::kBackward) {
    const Op* function = find_op(name);  // a library runs kernels in its own
    return function && is_library_kind(function->kind) ? library(node) : read_below(node);
  }
  if (data_of(graph_, graph_.inputs(node)).empty() &&
      data_of(graph_, graph_.outputs(node)).empty()) {
    return graph_.children(node).empty() ? void() : read_below(node);
  }
  if (dispatches_again(graph_, node)) return read_below(node);
  if (read_by_name(node)) return;
  const Op* op = find_op(name);
  const auto outputs = data_of(graph_, graph_.outputs(node));
  if (is_fused_attention(name)) return library(node);
  if (op && is_library_kind(op->kind)) {
    const bool calls_others = name.starts_with("aten::") && holds_library_call(graph_, node);
    return calls_others ? read_below(node) : library(node);
  }
  if (op && op->kind == OpKind::kView) return view(node);
  if (op && op->kind == OpKind::kAllocation) {
    for (const Tensor* made : outputs) loops_.allocate(*made);
    return;
  }
  if (op && op->kind == OpKind::kQuery) return;
  if (op && op->kind == OpKind::kReduction && is_loop_reduction(name)) return reduce(node);
  if (op && (op->kind == OpKind::kPointwise || op->kind == OpKind::kConcat ||
             op->kind == OpKind::kRandom || op->kind == OpKind::kPooling)) {
    return pointwise(node);
  }
  if (op && op->kind == OpKind::kFill && name != "aten::zeros_like") return pointwise(node);
  if (!graph_.children(node).empty()) return read_below(node);
  if (op && (op->kind == OpKind::kComposite || op->kind == OpKind::kCast ||
             op->kind == OpKind::kCopy || op->kind == OpKind::kWrapper)) {
    return given_or_cast(node);
  }
  library(node);
}

bool LoopRules::read_by_name(std::int32_t node) {
  using Rule = void (LoopRules::*)(std::int32_t);
  struct NamedRule {
    std::string_view name;
    Rule rule;
  };
  static constexpr NamedRule kRules[] = {
      {"aten::native_dropout", &LoopRules::dropout},
      {"aten::native_layer_norm", &LoopRules::norm},
      {"aten::native_group_norm", &LoopRules::norm},
      {"aten::_fused_rms_norm", &LoopRules::norm},
      {"aten::native_layer_norm_backward", &LoopRules::norm_backward},
      {"aten::native_group_norm_backward", &LoopRules::norm_backward},
      {"aten::_fused_rms_norm_backward", &LoopRules::norm_backward},
      {"aten::native_batch_norm", &LoopRules::batch_norm},
      {"aten::cudnn_batch_norm", &LoopRules::batch_norm},
      {"aten::miopen_batch_norm", &LoopRules::batch_norm},
      {"aten::native_batch_norm_backward", &LoopRules::batch_norm_backward},
      {"aten::cudnn_batch_norm_backward", &LoopRules::batch_norm_backward},
      {"aten::miopen_batch_norm_backward", &LoopRules::batch_norm_backward},
      {"aten::_softmax", &LoopRules::softmax},
      {"aten::_log_softmax", &LoopRules::softmax},
      {"aten::_softmax_backward_data", &LoopRules::softmax_backward},
      {"aten::_log_softmax_backward_data", &LoopRules::softmax_backward},
      {"aten::nll_loss_forward", &LoopRules::nll_loss},
      {"aten::nll_loss2d_forward", &LoopRules::nll_loss},
      {"aten::nll_loss_backward", &LoopRules::nll_loss_backward},
      {"aten::nll_loss2d_backward", &LoopRules::nll_loss_backward},
      {"aten::convolution", &LoopRules::convolution},
      {"aten::embedding", &LoopRules::gather},
      {"aten::index", &LoopRules::gather},
      {"aten::index_select", &LoopRules::gather},
      {"aten::gather", &LoopRules::gather},
      {"aten::_unsafe_index", &LoopRules::gather},
      {"aten::embedding_dense_backward", &LoopRules::embedding_backward},
      {"aten::_embedding_bag_backward", &LoopRules::library},
      {"aten::_index_put_impl_", &LoopRules::scatter},
      {"aten::index_add_", &LoopRules::scatter},
      {"aten::scatter_add_", &LoopRules::scatter},
      {"aten::scatter_", &LoopRules::scatter},
  };
  const std::string_view name = graph_.name(node);
  for (const NamedRule& known : kRules) {
    if (known.name != name) continue;
    std::invoke(known.rule, this, node);
    return true;
  }
  const Tensor *first = in(node), *result = out(node);
  if (name == "aten::copy_") {
    const Tensor* from = input_at(graph_, node, 1);
    if (!result || !from || !is_data(*from)) return library(node), true;
    return copy(node, *from, *result), true;
  }
  if (name != "aten::clone" && name != "aten::_to_copy") return false;
  if (!first || !result) return library(node), true;
  if (first->storage_id == result->storage_id) return view(node), true;
  return copy(node, *first, *result), true;
}

void follow_view(LoopBuilder& loops, std::int32_t node) {
  const ExecutionGraph& graph = loops.source();
  const auto inputs = data_of(graph, graph.inputs(node));
  for (const Tensor* result : data_of(graph, graph.outputs(node))) {
    for (const Tensor* of : inputs) {
      if (of->storage_id != result->storage_id) continue;
      using Order = LoopBuilder::Order;
      const std::string_view name = bare_op_name(graph.name(node));
      const bool turns = name == "t" || name == "transpose" || name == "mT" || name == "numpy_T";
      const bool same = keeps_order(name) ||
                        (!turns && std::ranges::equal(graph.shape(*of), graph.shape(*result)));
      loops.read(*of);
      loops.view(*of, *result, same ? Order::kSame : turns ? Order::kTransposed : Order::kMoved);
      break;
    }
  }
}

void LoopRules::view(std::int32_t node) {
  follow_view(loops_, node);
  for (const std::int32_t child : graph_.children(node)) {  // ops inside may have their own tensors
    const Op* op = find_op(graph_.name(child));
    if (op && op->kind == OpKind::kView) view(child);
  }
}

// An op that calls nothing: it gives its input, unless the graph leaves the copy out.
void LoopRules::given_or_cast(std::int32_t node) {
  const Tensor *from = in(node), *to = out(node);
  if (from && to && from->storage_id != to->storage_id) return copy(node, *from, *to);
  view(node);
}

void LoopRules::copy(std::int32_t node, const Tensor& from, const Tensor& to) {
  LoopOp op = loop(node, {loops_.read(from)}, to.numel);
  if (from.dtype != to.dtype) op.name = "_to_copy";
  loops_.add(std::move(op), {&to});
}

void LoopRules::library(std::int32_t node) {
  LoopOp op = op_of(LoopKind::kLibrary, node, {}, 1, 1);
  for (const Tensor* read : data_of(graph_, graph_.inputs(node))) {
    op.reads.push_back(loops_.read(*read));
  }
  loops_.add(std::move(op), data_of(graph_, graph_.outputs(node)));
}

}  // namespace perfmodel
