#include "aten_ops.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "perfmodel/result.hpp"

namespace perfmodel {
namespace {

constexpr std::int64_t kSliceEnd = std::numeric_limits<std::int64_t>::max();

Value gpu_value(const GraphBuilder& graph) { return GraphBuilder::device_value(graph.gpu()); }

TensorRef contiguous_view(GraphBuilder& graph, TensorRef x, Shape shape) {
  Shape strides = contiguous_strides(shape);
  return graph.new_view(x, std::move(shape), std::move(strides));
}

// `asked` with its -1 replaced.
Shape resolve(const GraphBuilder& graph, TensorRef x, Shape asked) {
  std::int64_t known = 1;
  for (std::int64_t size : asked) known *= size < 0 ? 1 : size;
  for (std::int64_t& size : asked) {
    if (size < 0) size = graph.numel(x) / known;
  }
  return asked;
}

// PyTorch wraps the number of `x + 3` into a tensor on the CPU.
TensorRef wrapped_number(GraphBuilder& graph, DType dtype = DType::kInt64) {
  return graph.new_tensor(dtype, graph.cpu(), {});
}

TensorRef like(GraphBuilder& graph, TensorRef x) {
  return graph.new_gpu_tensor(graph.dtype(x), graph.shape(x));
}

}  // namespace

// ------------------------------------------------------------------------------------------- views

TensorRef as_strided(GraphBuilder& graph, TensorRef x, Shape shape, Shape strides,
                     std::int64_t offset, bool give_offset) {
  const TensorRef view = graph.new_view(x, shape, strides, offset);
  const Value storage_offset = give_offset ? Value(graph.offset(view)) : Value(kNone);
  graph.leaf_op("aten::as_strided", {x, shape, strides, storage_offset}, {view});
  return view;
}

TensorRef transpose(GraphBuilder& graph, TensorRef x, int dim0, int dim1, std::int64_t sequence) {
  Shape shape = graph.shape(x), strides = graph.strides(x);
  std::swap(shape[static_cast<std::size_t>(dim0)], shape[static_cast<std::size_t>(dim1)]);
  std::swap(strides[static_cast<std::size_t>(dim0)], strides[static_cast<std::size_t>(dim1)]);
  graph.begin_op("aten::transpose.int", {x, dim0, dim1}, sequence);
  const TensorRef view = as_strided(graph, x, std::move(shape), std::move(strides));
  graph.end_op({view});
  return view;
}

TensorRef t(GraphBuilder& graph, TensorRef x, std::int64_t sequence) {
  graph.begin_op("aten::t", {x}, sequence);
  const TensorRef view = transpose(graph, x, 0, 1);
  graph.end_op({view});
  return view;
}

TensorRef slice(GraphBuilder& graph, TensorRef x, int dim, std::int64_t start, std::int64_t end,
                std::int64_t sequence) {
  const auto axis = static_cast<std::size_t>(dim);
  Shape shape = graph.shape(x), strides = graph.strides(x);
  shape[axis] = std::min(end, shape[axis]) - start;
  graph.begin_op("aten::slice.Tensor", {x, dim, start, end, 1}, sequence);
  const std::int64_t offset = start * strides[axis];
  const TensorRef view = as_strided(graph, x, std::move(shape), std::move(strides), offset, true);
  graph.end_op({view});
  return view;
}

TensorRef select(GraphBuilder& graph, TensorRef x, int dim, std::int64_t index,
                 std::int64_t sequence) {
  Shape shape = graph.shape(x), strides = graph.strides(x);
  const std::int64_t offset = index * strides[static_cast<std::size_t>(dim)];
  shape.erase(shape.begin() + dim);
  strides.erase(strides.begin() + dim);
  graph.begin_op("aten::select.int", {x, dim, index}, sequence);
  const TensorRef view = as_strided(graph, x, std::move(shape), std::move(strides), offset, true);
  graph.end_op({view});
  return view;
}

TensorRef narrow(GraphBuilder& graph, TensorRef x, int dim, std::int64_t start,
                 std::int64_t length) {
  graph.begin_op("aten::narrow", {x, dim, start, length});
  const TensorRef view = slice(graph, x, dim, start, start + length);
  graph.end_op({view});
  return view;
}

TensorRef squeeze(GraphBuilder& graph, TensorRef x) {
  Shape shape, strides;
  for (std::size_t i = 0; i < graph.shape(x).size(); ++i) {
    if (graph.shape(x)[i] == 1) continue;
    shape.push_back(graph.shape(x)[i]);
    strides.push_back(graph.strides(x)[i]);
  }
  graph.begin_op("aten::squeeze", {x});
  const TensorRef view = as_strided(graph, x, std::move(shape), std::move(strides));
  graph.end_op({view});
  return view;
}

TensorRef squeeze(GraphBuilder& graph, TensorRef x, int dim) {
  Shape shape = graph.shape(x), strides = graph.strides(x);
  shape.erase(shape.begin() + dim);
  strides.erase(strides.begin() + dim);
  graph.begin_op("aten::squeeze.dim", {x, dim});
  const TensorRef view = as_strided(graph, x, std::move(shape), std::move(strides));
  graph.end_op({view});
  return view;
}

TensorRef expand(GraphBuilder& graph, TensorRef x, Shape shape) {
  // Axes that x lacks or has with size 1 get stride 0.
  Shape strides(shape.size(), 0);
  const std::size_t missing = shape.size() - graph.shape(x).size();
  for (std::size_t i = missing; i < shape.size(); ++i) {
    if (graph.shape(x)[i - missing] == shape[i]) strides[i] = graph.strides(x)[i - missing];
  }
  graph.begin_op("aten::expand", {x, shape, false});
  const TensorRef view = as_strided(graph, x, std::move(shape), std::move(strides));
  graph.end_op({view});
  return view;
}

TensorRef view(GraphBuilder& graph, TensorRef x, const Shape& asked, std::int64_t sequence) {
  PERFMODEL_CHECK(graph.is_contiguous(x));
  const TensorRef made = contiguous_view(graph, x, resolve(graph, x, asked));
  graph.leaf_op("aten::view", {x, asked}, {made}, sequence);
  return made;
}

TensorRef reshape(GraphBuilder& graph, TensorRef x, const Shape& asked, std::int64_t sequence) {
  graph.begin_op("aten::reshape", {x, asked}, sequence);
  const TensorRef made = view(graph, x, resolve(graph, x, asked), sequence);
  graph.end_op({made});
  return made;
}

TensorRef contiguous(GraphBuilder& graph, TensorRef x) {
  if (graph.is_contiguous(x)) return x;  // no op is called
  const Value dtype = scalar_type_code(graph.dtype(x)), device = gpu_value(graph);
  const TensorRef made = like(graph, x);
  graph.begin_op("aten::contiguous", {x, 0});
  graph.begin_op("aten::clone", {x, 0});
  graph.begin_op("aten::empty_like", {x, dtype, 0, device, kNone, 0});
  graph.leaf_op("aten::empty.memory_format", {graph.shape(x), dtype, 0, device, kNone, 0}, {made});
  graph.end_op({made});
  copy(graph, made, x);
  graph.end_op({made});
  graph.end_op({made});
  return made;
}

// -------------------------------------------------------------------------------- memory, copies

TensorRef empty(GraphBuilder& graph, DType dtype, Shape shape) {
  const TensorRef made = graph.new_gpu_tensor(dtype, shape);
  graph.leaf_op("aten::empty.memory_format",
                {shape, scalar_type_code(dtype), 0, gpu_value(graph), kNone, kNone}, {made});
  return made;
}

namespace {
// `arguments`: those of empty_like after the tensor.
TensorRef empty_like_with(GraphBuilder& graph, TensorRef x, DType dtype,
                          std::vector<Value> arguments) {
  const Shape shape = graph.shape(x);
  const TensorRef made = graph.new_gpu_tensor(dtype, shape);
  arguments.insert(arguments.begin(), Value(x));
  graph.begin_op("aten::empty_like", std::move(arguments));
  graph.leaf_op(
      "aten::empty_strided",
      {shape, contiguous_strides(shape), scalar_type_code(dtype), 0, gpu_value(graph), kNone},
      {made});
  graph.end_op({made});
  return made;
}
}  // namespace

TensorRef empty_like(GraphBuilder& graph, TensorRef x) {
  return empty_like_with(graph, x, graph.dtype(x), {kNone, kNone, kNone, kNone, kNone});
}

TensorRef empty_like(GraphBuilder& graph, TensorRef x, DType dtype) {
  return empty_like_with(graph, x, dtype,
                         {scalar_type_code(dtype), 0, gpu_value(graph), kNone, kNone});
}

void zero(GraphBuilder& graph, TensorRef x, std::int64_t sequence) {
  graph.begin_op("aten::zero_", {x}, sequence);
  graph.leaf_op("aten::fill_.Scalar", {x, 0}, {x});
  graph.end_op({x});
}

TensorRef zeros(GraphBuilder& graph, DType dtype, Shape shape) {
  graph.begin_op("aten::zeros", {shape, scalar_type_code(dtype), 0, gpu_value(graph), kNone});
  const TensorRef made = empty(graph, dtype, std::move(shape));
  zero(graph, made);
  graph.end_op({made});
  return made;
}

TensorRef zeros_like(GraphBuilder& graph, TensorRef x, DType dtype) {
  graph.begin_op("aten::zeros_like",
                 {x, scalar_type_code(dtype), 0, gpu_value(graph), kNone, kNone});
  const TensorRef made = empty_like(graph, x, dtype);
  zero(graph, made);
  graph.end_op({made});
  return made;
}

TensorRef new_zeros(GraphBuilder& graph, TensorRef like_tensor, Shape shape) {
  const DType dtype = graph.dtype(like_tensor);
  const std::vector<Value> arguments = {like_tensor,      shape, scalar_type_code(dtype), 0,
                                        gpu_value(graph), kNone};
  graph.begin_op("aten::new_zeros", arguments);
  graph.begin_op("aten::new_empty", arguments);
  const TensorRef made = empty(graph, dtype, std::move(shape));
  graph.end_op({made});
  zero(graph, made);
  graph.end_op({made});
  return made;
}

void copy(GraphBuilder& graph, TensorRef to, TensorRef from, bool non_blocking) {
  graph.leaf_op("aten::copy_", {to, from, non_blocking}, {to});
}

void to_same_dtype(GraphBuilder& graph, TensorRef x, std::int64_t sequence) {
  graph.leaf_op("aten::to.dtype", {x, scalar_type_code(graph.dtype(x)), false, false, kNone}, {x},
                sequence);
}

// ------------------------------------------------------------------------------------------ sparse

TensorRef sparse_coo_tensor(GraphBuilder& graph, TensorRef indices, TensorRef values, Shape shape) {
  const TensorRef made = graph.new_sparse(shape, indices, values);
  const Shape& value_shape = graph.shape(values);
  const DType dtype = graph.dtype(values);
  graph.begin_op("aten::_sparse_coo_tensor_unsafe",
                 {indices, values, shape, kNone, kNone, kNone, kNone, kNone});
  graph.begin_op(
      "aten::_sparse_coo_tensor_with_dims_and_tensors",
      {1, 1, shape, indices, values, scalar_type_code(dtype), 1, gpu_value(graph), kNone, kNone});
  // The empty tensor that is made first and then given its indices and values.
  const TensorRef no_values = empty(graph, dtype, {0});
  const TensorRef no_indices = empty(graph, DType::kInt64, {1, 0});
  const Shape sizes = {0, value_shape.back()};
  graph.leaf_op("aten::resize_", {no_values, sizes, kNone},
                {contiguous_view(graph, no_values, sizes)});
  graph.leaf_op("aten::resize_", {no_indices, Shape{1, 0}, kNone}, {no_indices});
  graph.end_op({made});
  graph.end_op({made});
  return made;
}

namespace {
TensorRef sparse_part(GraphBuilder& graph, const char* op, TensorRef sparse, TensorRef part) {
  const TensorRef alias = graph.new_view(part, graph.shape(part), graph.strides(part));
  graph.leaf_op(op, {sparse}, {alias});
  return alias;
}
TensorRef indices_of(GraphBuilder& graph, TensorRef sparse) {
  return sparse_part(graph, "aten::_indices", sparse, graph.sparse_indices(sparse));
}
TensorRef values_of(GraphBuilder& graph, TensorRef sparse) {
  return sparse_part(graph, "aten::_values", sparse, graph.sparse_values(sparse));
}
}  // namespace

TensorRef share_sparse(GraphBuilder& graph, TensorRef sparse) {
  indices_of(graph, sparse);  // both are asked whether they are contiguous
  values_of(graph, sparse);
  const TensorRef values = values_of(graph, sparse);
  const TensorRef indices = indices_of(graph, sparse);
  return sparse_coo_tensor(graph, indices, values, graph.shape(sparse));
}

// ---------------------------------------------------------------------------------------- forward

TensorRef AtenOps::to_gpu(TensorRef host, bool non_blocking) {
  const Shape& shape = graph_.shape(host);
  const int dtype = scalar_type_code(graph_.dtype(host));
  const Value device = gpu_value(graph_);
  const TensorRef made = graph_.new_gpu_tensor(graph_.dtype(host), shape);
  const std::int64_t sequence = tape_.sequence();
  graph_.begin_op("aten::to.dtype_layout",
                  {host, dtype, 0, device, kNone, non_blocking, false, kNone}, sequence);
  graph_.begin_op("aten::_to_copy", {host, dtype, 0, device, kNone, non_blocking, kNone}, sequence);
  graph_.leaf_op("aten::empty_strided",
                 {graph_.shape(host), graph_.strides(host), dtype, 0, device, false}, {made});
  copy(graph_, made, host, non_blocking);
  graph_.end_op({made});
  graph_.end_op({made});
  return made;
}

TensorRef AtenOps::linear(TensorRef x, TensorRef weight, TensorRef bias) {
  const std::int64_t batch = graph_.shape(x)[0], width = graph_.shape(weight)[0];
  const TensorRef out = graph_.new_gpu_tensor(graph_.dtype(x), {batch, width});
  graph_.begin_op("aten::linear", {x, weight, bias}, tape_.sequence());

  const TensorRef weight_t = perfmodel::t(graph_, weight, tape_.sequence());
  tape_.record("TBackward0", {weight}, weight_t,
               [this](TensorRef gradient) -> std::vector<TensorRef> {
                 return {perfmodel::t(graph_, gradient)};
               });

  graph_.begin_op("aten::addmm", {bias, x, weight_t, 1, 1}, tape_.sequence());
  // cuBLASLt adds the bias itself, except for thin matrices, where it is copied to the output.
  const bool epilogue = width > 1 && graph_.shape(weight)[1] > 1;
  if (!epilogue) expand(graph_, bias, {batch, width});
  graph_.end_op({out});
  tape_.record("AddmmBackward0", {bias, x, weight_t}, out, [this, x, weight_t](TensorRef gradient) {
    return addmm_backward(gradient, x, weight_t);
  });

  graph_.end_op({out});
  return out;
}

std::vector<TensorRef> AtenOps::addmm_backward(TensorRef gradient, TensorRef x,
                                               TensorRef weight_t) {
  TensorRef x_gradient;
  if (tape_.requires_grad(x)) {
    const TensorRef weight = perfmodel::t(graph_, weight_t);
    x_gradient = like(graph_, x);
    graph_.leaf_op("aten::mm", {gradient, weight}, {x_gradient});
  }
  const TensorRef gradient_t = perfmodel::t(graph_, gradient);
  const TensorRef weight_gradient =
      graph_.new_gpu_tensor(graph_.dtype(x), {graph_.shape(gradient_t)[0], graph_.shape(x)[1]});
  graph_.leaf_op("aten::mm", {gradient_t, x}, {weight_gradient});
  return {gradient, x_gradient, perfmodel::t(graph_, weight_gradient)};
}

TensorRef AtenOps::relu(TensorRef x) {
  const TensorRef out = like(graph_, x);
  graph_.begin_op("aten::relu", {x}, tape_.sequence());
  graph_.leaf_op("aten::clamp_min", {x, 0}, {out});
  graph_.end_op({out});
  tape_.record("ReluBackward0", {x}, out,
               [this, out](TensorRef gradient) -> std::vector<TensorRef> {
                 const TensorRef made = like(graph_, out);
                 graph_.leaf_op("aten::threshold_backward", {gradient, out, 0}, {made});
                 return {made};
               });
  return out;
}

TensorRef AtenOps::sigmoid(TensorRef x) {
  const TensorRef out = like(graph_, x);
  graph_.leaf_op("aten::sigmoid", {x}, {out}, tape_.sequence());
  tape_.record("SigmoidBackward0", {x}, out,
               [this, out](TensorRef gradient) -> std::vector<TensorRef> {
                 const TensorRef made = like(graph_, out);
                 graph_.leaf_op("aten::sigmoid_backward", {gradient, out}, {made});
                 return {made};
               });
  return out;
}

TensorRef AtenOps::cat(const std::vector<TensorRef>& inputs, int dim) {
  const auto axis = static_cast<std::size_t>(dim);
  Shape shape = graph_.shape(inputs.front());
  shape[axis] = 0;
  for (TensorRef input : inputs) shape[axis] += graph_.shape(input)[axis];
  const TensorRef out = graph_.new_gpu_tensor(graph_.dtype(inputs.front()), std::move(shape));
  graph_.leaf_op("aten::cat", {inputs, dim}, {out}, tape_.sequence());
  tape_.record("CatBackward0", inputs, out, [this, inputs, dim, axis](TensorRef gradient) {
    std::vector<TensorRef> gradients(inputs.size());
    std::int64_t start = 0;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const std::int64_t length = graph_.shape(inputs[i])[axis];
      if (tape_.requires_grad(inputs[i])) {
        gradients[i] = narrow(graph_, gradient, dim, start, length);
      }
      start += length;
    }
    return gradients;
  });
  return out;
}

