#include <algorithm>
#include <cmath>

#include "libraries.hpp"

namespace kernels_bench::gpu {
namespace {

/// Largest error of a sampling kernel's output, relative to the largest reference value.
Outcome<double> compare(Context& context, const Samples* device_samples, double tolerance) {
  Samples samples;
  if (auto copied = context.download(&samples, device_samples, sizeof samples); !copied) {
    return tl::unexpected(copied.error());
  }
  double largest = 0, error = 0;
  for (int i = 0; i < Samples::kCount; ++i) {
    largest = std::max(largest, std::abs(samples.reference[i]));
    const double difference = std::abs(samples.found[i] - samples.reference[i]);
    error = std::isfinite(difference) ? std::max(error, difference) : INFINITY;
  }
  error /= largest > 0 ? largest : 1;
  if (error <= tolerance) return error;
  return tl::unexpected(Failure{FailureKind::kWrongResult, "off by " + std::to_string(error) +
                                                               " of the largest value, expected " +
                                                               std::to_string(tolerance)});
}

/// Allocates buffers and fills inputs with numbers in [-1, 1), outputs with NaN.
Outcome<void*> make_tensor(Context& context, DType dtype, std::int64_t count, bool written) {
  auto data = context.allocate(count * bytes_of(dtype));
  if (!data) return data;
  if (written) {
    GPU_TRY(GPU(MemsetAsync)(*data, 0xff, static_cast<std::size_t>(count * bytes_of(dtype)),
                             context.stream()));
  } else if (auto filled = context.fill_uniform(*data, dtype, count, -1, 1); !filled) {
    return tl::unexpected(filled.error());
  }
  return data;
}

class GemmWorkload final : public Workload {
 public:
  GemmWorkload(const GemmCase& point, MatrixLibrary& library) : point_(point), library_(library) {}

  std::int64_t bytes_per_copy() const override {
    return (a_count() + b_count() + c_count() + bias_count()) * bytes_of(point_.dtype);
  }

  Outcome<void> prepare(Context& context, int copies) override {
    if (auto fit = check_sizes({point_.batch, point_.m, point_.n, point_.k}); !fit) return fit;
    auto gemm = library_.make_gemm(point_);
    if (!gemm) return tl::unexpected(gemm.error());
    gemm_ = std::move(*gemm);
    for (int i = 0; i < copies; ++i) {
      const auto a = make_tensor(context, point_.dtype, a_count(), false);
      const auto b = make_tensor(context, point_.dtype, b_count(), false);
      const auto c = make_tensor(context, point_.dtype, c_count(), true);
      const auto bias = make_tensor(context, point_.dtype, bias_count(), false);
      for (const auto* tensor : {&a, &b, &c, &bias}) {
        if (!*tensor) return tl::unexpected(tensor->error());
      }
      copies_.push_back({*a, *b, *c, point_.bias ? *bias : nullptr});
    }
    return {};
  }

  Outcome<void> launch(int copy, Stream stream) override {
    return gemm_->launch(copies_[static_cast<std::size_t>(copy)], stream);
  }

  Outcome<double> check(Context& context) override {
    auto samples = context.allocate(sizeof(Samples));
    if (!samples) return tl::unexpected(samples.error());
    if (auto launched = launch(0, context.stream()); !launched) {
      return tl::unexpected(launched.error());
    }
    auto* const result = static_cast<Samples*>(*samples);
    GPU_TRY(launch_gemm_samples(point_, copies_[0], result, context.stream()));
    return compare(context, result, tolerance());
  }

  std::string kernel() const override { return gemm_ ? gemm_->kernel() : std::string(); }

 private:
  std::int64_t a_count() const { return point_.batch * point_.m * point_.k; }
  std::int64_t b_count() const { return point_.batch * point_.k * point_.n; }
  std::int64_t c_count() const { return point_.batch * point_.m * point_.n; }
  std::int64_t bias_count() const { return point_.bias ? point_.n : 0; }

