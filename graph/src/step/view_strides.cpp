#include "view_strides.hpp"

#include <algorithm>
#include <functional>
#include <numeric>

#include "ops/catalogue.hpp"
#include "tensor_arguments.hpp"

namespace perfmodel {
namespace {

using AxisStrides = std::vector<std::int64_t>;

AxisStrides dense_in_order_of(const AxisStrides& strides, std::span<const std::int64_t> shape) {
  std::vector<std::size_t> axes(shape.size());
  std::iota(axes.begin(), axes.end(), std::size_t{0});
  std::ranges::stable_sort(axes, std::greater(), [&](std::size_t axis) { return strides[axis]; });
  AxisStrides dense(shape.size());
  std::int64_t next = 1;
  for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
    dense[*axis] = next;
    next *= std::max<std::int64_t>(shape[*axis], 1);
  }
  return dense;
}

bool keeps_axis_order(const ExecutionGraph& graph, std::int32_t node) {
  const Op* op = find_op(graph.name(node));
  return op && (op->kind == OpKind::kPointwise || is_conversion(op->name));
}

}  // namespace

FactsOfValues<AxisStrides> strides_of_views(const StepView& step) {
  const ExecutionGraph& graph = step.graph();
  FactsOfValues<AxisStrides> strides(step.tensors());
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(graph.nodes.size()); ++i) {
    const Tensor* view = output_at(graph, i);
    const auto inputs = graph.inputs(i);
    if (!gives_strides(graph.name(i)) || !view || inputs.size() < 3) continue;
    AxisStrides& known = strides[*view];
    known.clear();
    for (const Argument& stride : graph.elements(inputs[2])) known.push_back(stride.integer);
  }
  return strides;
}

FactsOfValues<AxisStrides> strides_in_memory(const StepView& step) {
  const ExecutionGraph& graph = step.graph();
  FactsOfValues<AxisStrides> strides = strides_of_views(step);
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(graph.nodes.size()); ++i) {
    const Tensor *from = input_at(graph, i, 0), *made = output_at(graph, i);
    if (!from || !made || strides[*from].empty() || !strides[*made].empty()) continue;
    const bool repeats = std::ranges::find(strides[*from], 0) != strides[*from].end();
    if (repeats || !keeps_axis_order(graph, i) ||
        !std::ranges::equal(graph.shape(*from), graph.shape(*made))) {
      continue;
    }
    strides[*made] = dense_in_order_of(strides[*from], graph.shape(*from));
  }
  return strides;
}

}  // namespace perfmodel