TensorRef AtenOps::view(TensorRef x, const Shape& asked) {
  const TensorRef out = perfmodel::view(graph_, x, asked, tape_.sequence());
  tape_.record("ViewBackward0", {x}, out, [this, x](TensorRef gradient) -> std::vector<TensorRef> {
    return {reshape(graph_, gradient, graph_.shape(x))};
  });
  return out;
}

TensorRef AtenOps::transpose(TensorRef x, int dim0, int dim1) {
  const TensorRef out = perfmodel::transpose(graph_, x, dim0, dim1, tape_.sequence());
  tape_.record("TransposeBackward0", {x}, out,
               [this, dim0, dim1](TensorRef gradient) -> std::vector<TensorRef> {
                 return {perfmodel::transpose(graph_, gradient, dim0, dim1)};
               });
  return out;
}

TensorRef AtenOps::bmm(TensorRef a, TensorRef b) {
  const Shape& rows = graph_.shape(a);
  const TensorRef out =
      graph_.new_gpu_tensor(graph_.dtype(a), {rows[0], rows[1], graph_.shape(b)[2]});
  graph_.leaf_op("aten::bmm", {a, b}, {out}, tape_.sequence());
  tape_.record("BmmBackward0", {a, b}, out,
               [this, a, b](TensorRef gradient) -> std::vector<TensorRef> {
                 const TensorRef a_t = perfmodel::transpose(graph_, a, 1, 2);
                 const TensorRef b_gradient = like(graph_, b);
                 graph_.leaf_op("aten::bmm", {a_t, gradient}, {b_gradient});
                 const TensorRef b_t = perfmodel::transpose(graph_, b, 1, 2);
                 const TensorRef a_gradient = like(graph_, a);
                 graph_.leaf_op("aten::bmm", {gradient, b_t}, {a_gradient});
                 return {a_gradient, b_gradient};
               });
  return out;
}