  /// fp32: rounding of up to 32768 sums. tf32 rounds the factors to 11 bits, halves round the
  /// result and, where K is split, partial sums: to 8 bits for bf16.
  double tolerance() const {
    switch (point_.dtype) {
      case DType::kFloat32: return 1e-4;
      case DType::kBFloat16: return 2e-2;
      default: return 5e-3;
    }
  }

  GemmCase point_;
  MatrixLibrary& library_;
  std::unique_ptr<Gemm> gemm_;
  std::vector<GemmBuffers> copies_;
};

class ConvolutionWorkload final : public Workload {
  using Direction = ConvolutionCase::Direction;

 public:
  ConvolutionWorkload(const ConvolutionCase& point, ConvolutionLibrary& library)
      : point_(point), library_(library) {}

  Timing timing() const override { return convolution_ ? convolution_->timing() : Timing::kGraph; }

  std::int64_t bytes_per_copy() const override {
    if (point_.stride < 1) return 0;  // refused by prepare
    const ConvolutionTensors t = tensors();
    return (t.input_count() + t.filter_count() + t.output_count()) * bytes_of(point_.dtype);
  }

  Outcome<void> prepare(Context& context, int copies) override {
    if (auto fit = check_sizes({point_.n, point_.c, point_.h, point_.w, point_.k, point_.filter,
                                point_.stride, point_.pad + 1});
        !fit) {
      return fit;
    }
    const ConvolutionTensors t = tensors();
    if (auto fit = check_sizes({t.p(), t.q()}); !fit) return fit;
    auto convolution = library_.make_convolution(point_, context.stream());
    if (!convolution) return tl::unexpected(convolution.error());
    convolution_ = std::move(*convolution);
    // Shared by all copies, as PyTorch's allocator hands out the same block again and again.
    const auto workspace = context.allocate(convolution_->workspace_bytes());
    if (!workspace) return tl::unexpected(workspace.error());
    workspace_ = *workspace;
    for (int i = 0; i < copies; ++i) {
      const auto tensor = [&](std::int64_t count, Direction writer) {
        return make_tensor(context, point_.dtype, count, point_.direction == writer);
      };
      const auto input = tensor(t.input_count(), Direction::kInputGradient);
      const auto filter = tensor(t.filter_count(), Direction::kWeightGradient);
      const auto output = tensor(t.output_count(), Direction::kForward);
      for (const auto* made : {&input, &filter, &output}) {
        if (!*made) return tl::unexpected(made->error());
      }
      copies_.push_back({*input, *filter, *output});
    }
    return {};
  }

  Outcome<void> launch(int copy, Stream stream) override {
    return convolution_->launch(copies_[static_cast<std::size_t>(copy)], workspace_, stream);
  }

  Outcome<double> check(Context& context) override {
    auto samples = context.allocate(sizeof(Samples));
    if (!samples) return tl::unexpected(samples.error());
    if (auto launched = launch(0, context.stream()); !launched) {
      return tl::unexpected(launched.error());
    }
    auto* const result = static_cast<Samples*>(*samples);
    GPU_TRY(launch_convolution_samples(point_, copies_[0], result, context.stream()));
    return compare(context, result, tolerance());
  }

  std::string kernel() const override {
    return convolution_ ? convolution_->kernel() : std::string();
  }

 private:
  ConvolutionTensors tensors() const { return {point_, {}}; }

  /// Wider than a GEMM's: Winograd and FFT algorithms lose digits.
  double tolerance() const {
    switch (point_.dtype) {
      case DType::kFloat32: return 1e-3;
      case DType::kTf32: return 1e-2;
      default: return 3e-2;
    }
  }

  ConvolutionCase point_;
  ConvolutionLibrary& library_;
  std::unique_ptr<Convolution> convolution_;
  void* workspace_ = nullptr;
  std::vector<ConvolutionBuffers> copies_;
};

}  // namespace

std::unique_ptr<Workload> make_gemm(const GemmCase& point, MatrixLibrary& library) {
  return std::make_unique<GemmWorkload>(point, library);
}

std::unique_ptr<Workload> make_convolution(const ConvolutionCase& point,
                                           ConvolutionLibrary& library) {
  return std::make_unique<ConvolutionWorkload>(point, library);
}

}  // namespace kernels_bench::gpu
