#include "builders/emit/memory.hpp"
#include "builders/emit/update.hpp"
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

/// A convolution as one backend op on a CPU sees it (the 2-D form of a 1-D one, for example).
struct Convolution {
  TensorRef input, weight, bias, out;  // bias may not exist
  Value stride, padding, dilation;
};

// One kernel of PyTorch's own, unless in half precision or channels-last.
bool is_depthwise(Retargeter& rewrite, std::int32_t node, const Convolution& conv) {
  const GraphBuilder& graph = rewrite.graph();
  const std::int64_t groups = rewrite.integer(node, kConvGroups);
  return rewrite.integer(node, kConvTransposed) == 0 && groups > 1 &&
         graph.shape(conv.input).size() == 4 && graph.shape(conv.input)[1] == groups &&
         graph.shape(conv.weight)[0] % groups == 0;
}

void cudnn(Retargeter& rewrite, std::int32_t node, const Convolution& conv) {
  GraphBuilder& graph = rewrite.graph();
  const auto flag = [&](std::size_t at) { return Value(rewrite.integer(node, at) != 0); };
  const Value groups = rewrite.integer(node, kConvGroups), tf32 = flag(kConvAllowTf32);
  if (is_depthwise(rewrite, node, conv)) {
    const Shape& kernel = graph.shape(conv.weight);
    const Value bias = conv.bias.exists() ? Value(conv.bias) : Value(graph.undefined());
    graph.begin_op("aten::_conv_depthwise2d",
                   {conv.input, conv.weight, Shape(kernel.begin() + 2, kernel.end()), bias,
                    conv.stride, conv.padding, conv.dilation});
    return graph.end_op({conv.out});
  }
  if (rewrite.integer(node, kConvTransposed) != 0) {
    graph.leaf_op(
        "aten::cudnn_convolution_transpose",
        {conv.input, conv.weight, conv.padding, rewrite.input(node, kConvOutputPadding),
         conv.stride, conv.dilation, groups, flag(kConvBenchmark), flag(kConvDeterministic), tf32},
        {conv.out});
  } else {
    graph.leaf_op("aten::cudnn_convolution",
                  {conv.input, conv.weight, conv.padding, conv.stride, conv.dilation, groups,
                   flag(kConvBenchmark), flag(kConvDeterministic), tf32},
                  {conv.out});
  }
  if (!conv.bias.exists()) return;
  Shape shape(graph.shape(conv.out).size(), 1);
  shape[1] = -1;
  const TensorRef bias = reshape(graph, conv.bias, shape);
  add_(graph, conv.out, bias);
}

// MIOpen takes the bias along.
void miopen(Retargeter& rewrite, std::int32_t node, const Convolution& conv) {
  GraphBuilder& graph = rewrite.graph();
  const bool transposed = rewrite.integer(node, kConvTransposed) != 0;
  std::vector<Value> inputs = {conv.input, conv.weight,
                               conv.bias.exists() ? Value(conv.bias) : Value(graph.undefined()),
                               conv.padding};
  if (transposed) inputs.push_back(rewrite.input(node, kConvOutputPadding));
  const Value groups = rewrite.integer(node, kConvGroups);
  inputs.insert(inputs.end(), {conv.stride, conv.dilation, groups,
                               Value(rewrite.integer(node, kConvBenchmark) != 0),
                               Value(rewrite.integer(node, kConvDeterministic) != 0)});
  graph.leaf_op(transposed                          ? "aten::miopen_convolution_transpose"
                : is_depthwise(rewrite, node, conv) ? "aten::miopen_depthwise_convolution"
                                                    : "aten::miopen_convolution",
                std::move(inputs), {conv.out});
}

void write(Retargeter& rewrite, std::int32_t node, const Convolution& conv) {
  rewrite.amd() ? miopen(rewrite, node, conv) : cudnn(rewrite, node, conv);
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
  Convolution conv{.input = rewrite.input_tensor(node, kConvInput),
                   .weight = rewrite.input_tensor(node, kConvWeight),
                   .bias = {},
                   .out = rewrite.output_tensor(node, 0),
                   .stride = rewrite.input(node, kConvStride),
                   .padding = rewrite.input(node, kConvPadding),
                   .dilation = rewrite.input(node, kConvDilation)};
  if (rewrite.given(node, kConvBias)) conv.bias = rewrite.input_tensor(node, kConvBias);
  write(rewrite, node, conv);
}

// mkldnn_convolution(input, weight, bias, padding, stride, dilation, groups)
void mkldnn_convolution(Retargeter& rewrite, std::int32_t node) {
  const std::int32_t outer = rewrite.node(node).parent;
  if (outer < 0) return rewrite.copy(node);
  rewrite.leave_out(node);
  rewrite.continue_beside(node);
  Convolution conv{.input = rewrite.input_tensor(node, 0),
                   .weight = rewrite.input_tensor(node, 1),
                   .bias = {},
                   .out = rewrite.output_tensor(node, 0),
                   .stride = rewrite.input(node, 4),
                   .padding = rewrite.input(node, 3),
                   .dilation = rewrite.input(node, 5)};
  if (rewrite.given(node, 2)) conv.bias = rewrite.input_tensor(node, 2);
  write(rewrite, outer, conv);
}

// convolution_backward(gradient, input, weight, bias_sizes, stride, ..., groups, output_mask): the
// library makes the gradients of input and weight, that of the bias is a sum.
void convolution_backward(Retargeter& rewrite, std::int32_t node) {
  rewrite.copy(node);
  rewrite.leave_out_children(node);
  GraphBuilder& graph = rewrite.graph();
  const auto inputs = rewrite.source().inputs(rewrite.node(node));
  if (inputs.size() < 11 || inputs[10].kind != Argument::Kind::kList) return;
  const auto mask = rewrite.source().elements(inputs[10]);
  const TensorRef gradient = rewrite.input_tensor(node, 0);
  if (!graph.pytorch().before(2, 0)) {  // to the memory format that the library wants
    to_contiguous(graph, gradient);
  }
  if (mask.size() == 3 && mask[1].integer != 0) {
    allocate(graph, rewrite.output_tensor(node, 1), {.order = true});
  }
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