// The ":" of an index expression.
TensorRef AtenOps::slice_all(TensorRef x) {
  const TensorRef out = slice(graph_, x, 0, 0, kSliceEnd, tape_.sequence());
  tape_.record("SliceBackward0", {x}, out, [this, x](TensorRef gradient) -> std::vector<TensorRef> {
    const Shape& shape = graph_.shape(x);
    graph_.begin_op("aten::slice_backward", {gradient, shape, 0, 0, kSliceEnd, 1});
    const TensorRef made = zeros(graph_, graph_.dtype(x), shape);
    copy(graph_, slice(graph_, made, 0, 0, kSliceEnd), gradient);
    graph_.end_op({made});
    return {made};
  });
  return out;
}

TensorRef AtenOps::index_matrix(TensorRef x, TensorRef row, TensorRef column) {
  const TensorRef rows = slice_all(x);
  const Shape shape = graph_.shape(rows);
  const std::int64_t batch = shape[0], picked = graph_.numel(row);
  const TensorRef out = graph_.new_gpu_tensor(graph_.dtype(x), {batch, picked});
  graph_.begin_op("aten::index.Tensor",
                  {rows, std::vector<TensorRef>{graph_.undefined(), row, column}},
                  tape_.sequence());
  as_strided(graph_, rows, {batch, picked}, {shape[1] * shape[2], 0});
  reshape(graph_, row, {1, picked});
  reshape(graph_, column, {1, picked});
  graph_.end_op({out});
  tape_.record("IndexBackward0", {rows}, out,
               [this, shape, row, column](TensorRef gradient) -> std::vector<TensorRef> {
                 return {index_backward(gradient, shape, row, column)};
               });
  return out;
}

