#pragma once

#include "team.hpp"

namespace kernels_bench::kernels {

/// Added by AddScalar; factor of the product in Addcmul.
inline constexpr float kScalar = 0.5F;

struct Relu {
  static constexpr int kInputs = 1;
  PM_HD static float apply(const float (&x)[1]) { return x[0] > 0 ? x[0] : 0; }
};

struct Gelu {  // with erf, as PyTorch's default
  static constexpr int kInputs = 1;
  PM_HD static float apply(const float (&x)[1]) {
    return 0.5F * x[0] * (1 + erff(x[0] * 0.70710678118654752F));
  }
};

struct Tanh {
  static constexpr int kInputs = 1;
  PM_HD static float apply(const float (&x)[1]) { return tanhf(x[0]); }
};

struct Sigmoid {
  static constexpr int kInputs = 1;
  PM_HD static float apply(const float (&x)[1]) { return 1 / (1 + expf(-x[0])); }
};

struct Exp {
  static constexpr int kInputs = 1;
  PM_HD static float apply(const float (&x)[1]) { return expf(x[0]); }
};

struct AddScalar {
  static constexpr int kInputs = 1;
  PM_HD static float apply(const float (&x)[1]) { return x[0] + kScalar; }
};

struct Add {
  static constexpr int kInputs = 2;
  PM_HD static float apply(const float (&x)[2]) { return x[0] + x[1]; }
};

struct Mul {
  static constexpr int kInputs = 2;
  PM_HD static float apply(const float (&x)[2]) { return x[0] * x[1]; }
};

struct Addcmul {
  static constexpr int kInputs = 3;
  PM_HD static float apply(const float (&x)[3]) { return x[0] + kScalar * x[1] * x[2]; }
};

/// One result per element, 16 bytes per load and at least four loads in flight; tensors begin at a
/// multiple of 16 bytes.
template <class Op, class T>
struct Elementwise {
  static constexpr int kInputs = Op::kInputs, kVector = kWidest<T>;
  static constexpr int kUnroll = kInputs == 1 ? 4 : 2;
  const T* in[kInputs];
  T* out;
  std::int64_t elements;

  std::int64_t items() const { return ceil_divide(elements, kVector); }

  template <class Block>
  PM_HD void operator()(const Block& block) const {
    const std::int64_t vectors = elements / kVector;
    visit_tiles<kUnroll>(block, vectors, [&](std::int64_t first) {
      Vector<T, kVector> loaded[kUnroll][kInputs] = {};
      PM_UNROLL
      for (int u = 0; u < kUnroll; ++u) {
        const std::int64_t i = first + static_cast<std::int64_t>(u) * block.threads();
        if (i >= vectors) break;
        PM_UNROLL
        for (int n = 0; n < kInputs; ++n) loaded[u][n] = load<kVector>(in[n] + i * kVector);
      }
      PM_UNROLL
      for (int u = 0; u < kUnroll; ++u) {
        const std::int64_t i = first + static_cast<std::int64_t>(u) * block.threads();
        if (i >= vectors) break;
        Vector<T, kVector> result;
        PM_UNROLL
        for (int k = 0; k < kVector; ++k) {
          float x[kInputs] = {};
          PM_UNROLL
          for (int n = 0; n < kInputs; ++n) x[n] = to_float(loaded[u][n].values[k]);
          result.values[k] = from_float<T>(Op::apply(x));
        }
        store(out + i * kVector, result);
      }
    });
    if (block.block() != 0) return;
    for (std::int64_t i = vectors * kVector + block.thread(); i < elements; i += block.threads()) {
      float x[kInputs] = {};
      for (int n = 0; n < kInputs; ++n) x[n] = to_float(in[n][i]);
      out[i] = from_float<T>(Op::apply(x));
    }
  }
};

}  // namespace kernels_bench::kernels
