#pragma once

#include <array>
#include <vector>

#include "autograd_tape.hpp"

namespace perfmodel {

/// One layer norm: weight and bias, which may be missing, have the extents `width` of the last axes
/// of `x`; each row has a `mean` and an `rstd`.
struct LayerNorm {
  TensorRef x, weight = {}, bias = {};
  Shape width;
  double epsilon = 1e-5;
  TensorRef mean = {}, rstd = {};
};

/// The kernel's op, which fills in `mean` and `rstd`.
TensorRef native_layer_norm(GraphBuilder& graph, LayerNorm& norm, std::int64_t sequence);
/// Gradients of `x`, weight and bias, as far as they are `wanted`.
std::vector<TensorRef> native_layer_norm_backward(GraphBuilder& graph, const LayerNorm& norm,
                                                  TensorRef gradient, std::array<bool, 3> wanted);

/// Over the last axis; weight and bias have its size.
TensorRef layer_norm(AutogradTape& tape, TensorRef x, TensorRef weight, TensorRef bias, double eps);

}  // namespace perfmodel