namespace {
// One term of the linear index: (index mod size) * stride, on the device of the data.
TensorRef linear_index_term(GraphBuilder& graph, TensorRef index, std::int64_t size,
                            std::int64_t stride) {
  const auto scalar_op = [&](const char* scalar, const char* tensor, TensorRef x,
                             std::int64_t number) {
    const TensorRef made = like(graph, x);
    graph.begin_op(scalar, {x, number});
    graph.leaf_op(tensor, {x, wrapped_number(graph)}, {made});
    graph.end_op({made});
    return made;
  };
  const TensorRef wrapped =
      scalar_op("aten::remainder.Scalar", "aten::remainder.Tensor", index, size);
  const TensorRef scaled = scalar_op("aten::mul.Scalar", "aten::mul.Tensor", wrapped, stride);
  graph.leaf_op("aten::to.dtype_layout",
                {scaled, kNone, kNone, gpu_value(graph), kNone, false, false, kNone}, {scaled});
  return scaled;
}
}  // namespace

// The accumulating index_put: linear indices are sorted, then rows of equal index are added up.
TensorRef AtenOps::index_backward(TensorRef gradient, const Shape& shape, TensorRef row,
                                  TensorRef column) {
  const std::int64_t picked = graph_.numel(row);
  const TensorRef made = new_zeros(graph_, gradient, shape);
  graph_.begin_op("aten::_index_put_impl_",
                  {made, Value::List{kNone, row, column}, gradient, true, true});
  const TensorRef linear = linear_index_term(graph_, row, shape[1], shape[2]);
  const TensorRef minor = linear_index_term(graph_, column, shape[2], 1);
  graph_.leaf_op("aten::add_.Tensor", {linear, minor, 1}, {linear});
  contiguous(graph_, gradient);
  const TensorRef flat = reshape(graph_, linear, {-1});
  for (int i = 0; i < 2; ++i) {  // sorted indices and their origins
    const TensorRef scratch = like(graph_, flat);
    graph_.begin_op("aten::empty_like", {flat, kNone, kNone, kNone, kNone, 0});
    graph_.leaf_op("aten::empty.memory_format",
                   {Shape{picked}, scalar_type_code(DType::kInt64), 0, gpu_value(graph_), kNone, 0},
                   {scratch});
    graph_.end_op({scratch});
  }
  graph_.begin_op("aten::divide_.Scalar_mode", {flat, 1, "trunc"});
  graph_.begin_op("aten::div_.Scalar_mode", {flat, 1, "trunc"});
  graph_.leaf_op("aten::div_.Tensor_mode", {flat, wrapped_number(graph_), "trunc"}, {flat});
  graph_.end_op({flat});
  graph_.end_op({flat});
  graph_.begin_op("aten::arange",
                  {picked, scalar_type_code(DType::kInt64), 0, gpu_value(graph_), kNone});
  const TensorRef origins = empty(graph_, DType::kInt64, {0});
  const TensorRef counted = contiguous_view(graph_, origins, {picked});
  graph_.begin_op("aten::arange.start_out", {0, picked, 1, origins});
  graph_.leaf_op("aten::resize_", {origins, Shape{picked}, kNone}, {counted});
  graph_.end_op({counted});
  graph_.end_op({counted});
  graph_.end_op({made});
  return made;
}

