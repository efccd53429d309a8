#pragma once

#include "../core/cases.hpp"
#include "../kernels/portability.hpp"

/// One element of a library's result, computed again in double precision. Lanes share the terms, so
/// that a block of threads can add them up; on the CPU there is one lane.
namespace kernels_bench::gpu {

/// One set of buffers of a GemmCase.
struct GemmBuffers {
  void *a = nullptr, *b = nullptr, *c = nullptr;
  void* bias = nullptr;  ///< [n]; null without
};

/// One set of buffers of a ConvolutionCase; the direction says which one is written.
struct ConvolutionBuffers {
  void *input = nullptr, *filter = nullptr, *output = nullptr;
};

PM_HD inline double load_number(const void* data, DType dtype, std::int64_t i) {
  switch (dtype) {
    case DType::kBFloat16: return kernels::to_float(static_cast<const kernels::BFloat16*>(data)[i]);
    case DType::kFloat16: return kernels::to_float(static_cast<const kernels::Half*>(data)[i]);
    default: return static_cast<const float*>(data)[i];
  }
}

PM_HD inline double gemm_sum(const GemmCase& g, const GemmBuffers& buffers, std::int64_t element,
                             int lane, int lanes) {
  const std::int64_t j = element % g.n, i = element / g.n % g.m, batch = element / g.n / g.m;
  const std::int64_t a0 = batch * g.m * g.k, b0 = batch * g.k * g.n;
  double sum = buffers.bias != nullptr && lane == 0 ? load_number(buffers.bias, g.dtype, j) : 0;
  for (std::int64_t k = lane; k < g.k; k += lanes) {
    const std::int64_t a = a0 + (g.a_transposed ? k * g.m + i : i * g.k + k);
    const std::int64_t b = b0 + (g.b_transposed ? j * g.k + k : k * g.n + j);
    sum += load_number(buffers.a, g.dtype, a) * load_number(buffers.b, g.dtype, b);
  }
  return sum;
}

/// Input [n, c, h, w], filter [k, c, r, s], output [n, k, p, q].
struct ConvolutionTensors {
  ConvolutionCase point;
  ConvolutionBuffers buffers;

  PM_HD std::int64_t p() const { return output_side(point.h); }
  PM_HD std::int64_t q() const { return output_side(point.w); }
  PM_HD std::int64_t output_side(std::int64_t side) const {
    return (side + 2 * point.pad - point.filter) / point.stride + 1;
  }
  PM_HD std::int64_t input_count() const { return point.n * point.c * point.h * point.w; }
  PM_HD std::int64_t filter_count() const {
    return point.k * point.c * point.filter * point.filter;
  }
  PM_HD std::int64_t output_count() const { return point.n * point.k * p() * q(); }

  PM_HD const void* result() const {
    switch (point.direction) {
      case ConvolutionCase::Direction::kForward: return buffers.output;
      case ConvolutionCase::Direction::kInputGradient: return buffers.input;
      default: return buffers.filter;
    }
  }
  PM_HD std::int64_t result_count() const {
    switch (point.direction) {
      case ConvolutionCase::Direction::kForward: return output_count();
      case ConvolutionCase::Direction::kInputGradient: return input_count();
      default: return filter_count();
    }
  }

  PM_HD double input(std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w) const {
    if (h < 0 || w < 0 || h >= point.h || w >= point.w) return 0;  // padding
    return load_number(buffers.input, point.dtype, ((n * point.c + c) * point.h + h) * point.w + w);
  }
  PM_HD double filter(std::int64_t k, std::int64_t c, std::int64_t r, std::int64_t s) const {
    const std::int64_t i = ((k * point.c + c) * point.filter + r) * point.filter + s;
    return load_number(buffers.filter, point.dtype, i);
  }
  /// By the position times the stride: zero between the strides and outside.
  PM_HD double output(std::int64_t n, std::int64_t k, std::int64_t scaled_p,
                      std::int64_t scaled_q) const {
    if (scaled_p < 0 || scaled_q < 0) return 0;
    if (scaled_p % point.stride != 0 || scaled_q % point.stride != 0) return 0;
    const std::int64_t at_p = scaled_p / point.stride, at_q = scaled_q / point.stride;
    if (at_p >= p() || at_q >= q()) return 0;
    return load_number(buffers.output, point.dtype, ((n * point.k + k) * p() + at_p) * q() + at_q);
  }
};

/// y[n, k, p, q] = sum over c, r, s of x[n, c, p * stride - pad + r, ...] w[k, c, r, s]
PM_HD inline double convolution_forward_sum(const ConvolutionTensors& t, std::int64_t element,
                                            int lane, int lanes) {
  const ConvolutionCase& c = t.point;
  const std::int64_t q = element % t.q(), p = element / t.q() % t.p();
  const std::int64_t k = element / t.q() / t.p() % c.k, n = element / t.q() / t.p() / c.k;
  double sum = 0;
  for (std::int64_t i = lane; i < c.c * c.filter * c.filter; i += lanes) {
    const std::int64_t s = i % c.filter, r = i / c.filter % c.filter, ch = i / c.filter / c.filter;
    sum +=
        t.input(n, ch, p * c.stride - c.pad + r, q * c.stride - c.pad + s) * t.filter(k, ch, r, s);
  }
  return sum;
}

/// dx[n, c, h, w] = sum over k, r, s of dy[n, k, (h + pad - r) / stride, ...] w[k, c, r, s]
PM_HD inline double convolution_input_sum(const ConvolutionTensors& t, std::int64_t element,
                                          int lane, int lanes) {
  const ConvolutionCase& c = t.point;
  const std::int64_t w = element % c.w, h = element / c.w % c.h;
  const std::int64_t ch = element / c.w / c.h % c.c, n = element / c.w / c.h / c.c;
  double sum = 0;
  for (std::int64_t i = lane; i < c.k * c.filter * c.filter; i += lanes) {
    const std::int64_t s = i % c.filter, r = i / c.filter % c.filter, k = i / c.filter / c.filter;
    sum += t.output(n, k, h + c.pad - r, w + c.pad - s) * t.filter(k, ch, r, s);
  }
  return sum;
}

/// dw[k, c, r, s] = sum over n, p, q of dy[n, k, p, q] x[n, c, p * stride - pad + r, ...]
PM_HD inline double convolution_filter_sum(const ConvolutionTensors& t, std::int64_t element,
                                           int lane, int lanes) {
  const ConvolutionCase& c = t.point;
  const std::int64_t s = element % c.filter, r = element / c.filter % c.filter;
  const std::int64_t ch = element / c.filter / c.filter % c.c;
  const std::int64_t k = element / c.filter / c.filter / c.c;
  double sum = 0;
  for (std::int64_t i = lane; i < c.n * t.p() * t.q(); i += lanes) {
    const std::int64_t q = i % t.q(), p = i / t.q() % t.p(), n = i / t.q() / t.p();
    sum += t.output(n, k, p * c.stride, q * c.stride) *
           t.input(n, ch, p * c.stride - c.pad + r, q * c.stride - c.pad + s);
  }
  return sum;
}

PM_HD inline double convolution_sum(const ConvolutionTensors& t, std::int64_t element, int lane,
                                    int lanes) {
  switch (t.point.direction) {
    case ConvolutionCase::Direction::kForward:
      return convolution_forward_sum(t, element, lane, lanes);
    case ConvolutionCase::Direction::kInputGradient:
      return convolution_input_sum(t, element, lane, lanes);
    default: return convolution_filter_sum(t, element, lane, lanes);
  }
}

}  // namespace kernels_bench::gpu
