#include "perfmodel/sharding/detail/dense_time.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/size_limits.hpp"
#include "optimizer_state.hpp"
#include "price/kernel_work.hpp"

namespace perfmodel::sharding {
namespace {

struct Precision {
  DType dtype = DType::kFloat32;
  bool matrix_units = false;
};

std::optional<Precision> precision_of(std::string_view name) {
  if (name == "float32") return Precision{DType::kFloat32, false};
  if (name == "tf32") return Precision{DType::kFloat32, true};
  if (name == "float16") return Precision{DType::kFloat16, true};
  if (name == "bfloat16") return Precision{DType::kBFloat16, true};
  return std::nullopt;
}

OptimizerKind optimizer_kind(TableOptimizer optimizer) {
  if (optimizer == TableOptimizer::kAdam) return OptimizerKind::kAdam;
  return state_numbers(optimizer, 1) > 0 ? OptimizerKind::kAdagrad : OptimizerKind::kSgd;
}

Unexpected refuse_dense(std::string_view expected, auto found) {
  return decline(fmt::format("dense part: expected {}, found {}", expected, found));
}

constexpr double kGradientBytes = 4;  // autocast keeps parameters and gradients in fp32

// Adds kernels up. m samples.
class Layers {
 public:
  Layers(std::int64_t samples, Precision precision, bool fused, const Gpu& gpu,
         const KernelModels& models, DenseTime& result)
      : samples_(samples),
        precision_(precision),
        fused_(fused),
        gpu_(gpu),
        models_(models),
        result_(result) {}

  double kernel(const KernelWork& work) {
    const Price price = models_.price(work, gpu_);
    result_.in_range = result_.in_range && price.in_range;
    return price.time.count();
  }
  double gemm(std::int64_t batch, std::int64_t m, std::int64_t n, std::int64_t k) {
    return kernel(gemm_work({.batch = batch, .m = m, .n = n, .k = k}, precision_.dtype,
                            precision_.matrix_units));
  }
  // `inputs` tensors of samples x width to one.
  double pointwise(std::int64_t width, double inputs) {
    return kernel(elementwise_work(values(width), inputs, 1, precision_.dtype));
  }
  void keep(std::int64_t width) {
    activation_bytes_ += values(width) * static_cast<double>(size_in_bytes(precision_.dtype));
  }
  void add_parameters(std::int64_t in, std::int64_t out) {
    const double weights = static_cast<double>(in) * static_cast<double>(out);
    result_.parameters += weights + static_cast<double>(out);
    parameters_.insert(parameters_.end(), {weights, static_cast<double>(out)});
  }

  void linear(std::int64_t in, std::int64_t out, bool has_relu, bool needs_input_gradient,
              double& forward, double& backward) {
    forward += gemm(1, samples_, out, in);
    backward += gemm(1, in, out, samples_);
    if (needs_input_gradient) backward += gemm(1, samples_, in, out);
    if (!fused_) {
      if (has_relu) {
        forward += pointwise(out, 1);
        backward += pointwise(out, 2);
      }
      backward += kernel(reduction_work(out, samples_, precision_.dtype, true));
    }
    add_parameters(in, out);
    keep(out);
  }

  void mlp(const std::vector<std::int64_t>& widths, bool first_needs_gradient, bool ends_in_relu,
           double& forward, double& backward) {
    for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
      const bool last = i + 2 == widths.size();
      linear(widths[i], widths[i + 1], !last || ends_in_relu, i > 0 || first_needs_gradient,
             forward, backward);
    }
  }

  // Dot products of n vectors of d elements: one batched GEMM, the lower triangle packed.
  void dot_interaction(std::int64_t n, std::int64_t d, double& forward, double& backward) {
    forward += kernel(concat_work(values(n * d), precision_.dtype));
    forward += gemm(samples_, n, n, d);
    forward +=
        kernel(tril_interaction_work(samples_, n, false, RowPass::kForward, precision_.dtype));
    backward +=
        kernel(tril_interaction_work(samples_, n, false, RowPass::kBackward, precision_.dtype));
    backward += gemm(samples_, n, d, n) + pointwise(n * d, 1);
    keep(n * d + n * n);
  }

  // x <- x0 * (W (V x) + b) + x.
  void cross_layer(std::int64_t width, std::int64_t rank, double& forward, double& backward) {
    linear(width, rank, false, true, forward, backward);
    linear(rank, width, false, true, forward, backward);
    forward += pointwise(width, 3);
    backward += pointwise(width, 2) + pointwise(width, 3);
    keep(width);
  }

  double activation_bytes() const { return activation_bytes_; }

  // DistributedDataParallel fills buckets from the last parameter on; the first one is smaller.
  double last_bucket_bytes() const {
    constexpr double kFirst = 1 << 20, kOthers = 25 << 20;
    double bytes = 0, cap = kFirst, last = 0;
    for (std::size_t i = parameters_.size(); i-- > 0;) {
      bytes += kGradientBytes * parameters_[i];
      last = bytes;
      if (bytes < cap) continue;
      bytes = 0;
      cap = kOthers;
    }
    return last;
  }