TensorRef AtenOps::binary_cross_entropy(TensorRef prediction, TensorRef target) {
  graph_.begin_op("aten::binary_cross_entropy", {prediction, target, kNone, 1}, tape_.sequence());
  const TensorRef each = empty_like(graph_, prediction);
  for (TensorRef x : {each, prediction, target}) squeeze(graph_, x);
  const TensorRef mean = graph_.new_gpu_tensor(graph_.dtype(prediction), {});
  graph_.begin_op("aten::mean", {each, kNone});
  graph_.leaf_op("aten::mean.dim", {each, Value::List{}, false, kNone}, {mean});
  graph_.end_op({mean});
  const TensorRef loss = contiguous_view(graph_, each, {});
  graph_.begin_op("aten::resize_as_", {each, mean, kNone});
  graph_.leaf_op("aten::resize_", {each, Shape{}, kNone}, {loss});
  graph_.end_op({loss});
  copy(graph_, loss, mean);
  graph_.end_op({loss});

  tape_.record("BinaryCrossEntropyBackward0", {prediction}, loss,
               [this, prediction, target](TensorRef gradient) -> std::vector<TensorRef> {
                 graph_.begin_op("aten::binary_cross_entropy_backward",
                                 {gradient, prediction, target, graph_.undefined(), 1});
                 const TensorRef made = empty_like(graph_, prediction);
                 graph_.begin_op("aten::expand_as", {gradient, prediction});
                 graph_.end_op({expand(graph_, gradient, graph_.shape(prediction))});
                 graph_.begin_op("aten::div_.Scalar", {made, graph_.numel(prediction)});
                 graph_.leaf_op("aten::div_.Tensor", {made, wrapped_number(graph_)}, {made});
                 graph_.end_op({made});
                 graph_.end_op({made});
                 return {made};
               });
  return loss;
}

