#include <algorithm>

#include "builders/emit/convolution.hpp"
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

// `call` holds tensors and sizes as the CPU's op, `node`, sees them: it has 1-D convolutions as
// 2-D ones, for example. The rest is in the arguments of aten::_convolution, `outer`.
void write(Retargeter& rewrite, std::int32_t outer, std::int32_t node, ConvolutionCall call) {
  GraphBuilder& graph = rewrite.graph();
  const auto flag = [&](std::size_t at) { return rewrite.integer(outer, at) != 0; };
  const auto is_channels_last = [&](std::size_t at) {
    const Tensor* tensor = rewrite.input_entry(node, at);
    return tensor && tensor->is_channels_last;
  };
  call.output_padding = rewrite.input(outer, kConvOutputPadding);
  call.groups = rewrite.integer(outer, kConvGroups);
  call.benchmark = flag(kConvBenchmark);
  call.deterministic = flag(kConvDeterministic);
  call.allow_tf32 = flag(kConvAllowTf32);
  call.bias_shape.resize(std::max<std::size_t>(graph.shape(call.out).size(), 2), 1);
  call.bias_shape[1] = -1;
  using Device = ConvolutionFacts::Device;
  const ConvolutionBackend backend =
      convolution_backend({.device = rewrite.amd() ? Device::kAmd : Device::kNvidia,
                           .dtype = graph.dtype(call.x),
                           .input = graph.shape(call.x),
                           .weight = graph.shape(call.weight),
                           .stride = integers(call.stride),
                           .dilation = integers(call.dilation),
                           .groups = call.groups,
                           .transposed = flag(kConvTransposed),
                           .channels_last = is_channels_last(0) || is_channels_last(1)});
  call_convolution(graph, backend, call);
}

// _convolution: oneDNN or PyTorch's own loops on a CPU, the vendor's library on a GPU. What stands
// around the backend op (a 1-D convolution becomes a 2-D one) is the same.
void convolution(Retargeter& rewrite, std::int32_t node) {
  rewrite.copy(node);
  if (rewrite.child(node, "aten::mkldnn_convolution") >= 0) return;  // visited next
  bool own_loops = false;
  for (std::int32_t child : rewrite.children(node)) {
    const std::string_view name = rewrite.name(child);
    own_loops |= name.find("slow_conv") != std::string_view::npos ||
                 name.find("thnn_conv") != std::string_view::npos;
  }
  if (!own_loops) return;
  rewrite.leave_out_children(node);
  ConvolutionCall call{.x = rewrite.input_tensor(node, kConvInput),
                       .weight = rewrite.input_tensor(node, kConvWeight),
                       .out = rewrite.output_tensor(node, 0),
                       .stride = rewrite.input(node, kConvStride),
                       .padding = rewrite.input(node, kConvPadding),
                       .dilation = rewrite.input(node, kConvDilation)};
  if (rewrite.given(node, kConvBias)) call.bias = rewrite.input_tensor(node, kConvBias);
  write(rewrite, node, node, std::move(call));
}

// mkldnn_convolution(input, weight, bias, padding, stride, dilation, groups)
void mkldnn_convolution(Retargeter& rewrite, std::int32_t node) {
  const std::int32_t outer = rewrite.source().node(node).parent;
  if (outer < 0) return rewrite.copy(node);
  rewrite.leave_out(node);
  rewrite.continue_beside(node);
  ConvolutionCall call{.x = rewrite.input_tensor(node, 0),
                       .weight = rewrite.input_tensor(node, 1),
                       .out = rewrite.output_tensor(node, 0),
                       .stride = rewrite.input(node, 4),
                       .padding = rewrite.input(node, 3),
                       .dilation = rewrite.input(node, 5)};
  if (rewrite.given(node, 2)) call.bias = rewrite.input_tensor(node, 2);
  write(rewrite, outer, node, std::move(call));
}

// convolution_backward(gradient, input, weight, bias_sizes, stride, ..., groups, output_mask): the
// library makes the gradients of input and weight, that of the bias is a sum.
void convolution_backward(Retargeter& rewrite, std::int32_t node) {
  rewrite.copy(node);
  rewrite.leave_out_children(node);
  GraphBuilder& graph = rewrite.graph();
  const auto inputs = rewrite.source().inputs(node);
  if (inputs.size() < 11 || inputs[10].kind != Argument::Kind::kList) return;
  const auto mask = rewrite.source().elements(inputs[10]);
  const TensorRef gradient = rewrite.input_tensor(node, 0);
  TensorRef weight_gradient;
  if (mask.size() == 3 && mask[1].integer != 0) weight_gradient = rewrite.output_tensor(node, 1);
  begin_library_gradients(graph, gradient, weight_gradient);
  if (mask.size() == 3 && mask[2].integer != 0) {
    Shape axes = {0};
    for (std::size_t i = 2; i < graph.shape(gradient).size(); ++i) {
      axes.push_back(static_cast<std::int64_t>(i));
    }
    graph.leaf_op("aten::sum.dim_IntList", {gradient, axes, false, kNone},
                  {rewrite.output_tensor(node, 2)});
  }
}

}  // namespace

std::span<const NamedRetargetRule> convolution_retarget_rules() {
  static constexpr NamedRetargetRule kRules[] = {
      {"convolution", convolution},
      {"mkldnn_convolution", mkldnn_convolution},
      {"convolution_backward", convolution_backward},
  };
  return kRules;
}

}  // namespace perfmodel
