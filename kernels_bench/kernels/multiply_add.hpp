#pragma once

#include "portability.hpp"

namespace kernels_bench::kernels {

/// x = a x + b. One value of fp32, or a pair of halves where instructions work on pairs.
template <class T>
struct MultiplyAdd;

template <>
struct MultiplyAdd<float> {
  static constexpr int kPerStep = 1;
  using Operand = float;
  PM_HD static float broadcast(float value) { return value; }
  PM_HD static float step(float x, float a, float b) { return fmaf(x, a, b); }
  PM_HD static float first(float x) { return x; }
};

template <>
struct MultiplyAdd<Half> {
  static constexpr int kPerStep = 2;
#if PM_CUDA_DEVICE
  using Operand = __half2;
  PM_HD static Operand broadcast(float value) { return __float2half2_rn(value); }
  PM_HD static Operand step(Operand x, Operand a, Operand b) { return __hfma2(x, a, b); }
  PM_HD static float first(Operand x) { return __low2float(x); }
#elif PM_HIP_DEVICE
  using Operand = _Float16 __attribute__((ext_vector_type(2)));
  PM_HD static Operand broadcast(float value) {
    return Operand{static_cast<_Float16>(value), static_cast<_Float16>(value)};
  }
  PM_HD static Operand step(Operand x, Operand a, Operand b) { return x * a + b; }  // contracted
  PM_HD static float first(Operand x) { return static_cast<float>(x[0]); }
#else
  using Operand = Half;
  PM_HD static Operand broadcast(float value) { return from_float<Half>(value); }
  PM_HD static Operand step(Operand x, Operand a, Operand b) {
    return from_float<Half>(fmaf(to_float(x), to_float(a), to_float(b)));
  }
  PM_HD static float first(Operand x) { return to_float(x); }
#endif
};

template <>
struct MultiplyAdd<BFloat16> {
  static constexpr int kPerStep = 2;
#if PM_CUDA_DEVICE && __CUDA_ARCH__ >= 800
  using Operand = __nv_bfloat162;
  PM_HD static Operand broadcast(float value) { return __float2bfloat162_rn(value); }
  PM_HD static Operand step(Operand x, Operand a, Operand b) { return __hfma2(x, a, b); }
  PM_HD static float first(Operand x) { return __low2float(x); }
#else  // no such instruction before compute capability 8.0, nor in AMD's vector units
  using Operand = BFloat16;
  PM_HD static Operand broadcast(float value) { return from_float<BFloat16>(value); }
  PM_HD static Operand step(Operand x, Operand a, Operand b) {
    return from_float<BFloat16>(fmaf(to_float(x), to_float(a), to_float(b)));
  }
  PM_HD static float first(Operand x) { return to_float(x); }
#endif
};

/// Chains of dependent multiply-adds in registers, enough of them to cover the latency of one.
/// Chain c of thread i starts at (c + 1) / 8 and tends to b / (1 - a); out[i] is the sum of the
/// chains.
template <class T>
struct MultiplyAddChains {
  static constexpr int kChains = 8, kThreads = 256;
  float* out;
  float a, b;
  int steps;  ///< a multiple of 8

  /// Multiply-adds of one block and step.
  static constexpr int per_block() { return kThreads * kChains * MultiplyAdd<T>::kPerStep; }

  template <class Block>
  PM_HD void operator()(const Block& block) const {
    using Step = MultiplyAdd<T>;
    const auto factor = Step::broadcast(a), addend = Step::broadcast(b);
    typename Step::Operand x[kChains];
    PM_UNROLL
    for (int c = 0; c < kChains; ++c) x[c] = Step::broadcast(static_cast<float>(c + 1) / kChains);
    for (int step = 0; step < steps; step += 8) {
      PM_UNROLL
      for (int inner = 0; inner < 8; ++inner) {
        PM_UNROLL
        for (int c = 0; c < kChains; ++c) x[c] = Step::step(x[c], factor, addend);
      }
    }
    float sum = 0;
    PM_UNROLL
    for (int c = 0; c < kChains; ++c) sum += Step::first(x[c]);
    out[block.block() * block.threads() + block.thread()] = sum;
  }
};

}  // namespace kernels_bench::kernels
