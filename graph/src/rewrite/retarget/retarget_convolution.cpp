#include <algorithm>

#include "builders/emit/convolution.hpp"
#include "builders/emit/graph_reduction.hpp"
#include "builders/emit/views.hpp"
#include "retarget_rules.hpp"

namespace perfmodel {
namespace {

// Positions in the arguments of aten::_convolution.
enum : std::size_t {
  kConvInput,
  kConvWeight,
  kConvBias,
  kConvStride,
  kConvPadding,
  kConvDilation,
  kConvTransposed,
  kConvOutputPadding,
  kConvGroups,
  kConvBenchmark,
  kConvDeterministic,
  kConvCudnnEnabled,
  kConvAllowTf32
};

Shape integers(const Value& list) {
  Shape made;
  const auto* elements = std::get_if<Value::List>(&list.variant());
  if (!elements) return made;
  for (const Value& element : *elements) {
    const auto* integer = std::get_if<std::int64_t>(&element.variant());
    made.push_back(integer ? *integer : 0);
  }
  return made;
}

// The list of a 1-D convolution for two axes: its own, and one of a single element before it.
Value two_axes(const Value& list, std::int64_t first) {
  Shape axes = integers(list);
  if (axes.size() == 1) axes.insert(axes.begin(), first);
  return axes;
}

// A 1-D convolution is a 2-D one of images of one row.
ConvolutionCall with_rows(GraphBuilder& graph, ConvolutionCall call) {
  call.x = unsqueeze(graph, call.x, 2);
  call.weight = unsqueeze(graph, call.weight, 2);
  Shape shape = graph.shape(call.out);
  shape.insert(shape.begin() + 2, 1);
  call.out = graph.new_view(call.out, shape, contiguous_strides(shape));
  call.stride = two_axes(call.stride, 1);
  call.padding = two_axes(call.padding, 0);
  call.dilation = two_axes(call.dilation, 1);
  call.output_padding = two_axes(call.output_padding, 0);
  return call;
}

void drop_rows(GraphBuilder& graph, TensorRef x, TensorRef made) {
  graph.begin_op("aten::squeeze.dim", {x, 2});
  graph.leaf_op("aten::as_strided", {x, graph.shape(made), graph.strides(made), kNone}, {made});
  graph.end_op({made});
}

// `op` has tensors and sizes as the CPU sees them: 1-D convolutions as 2-D ones, for example. The
// rest is in the arguments of aten::_convolution, `outer`, or of aten::convolution, which takes the
// switches as PyTorch has them at first.
void write_convolution(const CpuOp& op, const CpuOp& outer, std::size_t stride,
                       std::size_t padding) {
  GraphBuilder& graph = op.edit().builder();
  const auto flag = [&](std::size_t at) { return outer.integer(at) != 0; };
  const auto is_channels_last = [&](std::size_t at) {
    const Tensor* tensor = op.input(at);
    return tensor && (tensor->is_channels_last ||
                      lie_channels_last(op.source().shape(*tensor), graph.strides(op.tensor(at))));
  };
  ConvolutionCall call{.x = op.tensor(kConvInput),
                       .weight = op.tensor(kConvWeight),
                       .out = op.result(0),
                       .stride = op.argument(stride),
                       .padding = op.argument(padding),
                       .dilation = op.argument(kConvDilation)};
  if (op.given(kConvBias)) call.bias = op.tensor(kConvBias);
  call.output_padding = outer.argument(kConvOutputPadding);
  call.groups = outer.integer(kConvGroups);
  call.benchmark = flag(kConvBenchmark);
  call.deterministic = flag(kConvDeterministic);
  call.allow_tf32 = outer.inputs().size() <= kConvAllowTf32 || flag(kConvAllowTf32);
  const TensorRef result = call.out;
  const bool of_rows = graph.shape(result).size() == 3;
  if (of_rows) call = with_rows(graph, std::move(call));
  call.bias_shape.resize(std::max<std::size_t>(graph.shape(call.out).size(), 2), 1);
  call.bias_shape[1] = -1;
  using Device = ConvolutionFacts::Device;
  const ConvolutionBackend backend =
      convolution_backend({.device = op.amd() ? Device::kAmd : Device::kNvidia,
                           .dtype = graph.dtype(call.x),
                           .input = graph.shape(call.x),
                           .weight = graph.shape(call.weight),
                           .stride = integers(call.stride),
                           .dilation = integers(call.dilation),
                           .groups = call.groups,
                           .transposed = flag(kConvTransposed),
                           .channels_last = is_channels_last(0) || is_channels_last(1)});
  call_convolution(graph, backend, call);
  if (of_rows) drop_rows(graph, call.out, result);
}

}  // namespace

// _convolution: oneDNN or PyTorch's own loops on a CPU, nothing in a capture, the vendor's library
// on a GPU. Ops around the backend op stay (a 1-D convolution becomes a 2-D one).
void retarget_convolution(const CpuOp& op) {
  if (op.child("aten::mkldnn_convolution") >= 0) return;  // visited next
  const bool own_loops = std::ranges::any_of(op.children(), [&](std::int32_t child) {
    const std::string_view name = op.at(child).name();
    return name.find("slow_conv") != name.npos || name.find("thnn_conv") != name.npos;
  });
  if (!own_loops && !op.children().empty()) return;
  op.refill([op](GraphBuilder&) { write_convolution(op, op, kConvStride, kConvPadding); });
}

// convolution, of which a capture holds nothing inside.
void fill_convolution(const CpuOp& op) {
  op.refill([op](GraphBuilder& graph) {
    std::vector<Value> inputs;
    for (std::size_t i = kConvInput; i <= kConvGroups; ++i) inputs.push_back(op.argument(i));
    inputs.insert(inputs.end(), {false, false, true, true});
    if (!op.given(kConvBias)) inputs[kConvBias] = graph.undefined();
    graph.begin_op("aten::_convolution", std::move(inputs));
    write_convolution(op, op, kConvStride, kConvPadding);
    graph.end_op({op.result(0)});
  });
}

// mkldnn_convolution(input, weight, bias, padding, stride, dilation, groups)
void retarget_mkldnn_convolution(const CpuOp& op) {
  if (op.parent() < 0) return;
  op.replace([op](GraphBuilder&) { write_convolution(op, op.at(op.parent()), 4, 3); });
}

// convolution_backward(gradient, input, weight, bias_sizes, stride, ..., groups, output_mask): the
// library makes the gradients of input and weight; the bias's gradient is a sum.
void retarget_convolution_gradient(const CpuOp& op) {
  op.refill([op](GraphBuilder& graph) {
    const auto inputs = op.inputs();
    if (inputs.size() < 11 || inputs[10].kind != Argument::Kind::kList) return;
    const auto mask = op.source().elements(inputs[10]);
    const auto asked = [&](std::size_t i) { return mask.size() == 3 && mask[i].integer != 0; };
    const TensorRef gradient = op.tensor(0);
    begin_library_gradients(graph, gradient, asked(1) ? op.result(1) : TensorRef{});
    if (!asked(2)) return;
    Shape axes = {0};
    for (std::size_t i = 2; i < graph.shape(gradient).size(); ++i) {
      axes.push_back(static_cast<std::int64_t>(i));
    }
    graph.begin_op("aten::sum.dim_IntList", {gradient, axes, false, kNone});
    begin_reduction(graph, op.result(2), graph.shape(gradient), axes, false);
    graph.end_op({op.result(2)});
  });
}

}  // namespace perfmodel
