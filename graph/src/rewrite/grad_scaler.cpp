#include "grad_scaler.hpp"

namespace perfmodel {
namespace {

constexpr double kGrowth = 2.0, kBackoff = 0.5;
constexpr std::int64_t kInterval = 2000;  // defaults of PyTorch

}  // namespace

GradScaler::GradScaler(GraphBuilder& graph)
    : graph_(graph),
      scale_(graph.new_tensor(DType::kFloat32, {})),
      growth_tracker_(graph.new_tensor(DType::kInt32, {})) {}

TensorRef GradScaler::scale(TensorRef loss, std::int64_t sequence) {
  graph_.leaf_op("aten::to.dtype_layout",
                 {scale_, scalar_type_code(DType::kFloat32), 0, graph_.device_value(), kNone, true,
                  false, kNone},
                 {scale_}, sequence);
  const TensorRef scaled = graph_.new_tensor(graph_.dtype(loss), graph_.shape(loss));
  graph_.leaf_op("aten::mul.Tensor", {loss, scale_}, {scaled}, sequence);
  return scaled;
}

TensorRef GradScaler::scale_gradient(TensorRef gradient) {
  const TensorRef made = graph_.new_tensor(graph_.dtype(gradient), graph_.shape(gradient));
  graph_.leaf_op("aten::mul.Tensor", {gradient, scale_}, {made});
  return made;
}

void GradScaler::unscale(const std::vector<TensorRef>& gradients) {
  const TensorRef wide = convert(scale_, DType::kFloat64);
  const TensorRef reciprocal = graph_.new_tensor(DType::kFloat64, {});
  graph_.leaf_op("aten::reciprocal", {wide}, {reciprocal});
  const TensorRef inverse = convert(reciprocal, DType::kFloat32);

  const int code = scalar_type_code(DType::kFloat32);
  const TensorRef zero = graph_.new_tensor(DType::kFloat32, {});
  graph_.begin_op("aten::full", {Shape{}, 0.0, code, kNone, graph_.device_value(), kNone});
  graph_.leaf_op("aten::empty.memory_format",
                 {Shape{}, code, kNone, graph_.device_value(), kNone, kNone}, {zero});
  graph_.leaf_op("aten::fill_.Scalar", {zero, 0.0}, {zero});
  graph_.end_op({zero});

  found_inf_ = copy(zero);  // one per device
  const TensorRef inverse_here = copy(inverse);
  graph_.leaf_op("aten::_amp_foreach_non_finite_check_and_unscale_",
                 {gradients, found_inf_, inverse_here}, {});
  graph_.begin_op("aten::item", {found_inf_});
  graph_.leaf_op("aten::_local_scalar_dense", {found_inf_}, {0.0});
  graph_.end_op({0.0});
}

void GradScaler::update() {
  graph_.leaf_op("aten::to.dtype_layout",
                 {found_inf_, scalar_type_code(DType::kFloat32), 0, graph_.device_value(), kNone,
                  true, false, kNone},
                 {found_inf_});
  graph_.leaf_op("aten::_amp_update_scale_",
                 {scale_, growth_tracker_, found_inf_, kGrowth, kBackoff, kInterval}, {scale_});
}

TensorRef GradScaler::convert(TensorRef from, DType dtype) {
  const int code = scalar_type_code(dtype);
  const TensorRef made = graph_.new_tensor(dtype, {});
  graph_.begin_op("aten::to.dtype", {from, code, false, false, kNone});
  graph_.begin_op("aten::_to_copy", {from, code, kNone, kNone, kNone, false, kNone});
  graph_.leaf_op("aten::empty_strided", {Shape{}, Shape{}, code, 0, graph_.device_value(), false},
                 {made});
  graph_.leaf_op("aten::copy_", {made, from, false}, {made});
  graph_.end_op({made});
  graph_.end_op({made});
  return made;
}

TensorRef GradScaler::copy(TensorRef from) {
  const int code = scalar_type_code(DType::kFloat32);
  const Value device = graph_.device_value();
  const TensorRef made = graph_.new_tensor(DType::kFloat32, {});
  graph_.begin_op("aten::to.dtype_layout", {from, code, 0, device, kNone, true, true, kNone});
  graph_.begin_op("aten::_to_copy", {from, code, 0, device, kNone, true, kNone});
  graph_.leaf_op("aten::empty_strided", {Shape{}, Shape{}, code, 0, device, false}, {made});
  graph_.leaf_op("aten::copy_", {made, from, true}, {made});
  graph_.end_op({made});
  graph_.end_op({made});
  return made;
}

}  // namespace perfmodel
