#include "activation.hpp"

#include <cmath>
#include <numbers>

#include "pointwise.hpp"

namespace perfmodel {

// 0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)))
TensorRef gelu_new(AutogradTape& tape, TensorRef x) {
  const TensorRef half = mul(tape, x, 0.5);
  const TensorRef cube = mul(tape, pow(tape, x, 3.0), 0.044715);
  const TensorRef inner = mul(tape, add(tape, x, cube), std::sqrt(2.0 / std::numbers::pi));
  return mul(tape, half, add(tape, tanh(tape, inner), 1.0));
}

}  // namespace perfmodel