 private:
  /// Values for all samples: may be more than an integer holds.
  double values(std::int64_t width) const {
    return static_cast<double>(samples_) * static_cast<double>(width);
  }

  const std::int64_t samples_;
  const Precision precision_;
  const bool fused_;
  const Gpu& gpu_;
  const KernelModels& models_;
  DenseTime& result_;
  double activation_bytes_ = 0;
  std::vector<double> parameters_;  ///< elements per tensor
};

constexpr std::int64_t kWidest = 1 << 24, kMostSamples = 1 << 30;

Result<void> check(const DensePart& dense, std::int64_t samples) {
  struct Range {
    const char* what;
    std::int64_t value, most;
  };
  for (const Range& range : {Range{"samples per GPU", samples, kMostSamples},
                             Range{"cross layers", dense.cross_layers, kMostLayers},
                             Range{"columns of a cross layer's rank", dense.cross_rank, kWidest},
                             Range{"elements per pool", dense.pool_stride, kWidest}}) {
    if (range.value < 1 || range.value > range.most) {
      return refuse_dense(fmt::format("1 to {} {}", range.most, range.what), range.value);
    }
  }
  if (!dense.forward_us && dense.top_mlp.empty())
    return refuse_dense("widths of a top MLP", "none");
  for (const auto* widths : {&dense.bottom_mlp, &dense.top_mlp}) {
    for (std::int64_t width : *widths) {
      if (width < 1 || width > kWidest) {
        return refuse_dense(fmt::format("widths from 1 to {}", kWidest), width);
      }
    }
  }
  return {};
}

// Memory that parameters and activations take; gradients are reduced in the layers' type.
void count_memory(DenseTime& time, Precision precision, TableOptimizer optimizer,
                  double activation_bytes) {
  const double item = static_cast<double>(size_in_bytes(precision.dtype));
  const double copies = item < 4 ? item : 0;  // in addition to the fp32 master weights
  time.gradient_bytes = time.parameters * item;
  time.memory_bytes = time.parameters * (4 + copies + item + 4 * state_numbers(optimizer, 1)) +
                      2 * activation_bytes;  // and their gradients
}

}  // namespace

Result<DenseTime> dense_time(const DensePart& dense, std::int64_t samples, std::int64_t vectors,
                             std::int64_t columns, TableOptimizer optimizer, bool fused,
                             const Gpu& gpu, const KernelModels& models) {
  PERFMODEL_TRY_TO(check(dense, samples));
  const auto precision = precision_of(dense.dtype);
  if (!precision) return refuse_dense("float32, tf32, float16 or bfloat16", dense.dtype);
  DenseTime time;
  if (dense.forward_us) {
    time.top_forward_us = *dense.forward_us;
    time.top_backward_us = dense.backward_us.value_or(2 * *dense.forward_us);
    time.parameters = static_cast<double>(dense.parameter_bytes.value_or(0)) / 4;
    count_memory(time, {}, optimizer, 0);
    time.last_bucket_bytes = time.gradient_bytes;
    return time;
  }
  Layers layers(samples, *precision, fused, gpu, models, time);
  layers.mlp(dense.bottom_mlp, false, true, time.bottom_forward_us, time.bottom_backward_us);
  const bool has_bottom = !dense.bottom_mlp.empty();
  const std::int64_t bottom = has_bottom ? dense.bottom_mlp.back() : 0;
  std::int64_t width = columns + bottom;
  double& forward = time.top_forward_us;
  double& backward = time.top_backward_us;
  using Interaction = DensePart::Interaction;
  if (dense.interaction == Interaction::kDot && vectors > 0) {
    const std::int64_t all = vectors + (has_bottom ? 1 : 0);
    layers.dot_interaction(all, columns / vectors, forward, backward);
    width = bottom + all * (all - 1) / 2;
  } else {
    forward += layers.pointwise(width, 1);  // side by side
    backward += layers.pointwise(width, 1);
  }
  if (dense.interaction == Interaction::kLowRankCross) {
    for (std::int64_t i = 0; i < dense.cross_layers; ++i) {
      layers.cross_layer(width, dense.cross_rank, forward, backward);
    }
  } else if (dense.interaction == Interaction::kAveragePool) {
    width = (width + dense.pool_stride - 1) / dense.pool_stride;
  }
  std::vector<std::int64_t> top = {width};
  top.insert(top.end(), dense.top_mlp.begin(), dense.top_mlp.end());
  layers.mlp(top, true, false, forward, backward);
  forward += layers.pointwise(1, 2);  // loss
  backward += layers.pointwise(1, 2);
  time.optimizer_us =
      layers.kernel(optimizer_work(time.parameters, optimizer_kind(optimizer), DType::kFloat32));
  count_memory(time, *precision, optimizer, layers.activation_bytes());
  time.last_bucket_bytes = std::min(time.gradient_bytes, layers.last_bucket_bytes());
  return time;
}

}  // namespace perfmodel::sharding