// -------------------------------------------------------------------------------------- optimizers

namespace {

std::vector<TensorRef> gradients_of(const AutogradTape& tape,
                                    const std::vector<TensorRef>& parameters) {
  std::vector<TensorRef> gradients;
  for (TensorRef parameter : parameters) gradients.push_back(tape.gradient(parameter));
  return gradients;
}

// Every foreach op with a number asks for the result type of each tensor before it takes the path
// that treats many tensors per kernel.
void foreach_op(GraphBuilder& graph, const char* op, const std::vector<TensorRef>& first,
                std::vector<Value> others, Value number, std::vector<Value> outputs = {}) {
  others.insert(others.begin(), Value(first));
  others.push_back(number);
  graph.begin_op(op, std::move(others));
  for (TensorRef x : first) {
    graph.leaf_op("aten::result_type.Scalar", {x, number}, {scalar_type_code(graph.dtype(x))});
  }
  graph.end_op(std::move(outputs));
}

std::vector<TensorRef> all_like(GraphBuilder& graph, const std::vector<TensorRef>& tensors) {
  std::vector<TensorRef> made;
  for (TensorRef x : tensors) made.push_back(like(graph, x));
  return made;
}

// weight += alpha * gradient for a sparse gradient whose indices may repeat.
void add_sparse(GraphBuilder& graph, TensorRef weight, TensorRef gradient, double alpha) {
  const std::int64_t entries = graph.shape(graph.sparse_values(gradient))[0];
  graph.begin_op("aten::add_.Tensor", {weight, gradient, alpha});
  graph.begin_op("aten::add.out", {weight, gradient, alpha, weight});
  graph.leaf_op("aten::_nnz", {gradient}, {entries});
  const TensorRef values = values_of(graph, gradient);
  to_same_dtype(graph, values);
  const TensorRef indices = indices_of(graph, gradient);
  graph.leaf_op("aten::is_coalesced", {gradient}, {false});
  const TensorRef rows = squeeze(graph, indices, 0);
  const Shape shape = graph.shape(weight);
  const TensorRef target = view(graph, weight, shape);
  const TensorRef source = reshape(graph, values, {entries, shape[1]});
  graph.leaf_op("aten::index_add_", {target, 0, rows, source, alpha}, {target});
  graph.end_op({weight});
  graph.end_op({weight});
}

}  // namespace

