#include <algorithm>
#include <optional>

#include "families.hpp"

/// Convolutions. Counted as direct convolution, whatever algorithm the library takes:
/// 2 n k p q (c / groups) r s FLOP for each of forward, input gradient and weight gradient; input,
/// filter and output move once. 1-D has h = 1 and r = 1; a 3-D depth counts into the batch.
namespace perfmodel::ops {
namespace {

/// torch.backends.cudnn.allow_tf32 is on by default, unlike for matrix products.
constexpr bool kDefaultAllowTf32 = true;

struct Geometry {
  ConvolutionShape shape;
  double input_bytes = 0, weight_bytes = 0, output_bytes = 0;
  DType dtype = DType::kUnknown;
};

/// input [n, c, (d,) h, w], weight [k, c / groups, (d,) r, s], output [n, k, (d,) p, q].
/// A transposed convolution is the input gradient of the one with input and output exchanged.
std::optional<Geometry> geometry(const OpView& op, const Tensor* input, const Tensor* weight,
                                 const Tensor* output, std::int64_t stride, std::int64_t groups,
                                 bool transposed) {
  if (!input || !weight || !output || input->rank < 3 || weight->rank != input->rank ||
      output->rank != input->rank || groups <= 0) {
    return std::nullopt;
  }
  if (transposed) std::swap(input, output);
  const bool is_1d = input->rank == 3;
  Geometry g;
  g.dtype = input->dtype;
  g.input_bytes = bytes(*input);
  g.weight_bytes = bytes(*weight);
  g.output_bytes = bytes(*output);
  g.shape = {.pass = transposed ? ConvolutionShape::Pass::kInputGradient
                                : ConvolutionShape::Pass::kForward,
             .n = dim(op, *input, 0),
             .c = dim(op, *input, 1),
             .h = is_1d ? 1 : dim(op, *input, -2),
             .w = dim(op, *input, -1),
             .k = dim(op, *output, 1),
             .r = is_1d ? 1 : dim(op, *weight, -2),
             .s = dim(op, *weight, -1),
             .p = is_1d ? 1 : dim(op, *output, -2),
             .q = dim(op, *output, -1),
             .groups = groups,
             .stride = stride,
             .channels_last = input->is_channels_last || output->is_channels_last};
  if (input->rank == 5) g.shape.n *= dim(op, *output, 2);  // depth of the output
  return g;
}

std::int64_t filter_depth(const OpView& op, const Tensor& weight) {
  return weight.rank == 5 ? dim(op, weight, 2) : 1;
}

KernelWork pass_work(const OpView& op, const Geometry& g, const Tensor& weight,
                     ConvolutionShape::Pass pass, bool allow_tf32, const Gpu& gpu) {
  const ConvolutionShape& s = g.shape;
  const double flop = 2.0 * static_cast<double>(s.n) * static_cast<double>(s.k) *
                      static_cast<double>(s.p) * static_cast<double>(s.q) *
                      static_cast<double>(s.c / s.groups) * static_cast<double>(s.r) *
                      static_cast<double>(s.s) * static_cast<double>(filter_depth(op, weight));
  double read = g.input_bytes + g.weight_bytes, written = g.output_bytes;
  if (pass == ConvolutionShape::Pass::kInputGradient) {
    read = g.output_bytes + g.weight_bytes;
    written = g.input_bytes;
  } else if (pass == ConvolutionShape::Pass::kWeightGradient) {
    read = g.input_bytes + g.output_bytes;
    written = g.weight_bytes;
  }
  KernelWork work = make_work(KernelFamily::kConvolution, g.dtype, read, written, flop);
  work.matrix_units =
      gemm_uses_matrix_units(g.dtype, gpu) ||
      (g.dtype == DType::kFloat32 && allow_tf32 && gpu.peak_tflop_per_s.tf32_matrix.has_value());
  ConvolutionShape shape = s;
  shape.pass = pass;
  work.shape = shape;
  return work;
}

/// The last flag of a cuDNN op's arguments is allow_tf32.
bool allow_tf32(const OpView& op) {
  const int index = parameter_index(op, "allow_tf32");
  return index < 0 ? kDefaultAllowTf32
                   : bool_input(op, static_cast<std::size_t>(index), kDefaultAllowTf32);
}

/// A backward pass does not record the switch; the graph's first convolution tells it. A graph of
/// backward passes alone has PyTorch's default.
bool recorded_tf32(const ExecutionGraph& graph) {
  for (const Node& node : graph.nodes) {
    const std::string_view name = graph.name(node);
    if (name == "aten::cudnn_convolution" || name == "aten::miopen_convolution") {
      return allow_tf32(OpView{graph, node});
    }
  }
  return kDefaultAllowTf32;
}

/// Input position of a parameter by schema, else by `fallback`.
std::size_t position(const OpView& op, std::string_view parameter, std::size_t fallback) {
  const int index = parameter_index(op, parameter);
  return index >= 0 ? static_cast<std::size_t>(index) : fallback;
}

/// cudnn_convolution(self, weight, padding, stride, dilation, groups, ...),
/// miopen_convolution(self, weight, bias, ...), _convolution(input, weight, bias, stride, padding,
/// dilation, transposed, ...).
bool lower_convolution_forward(const OpView& op, const Gpu& gpu, std::vector<KernelWork>& kernels) {
  const std::string_view name = op.name();
  const bool is_generic = name == "aten::_convolution" || name == "aten::convolution";
  if (is_generic && op.node.children_count > 0) return true;  // a child does the work
  const bool is_cudnn = name.starts_with("aten::cudnn");
  const Tensor* input = op.tensor_input(0);
  const Tensor* weight = op.tensor_input(1);
  const Tensor* output = op.tensor_output(0);
  const std::int64_t stride =
      int_list_input(op, position(op, "stride", is_generic || is_cudnn ? 3 : 4)).at(0, 1);
  const std::int64_t groups = int_input(op,
                                        position(op, "groups",
                                                 is_generic ? 8
                                                 : is_cudnn ? 5
                                                            : 6),
                                        1);
  const bool transposed = name.find("transpose") != std::string_view::npos ||
                          (is_generic && bool_input(op, position(op, "transposed", 6), false));
  const auto g = geometry(op, input, weight, output, stride, groups, transposed);
  if (!g) return false;
  kernels.push_back(pass_work(op, *g, *weight, g->shape.pass, allow_tf32(op), gpu));
  if (const Tensor* bias = op.tensor_input(2);
      bias && name.find("relu") != std::string_view::npos) {
    kernels.back().bytes_read += {bytes(bias)};
  }
  return true;
}

/// _conv_depthwise2d(self, weight, kernel_size, bias, stride, ...): one filter per channel.
/// _slow_conv2d_forward and thnn_conv2d(self, weight, kernel_size, bias, stride, padding): im2col
/// and GEMM.
bool lower_native_forward(const OpView& op, const Gpu& gpu, std::vector<KernelWork>& kernels) {
  const Tensor* input = op.tensor_input(0);
  const Tensor* weight = op.tensor_input(1);
  if (!input) return false;
  const bool is_depthwise = op.name().find("depthwise") != std::string_view::npos;
  const auto g = geometry(op, input, weight, op.tensor_output(0),
                          int_list_input(op, position(op, "stride", 4)).at(0, 1),
                          is_depthwise ? dim(op, *input, 1) : 1, false);
  if (!g) return false;
  kernels.push_back(
      pass_work(op, *g, *weight, ConvolutionShape::Pass::kForward, kDefaultAllowTf32, gpu));
  return true;
}

/// Old traces have sizes and no values: then the sizes give the stride.
std::int64_t stride_of(const OpView& op, std::size_t at, const Tensor* input,
                       const Tensor* output) {
  const IntList recorded = int_list_input(op, at);
  if (recorded.size > 0 || !input || !output) return recorded.at(0, 1);
  const std::int64_t in = dim(op, *input, -1), out = dim(op, *output, -1);
  return out > 0 ? std::max<std::int64_t>(1, (in + out / 2) / out) : 1;
}

std::int64_t groups_of(const OpView& op, std::size_t at, const Tensor* input,
                       const Tensor* weight) {
  const bool recorded = at < op.inputs().size() && op.inputs()[at].kind == Argument::Kind::kInt;
  if (recorded || !input || !weight || dim(op, *weight, 1) <= 0) return int_input(op, at, 1);
  return std::max<std::int64_t>(1, dim(op, *input, 1) / dim(op, *weight, 1));
}

/// convolution_backward(grad_output, input, weight, bias_sizes, stride, padding, dilation,
/// transposed, output_padding, groups, output_mask): one kernel per gradient that the mask asks
/// for.
bool lower_convolution_backward(const OpView& op, const Gpu& gpu,
                                std::vector<KernelWork>& kernels) {
  const Tensor* gradient = op.tensor_input(0);
  const Tensor* input = op.tensor_input(1);
  const Tensor* weight = op.tensor_input(2);
  const bool transposed = bool_input(op, position(op, "transposed", 7), false);
  const auto g = geometry(op, input, weight, gradient,
                          stride_of(op, position(op, "stride", 4), input, gradient),
                          groups_of(op, position(op, "groups", 9), input, weight), transposed);
  if (!g) return false;
  const IntList mask = int_list_input(op, position(op, "output_mask", 10));
  const bool tf32 = g->dtype == DType::kFloat32 && recorded_tf32(op.graph);
  const auto input_gradient =
      transposed ? ConvolutionShape::Pass::kForward : ConvolutionShape::Pass::kInputGradient;
  if (mask.at(0, 1)) {
    kernels.push_back(pass_work(op, *g, *weight, input_gradient, tf32, gpu));
  }
  if (mask.at(1, 1)) {
    kernels.push_back(
        pass_work(op, *g, *weight, ConvolutionShape::Pass::kWeightGradient, tf32, gpu));
  }
  if (mask.size > 2 && mask.values[2] && !has_child(op, "aten::sum")) {
    KernelWork bias = make_work(KernelFamily::kReduction, g->dtype, bytes(*gradient),
                                static_cast<double>(g->shape.k) * gradient->item_size,
                                static_cast<double>(gradient->numel));
    bias.shape = RowShape{.rows = g->shape.k,
                          .cols = gradient->numel / std::max<std::int64_t>(1, g->shape.k)};
    kernels.push_back(bias);
  }
  return true;
}

/// Before PyTorch 1.11: cudnn_convolution_backward(self, grad_output, weight, padding, stride,
/// dilation, groups, ..., output_mask), _backward_input(self_size, grad_output, weight, ...),
/// _backward_weight(weight_size, grad_output, self, ...), thnn_conv2d_backward(grad_output, self,
/// weight, ...). Shapes of a missing tensor come from the output.
bool lower_old_backward(const OpView& op, const Gpu& gpu, std::vector<KernelWork>& kernels) {
  const std::string_view name = op.name();
  const bool only_input = name.ends_with("_backward_input");
  const bool only_weight = name.ends_with("_backward_weight");
  const bool gradient_first = name.find("conv2d_backward") != std::string_view::npos;
  const Tensor* gradient = op.tensor_input(gradient_first ? 0 : 1);
  const Tensor* input = only_input    ? op.tensor_output(0)
                        : only_weight ? op.tensor_input(2)
                                      : op.tensor_input(gradient_first ? 1 : 0);
  const Tensor* weight = only_weight ? op.tensor_output(0) : op.tensor_input(2);
  const auto g =
      geometry(op, input, weight, gradient, int_list_input(op, position(op, "stride", 4)).at(0, 1),
               int_input(op, position(op, "groups", 6), 1), false);
  if (!g) return false;
  for (const auto pass :
       {ConvolutionShape::Pass::kInputGradient, ConvolutionShape::Pass::kWeightGradient}) {
    const bool is_input = pass == ConvolutionShape::Pass::kInputGradient;
    if ((only_input && !is_input) || (only_weight && is_input)) continue;
    kernels.push_back(pass_work(op, *g, *weight, pass, allow_tf32(op), gpu));
  }
  return true;
}

}  // namespace

std::span<const NamedLower> convolution_rules() {
  static constexpr NamedLower kRules[] = {
      {"convolution.forward", lower_convolution_forward},
      {"convolution.native_forward", lower_native_forward},
      {"convolution.backward", lower_convolution_backward},
      {"convolution.old_backward", lower_old_backward},
  };
  return kRules;
}

}  // namespace perfmodel::ops
