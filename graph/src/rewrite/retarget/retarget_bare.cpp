// Ops that a capture holds without the ops that their kernels call on a GPU.

#include <algorithm>
#include <array>

#include "builders/emit/activation.hpp"
#include "builders/emit/graph_reduction.hpp"
#include "builders/emit/in_place.hpp"
#include "builders/emit/index.hpp"
#include "builders/emit/loss.hpp"
#include "builders/emit/memory.hpp"
#include "builders/emit/norm.hpp"
#include "builders/emit/pointwise.hpp"
#include "builders/emit/pooling.hpp"
#include "builders/emit/views.hpp"
#include "ops/catalogue.hpp"
#include "retarget_rules.hpp"

namespace perfmodel {
namespace {

using Kind = Argument::Kind;

Shape integers(const CpuOp& op, std::size_t at) {
  Shape made;
  if (at >= op.inputs().size() || op.inputs()[at].kind != Kind::kList) return made;
  for (const Argument& element : op.source().elements(op.inputs()[at])) {
    made.push_back(element.integer);
  }
  return made;
}

Number number(const CpuOp& op, std::size_t at) {
  const bool integer = at < op.inputs().size() && op.inputs()[at].kind == Kind::kInt;
  return integer ? Number(static_cast<int>(op.integer(at))) : Number(op.real(at));
}

// Axes and whether they stay: op(x, [power,] axes, keep, ...).
void fill_reduction(const CpuOp& op) {
  const auto inputs = op.inputs();
  for (std::size_t at = 1; at + 1 < std::min<std::size_t>(inputs.size(), 4); ++at) {
    const bool axes = inputs[at].kind == Kind::kList || inputs[at].kind == Kind::kNone;
    if (!axes || inputs[at + 1].kind != Kind::kBool || !op.input(0) || !op.output(0)) continue;
    return op.refill([op, at](GraphBuilder& graph) {
      const auto from = op.source().shape(*op.input(0));
      begin_reduction(graph, op.result(0), {from.begin(), from.end()}, integers(op, at),
                      op.integer(at + 1) != 0);
    });
  }
}

// The calls are in the row of the op.
void fill_unary(const CpuOp& op) {
  op.replace([op](GraphBuilder& graph) { emit(graph, op.name(), {op.tensor(0)}, op.sequence()); });
}

// Autograd's copy of the input comes first.
void fill_hardtanh_in_place(const CpuOp& op) {
  const std::int32_t copied = op.child("aten::clone");
  const auto write = [op] {
    op.edit().copy().close_to(op.node());
    clamp_as_hardtanh(op.edit().builder(), op.tensor(0), op.argument(1), op.argument(2));
  };
  copied < 0 ? op.edit().follow(op.node(), write) : op.edit().follow_tree(copied, write);
}

void fill_pow(const CpuOp& op) {
  if (op.inputs().size() < 2 || op.input(1) || !op.input(0)) return;
  op.replace([op](GraphBuilder& graph) { pow(graph, op.tensor(0), number(op, 1), op.sequence()); });
}

void fill_reversed_difference(const CpuOp& op) {
  if (op.inputs().size() < 2 || op.input(1) || !op.input(0)) return;
  op.replace([op](GraphBuilder& graph) {
    subtract_from(graph, number(op, 1), op.tensor(0), op.sequence());
  });
}

// The output before it has its size.
void fill_where(const CpuOp& op) {
  op.refill([op](GraphBuilder& graph) { empty(graph, graph.dtype(op.result(0)), {0}); });
}

// A result that the kernel adds to.
void fill_scattered(const CpuOp& op) {
  op.refill([op](GraphBuilder& graph) { zero(graph, op.result(0)); });
}

void fill_binary_cross_entropy(const CpuOp& op) {
  if (op.given(2) || op.integer(3) != kReduceMean) return;
  op.replace([op](GraphBuilder& graph) {
    binary_cross_entropy(graph, op.tensor(0), op.tensor(1), op.sequence());
  });
}

TensorRef given(const CpuOp& op, std::size_t at) {
  return op.given(at) ? op.tensor(at) : TensorRef{};
}

// native_layer_norm(x, width, weight, bias, epsilon)
void fill_layer_norm(const CpuOp& op) {
  if (!op.output(2)) return;
  op.replace([op](GraphBuilder& graph) {
    LayerNorm norm{.x = op.tensor(0),
                   .weight = given(op, 2),
                   .bias = given(op, 3),
                   .width = integers(op, 1),
                   .epsilon = op.real(4)};
    native_layer_norm(graph, norm, op.sequence());
  });
}

std::array<bool, 3> wanted_gradients(const CpuOp& op, std::size_t at) {
  const Shape mask = integers(op, at);
  std::array<bool, 3> wanted = {};
  for (std::size_t i = 0; i < std::min(mask.size(), wanted.size()); ++i) wanted[i] = mask[i] != 0;
  return wanted;
}

// native_layer_norm_backward(gradient, x, width, mean, rstd, weight, bias, mask)
void fill_layer_norm_gradient(const CpuOp& op) {
  op.replace([op](GraphBuilder& graph) {
    const LayerNorm norm{.x = op.tensor(1),
                         .weight = given(op, 5),
                         .bias = given(op, 6),
                         .width = integers(op, 2),
                         .mean = op.tensor(3),
                         .rstd = op.tensor(4)};
    native_layer_norm_backward(graph, norm, op.tensor(0), wanted_gradients(op, 7));
  });
}

// Result, means and deviations of groups.
void fill_group_norm(const CpuOp& op) {
  op.refill([op](GraphBuilder& graph) {
    for (std::size_t i = 0; i < 3 && op.output(i); ++i) allocate(graph, op.result(i));
  });
}

// native_group_norm_backward(gradient, x, mean, rstd, weight, N, C, HxW, groups, mask): the
// gradients, and two sums per sample and channel.
void fill_group_norm_gradient(const CpuOp& op) {
  op.refill([op](GraphBuilder& graph) {
    const std::array<bool, 3> wanted = wanted_gradients(op, 9);
    for (std::size_t i = 0; i < 3; ++i) {
      if (wanted[i] && op.output(i)) allocate(graph, op.result(i));
    }
    for (int i = 0; i < 2; ++i) {
      empty(graph, graph.dtype(op.tensor(1)), {op.integer(5), op.integer(6)});
    }
  });
}

void fill_windows_of_any_size(const CpuOp& op) {
  op.replace([op](GraphBuilder& graph) {
    windows_of_any_size(graph, op.tensor(0), integers(op, 1), op.sequence());
  });
}

void fill_windows_gradient(const CpuOp& op) {
  op.replace([op](GraphBuilder& graph) {
    windows_of_any_size_backward(graph, op.tensor(0), op.tensor(1));
  });
}

// index(x, indices); one list of picks per indexed axis.
void fill_index(const CpuOp& op) {
  const auto inputs = op.inputs();
  if (inputs.size() < 2 || inputs[1].kind != Kind::kList || !op.input(0)) return;
  const auto indices = op.source().elements(inputs[1]);
  const auto tensor_of = [op](const Argument& index) -> const Tensor* {
    const bool is_tensor = index.kind == Kind::kTensor;
    const Tensor* tensor = is_tensor ? &op.source().tensors[index.index] : nullptr;
    return tensor && tensor->storage_id != 0 ? tensor : nullptr;
  };
  const bool lists = std::ranges::all_of(indices, [&](const Argument& index) {
    const Tensor* tensor = tensor_of(index);
    return !tensor || (tensor->rank == 1 && tensor->dtype == DType::kInt64);
  });
  if (!lists || indices.size() > op.input(0)->rank) return;
  op.refill([op, indices, tensor_of](GraphBuilder& graph) {
    std::vector<TensorRef> picks;
    for (const Argument& index : indices) {
      picks.push_back(tensor_of(index) ? op.tensor(index) : TensorRef{});
    }
    spread_over_picks(graph, op.tensor(0), picks);
  });
}

// mse_loss(x, target, reduction): all differences, then their mean.
void fill_squared_error(const CpuOp& op) {
  if (op.integer(2) != kReduceMean) return;
  op.refill([op](GraphBuilder& graph) {
    const TensorRef x = op.tensor(0), loss = op.result(0);
    resize_to(graph, loss, loss);
    const TensorRef each = empty(graph, graph.dtype(x), graph.shape(x));
    graph.begin_op("aten::mean.out", {each, Shape{}, false, kNone, loss});
    begin_reduction(graph, loss, graph.shape(each), {}, false);
    graph.end_op({loss});
  });
}

// mse_loss_backward(gradient, x, target, reduction): into zeros.
void fill_squared_error_gradient(const CpuOp& op) {
  op.refill([op](GraphBuilder& graph) {
    const TensorRef made = op.result(0);
    graph.begin_op("aten::zeros_like", {op.tensor(1), kNone, kNone, kNone, kNone, 0});
    allocate_like(graph, made, op.tensor(1));
    zero(graph, made);
    graph.end_op({made});
    graph.leaf_op("aten::mse_loss_backward.grad_input",
                  {op.tensor(0), op.tensor(1), op.tensor(2), op.argument(3), made}, {made});
  });
}

const BareRules& bare_rules() {
  static const BareRules kRules = {
      {"aten::relu", fill_unary},
      {"aten::relu_", fill_unary},
      {"aten::hardtanh_", fill_hardtanh_in_place},
      {"aten::pow", fill_pow},
      {"aten::rsub", fill_reversed_difference},
      {"aten::where", fill_where},
      {"aten::convolution", fill_convolution},
      {"aten::index", fill_index},
      {"aten::native_layer_norm", fill_layer_norm},
      {"aten::native_layer_norm_backward", fill_layer_norm_gradient},
      {"aten::native_group_norm", fill_group_norm},
      {"aten::native_group_norm_backward", fill_group_norm_gradient},
      {"aten::nll_loss_backward", fill_scattered},
      {"aten::nll_loss2d_backward", fill_scattered},
      {"aten::max_pool2d_with_indices_backward", fill_scattered},
      {"aten::_adaptive_avg_pool2d", fill_windows_of_any_size},
      {"aten::_adaptive_avg_pool2d_backward", fill_windows_gradient},
      {"aten::binary_cross_entropy", fill_binary_cross_entropy},
      {"aten::mse_loss", fill_squared_error},
      {"aten::mse_loss_backward", fill_squared_error_gradient},
  };
  return kRules;
}

}  // namespace

RetargetRule find_bare_rule(const CpuOp& op) {
  for (const auto* rules : {&bare_rules(), &bare_table_rules(), &bare_factory_rules()}) {
    const auto rule = rules->find(op.name());
    if (rule != rules->end()) return rule->second;
  }
  const Op* row = find_op(op.name());
  return row && row->kind == OpKind::kReduction ? fill_reduction : nullptr;
}

}  // namespace perfmodel
