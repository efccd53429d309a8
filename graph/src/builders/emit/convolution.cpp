#include "convolution.hpp"

#include "memory.hpp"
#include "perfmodel/result.hpp"
#include "reduction.hpp"
#include "update.hpp"
#include "views.hpp"

namespace perfmodel {
namespace {

// A tensor as oneDNN hands it back: allocated, then given its strides.
TensorRef onednn_tensor(GraphBuilder& graph, DType dtype, const Shape& shape) {
  const TensorRef made = empty(graph, dtype, shape);
  graph.leaf_op("aten::as_strided_", {made, shape, contiguous_strides(shape), kNone}, {made});
  return made;
}

TensorRef onednn_convolution(GraphBuilder& graph, TensorRef x, TensorRef weight, TensorRef bias,
                             const Conv2d& conv, const Shape& out_shape) {
  PERFMODEL_CHECK(!conv.transposed);
  graph.begin_op(convolution_op(ConvolutionBackend::kOneDnn),
                 {x, weight, bias, conv.padding, conv.stride, conv.dilation, conv.groups});
  empty(graph, graph.dtype(x), {0});
  return graph.end_with(onednn_tensor(graph, graph.dtype(x), out_shape));
}

TensorRef gpu_convolution(GraphBuilder& graph, ConvolutionBackend backend, TensorRef x,
                          TensorRef weight, TensorRef bias, const Conv2d& conv,
                          const Shape& out_shape) {
  const TensorRef out = graph.new_tensor(graph.dtype(x), out_shape);
  call_convolution(graph, backend,
                   {.x = x,
                    .weight = weight,
                    .bias = bias,
                    .out = out,
                    .stride = conv.stride,
                    .padding = conv.padding,
                    .dilation = conv.dilation,
                    .output_padding = Shape{0, 0},
                    .groups = conv.groups,
                    .bias_shape = {1, out_shape[1], 1, 1}});
  return out;
}

ConvolutionBackend backend_of(const GraphBuilder& graph, TensorRef x, TensorRef weight,
                              const Conv2d& conv) {
  using Device = ConvolutionFacts::Device;
  return convolution_backend({.device = graph.pytorch().on_gpu() ? Device::kNvidia : Device::kCpu,
                              .dtype = graph.dtype(x),
                              .input = graph.shape(x),
                              .weight = graph.shape(weight),
                              .stride = conv.stride,
                              .dilation = conv.dilation,
                              .groups = conv.groups,
                              .transposed = conv.transposed});
}

Shape output_shape(const GraphBuilder& graph, TensorRef x, TensorRef weight, const Conv2d& conv) {
  const Shape &from = graph.shape(x), &filter = graph.shape(weight);
  const Shape size = convolved_size({from[2], from[3]}, {filter[2], filter[3]}, conv);
  return {from[0], conv.transposed ? filter[1] * conv.groups : filter[0], size[0], size[1]};
}

struct Gradients {
  TensorRef x, weight, bias;
};
struct Wanted {
  bool x = false, weight = false, bias = false;
};

// Allocations of oneDNN, in its order: the gradient of the input, of the bias, of the weight.
Gradients onednn_gradients(GraphBuilder& graph, TensorRef x, TensorRef weight, Wanted wanted) {
  Gradients made;
  if (wanted.x) {
    empty(graph, graph.dtype(x), {0});
    made.x = onednn_tensor(graph, graph.dtype(x), graph.shape(x));
  }
  if (wanted.bias) made.bias = onednn_tensor(graph, graph.dtype(x), {graph.shape(weight)[0]});
  if (wanted.weight) made.weight = onednn_tensor(graph, graph.dtype(weight), graph.shape(weight));
  return made;
}

Gradients cudnn_gradients(GraphBuilder& graph, TensorRef x, TensorRef weight, TensorRef gradient,
                          Wanted wanted) {
  Gradients made;
  if (wanted.x) made.x = like(graph, x);  // allocated without an op
  if (wanted.weight) made.weight = like(graph, weight);
  begin_library_gradients(graph, gradient, made.weight);
  if (wanted.bias) made.bias = sum(graph, gradient, {0, 2, 3}, false);
  return made;
}

}  // namespace

Shape convolved_size(const Shape& size, const Shape& kernel, const Conv2d& conv) {
  Shape out;
  for (std::size_t i = 0; i < size.size(); ++i) {
    const std::int64_t window = conv.dilation[i] * (kernel[i] - 1) + 1;
    out.push_back(conv.transposed ? (size[i] - 1) * conv.stride[i] - 2 * conv.padding[i] + window
                                  : (size[i] + 2 * conv.padding[i] - window) / conv.stride[i] + 1);
  }
  return out;
}

void call_convolution(GraphBuilder& graph, ConvolutionBackend backend,
                      const ConvolutionCall& call) {
  using enum ConvolutionBackend;
  PERFMODEL_CHECK(backend != kOneDnn);
  const std::string_view op = convolution_op(backend);
  std::vector<Value> inputs = {call.x, call.weight};
  const auto add_bias = [&] {
    inputs.emplace_back(call.bias.exists() ? call.bias : graph.undefined());
  };
  if (backend == kDepthwise2d || backend == kDepthwise3d) {
    const Shape& weight = graph.shape(call.weight);
    inputs.emplace_back(Shape(weight.begin() + 2, weight.end()));
    add_bias();
    inputs.insert(inputs.end(), {call.stride, call.padding, call.dilation});
    return graph.leaf_op(op, std::move(inputs), {call.out});
  }
  const bool cudnn = backend == kCudnn || backend == kCudnnTransposed;
  if (!cudnn) add_bias();
  inputs.push_back(call.padding);
  if (backend == kCudnnTransposed || backend == kMiopenTransposed) {
    inputs.push_back(call.output_padding);
  }
  inputs.insert(inputs.end(), {call.stride, call.dilation, Value(call.groups),
                               Value(call.benchmark), Value(call.deterministic)});
  if (cudnn) inputs.emplace_back(call.allow_tf32);
  graph.leaf_op(op, std::move(inputs), {call.out});
  if (!cudnn || !call.bias.exists()) return;
  const TensorRef each = reshape(graph, call.bias, call.bias_shape);
  add_(graph, call.out, each);
}

void begin_library_gradients(GraphBuilder& graph, TensorRef gradient, TensorRef weight_gradient) {
  if (!graph.pytorch().before(2, 1)) to_contiguous(graph, gradient);
  if (weight_gradient.exists()) allocate(graph, weight_gradient, {.order = true});
}

TensorRef conv2d(AutogradTape& tape, TensorRef x, TensorRef weight, TensorRef bias,
                 const Conv2d& conv) {
  GraphBuilder& graph = tape.graph();
  const bool has_bias = bias.exists(), on_gpu = graph.pytorch().on_gpu();
  const Value given = has_bias ? Value(bias) : Value(kNone);
  const TensorRef passed = has_bias ? bias : graph.undefined();
  const Shape none = {0, 0};
  const std::int64_t sequence = tape.sequence();
  if (conv.transposed) {
    graph.begin_op("aten::conv_transpose2d.input",
                   {x, weight, given, conv.stride, conv.padding, none, conv.groups, conv.dilation},
                   sequence);
  } else {
    graph.begin_op("aten::conv2d",
                   {x, weight, given, conv.stride, conv.padding, conv.dilation, conv.groups},
                   sequence);
  }
  std::vector<Value> arguments = {
      x,    weight,     passed, conv.stride, conv.padding, conv.dilation, conv.transposed,
      none, conv.groups};
  graph.begin_op("aten::convolution", arguments, sequence);
  for (bool flag : {false, false, true, true}) arguments.emplace_back(flag);
  graph.begin_op("aten::_convolution", arguments);
  const Shape shape = output_shape(graph, x, weight, conv);
  const ConvolutionBackend backend = backend_of(graph, x, weight, conv);
  const TensorRef out = backend == ConvolutionBackend::kOneDnn
                            ? onednn_convolution(graph, x, weight, passed, conv, shape)
                            : gpu_convolution(graph, backend, x, weight, bias, conv, shape);
  for (int i = 0; i < 3; ++i) graph.end_op({out});

  std::vector<TensorRef> inputs = {x, weight};
  if (has_bias) inputs.push_back(bias);
  tape.record("ConvolutionBackward0", inputs, out, [=, &tape, &graph](TensorRef gradient) {
    const Shape bias_shape = has_bias ? graph.shape(bias) : Shape{0};
    const Wanted wanted = {.x = tape.requires_grad(x),
                           .weight = tape.requires_grad(weight),
                           .bias = has_bias && tape.requires_grad(bias)};
    graph.begin_op(
        "aten::convolution_backward",
        {gradient, x, weight, bias_shape, conv.stride, conv.padding, conv.dilation, conv.transposed,
         none, conv.groups, Value::List{wanted.x, wanted.weight, wanted.bias}});
    const Gradients made = on_gpu ? cudnn_gradients(graph, x, weight, gradient, wanted)
                                  : onednn_gradients(graph, x, weight, wanted);
    const TensorRef undefined = graph.undefined();
    const auto shown = [&](bool is_wanted, TensorRef of) { return is_wanted ? of : undefined; };
    graph.end_op({shown(wanted.x, made.x), shown(wanted.weight, made.weight),
                  shown(wanted.bias, made.bias)});
    std::vector<TensorRef> gradients = {made.x, made.weight};
    if (has_bias) gradients.push_back(made.bias);
    return gradients;
  });
  return out;
}

}  // namespace perfmodel