void sgd_step_foreach(GraphBuilder& graph, const AutogradTape& tape,
                      const std::vector<TensorRef>& parameters, double learning_rate) {
  foreach_op(graph, "aten::_foreach_add_.List", parameters, {gradients_of(tape, parameters)},
             -learning_rate);
}

void sgd_step_loop(GraphBuilder& graph, const AutogradTape& tape,
                   const std::vector<TensorRef>& parameters, double learning_rate) {
  for (TensorRef parameter : parameters) {
    const TensorRef gradient = tape.gradient(parameter);
    if (graph.is_sparse(gradient)) {
      add_sparse(graph, parameter, gradient, -learning_rate);
    } else {
      graph.leaf_op("aten::add_.Tensor", {parameter, gradient, -learning_rate}, {parameter});
    }
  }
}

void adagrad_step_foreach(GraphBuilder& graph, const AutogradTape& tape,
                          const std::vector<TensorRef>& parameters, double learning_rate) {
  const std::vector<TensorRef> gradients = gradients_of(tape, parameters);
  const std::vector<TensorRef> sums = all_like(graph, parameters);
  std::vector<TensorRef> steps;  // counters on the CPU
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    steps.push_back(graph.new_tensor(DType::kFloat32, graph.cpu(), {}));
  }
  const TensorRef one = wrapped_number(graph, DType::kFloat32);
  graph.begin_op("aten::_foreach_add_.Tensor", {steps, one, 1.0});
  for (TensorRef step : steps) graph.leaf_op("aten::add_.Tensor", {step, one, 1.0}, {step});
  graph.end_op();
  for (TensorRef step : steps) {
    graph.begin_op("aten::item", {step});
    graph.leaf_op("aten::_local_scalar_dense", {step}, {1.0});
    graph.end_op({1.0});
  }
  foreach_op(graph, "aten::_foreach_addcmul_.Scalar", sums, {gradients, gradients}, 1);
  const std::vector<TensorRef> roots = all_like(graph, parameters);
  graph.leaf_op("aten::_foreach_sqrt", {sums}, {roots});
  foreach_op(graph, "aten::_foreach_add_.Scalar", roots, {}, 1e-10);
  const std::vector<TensorRef> scaled = all_like(graph, parameters);
  const Value::List factors(parameters.size(), Value(-learning_rate));
  graph.begin_op("aten::_foreach_mul.ScalarList", {gradients, factors});
  for (TensorRef gradient : gradients) {
    graph.leaf_op("aten::result_type.Scalar", {gradient, -learning_rate},
                  {scalar_type_code(graph.dtype(gradient))});
  }
  graph.end_op({scaled});
  foreach_op(graph, "aten::_foreach_addcdiv_.Scalar", parameters, {scaled, roots}, 1);
}

}  // namespace perfmodel
