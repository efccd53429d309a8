#include "grad_scaler.hpp"

#include "builders/emit/memory.hpp"
#include "builders/emit/update.hpp"

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
  to(graph_, scale_, scale_, {.non_blocking = true}, sequence);
  return mul(graph_, loss, scale_, sequence);
}

TensorRef GradScaler::scale_gradient(TensorRef gradient) { return mul(graph_, gradient, scale_); }

void GradScaler::unscale(const std::vector<TensorRef>& gradients) {
  const TensorRef wide = to_dtype(graph_, scale_, DType::kFloat64);
  const TensorRef inverse = to_dtype(graph_, reciprocal(graph_, wide), DType::kFloat32);

  const int code = scalar_type_code(DType::kFloat32);
  const TensorRef zero = graph_.new_tensor(DType::kFloat32, {});
  graph_.begin_op("aten::full", {Shape{}, 0.0, code, kNone, graph_.device_value(), kNone});
  allocate(graph_, zero, {.layout = false});
  fill(graph_, zero, 0.0);
  graph_.end_op({zero});

  found_inf_ = copy(zero);  // one per device
  const TensorRef inverse_here = copy(inverse);
  graph_.leaf_op("aten::_amp_foreach_non_finite_check_and_unscale_",
                 {gradients, found_inf_, inverse_here}, {});
  item(graph_, found_inf_, 0.0);
}

void GradScaler::update() {
  to(graph_, found_inf_, found_inf_, {.non_blocking = true});
  graph_.leaf_op("aten::_amp_update_scale_",
                 {scale_, growth_tracker_, found_inf_, kGrowth, kBackoff, kInterval}, {scale_});
}

TensorRef GradScaler::copy(TensorRef from) {
  const TensorRef made = graph_.new_tensor(DType::kFloat32, {});
  to(graph_, from, made, {.non_blocking = true, .always_copies = true});
  return made;
}

}  // namespace perfmodel
