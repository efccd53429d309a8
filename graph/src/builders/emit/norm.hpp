#pragma once

#include "autograd_tape.hpp"

namespace perfmodel {

/// Over the last axis; weight and bias have its size.
TensorRef layer_norm(AutogradTape& tape, TensorRef x, TensorRef weight, TensorRef bias, double eps);

/// weight * x / sqrt(mean(x^2) + eps) over the last axis, written out in pointwise ops as T5 and
/// Llama of HuggingFace do (Zhang & Sennrich 2019). T5 takes the type of x as it is; Llama goes
/// through float32, which is an op even where x has that type (`through_float`).
TensorRef rms_norm(AutogradTape& tape, TensorRef x, TensorRef weight, double eps,
                   bool through_float);

/// The same in one kernel, `aten::_fused_rms_norm`, which keeps the reciprocal of the root per row.
TensorRef fused_rms_norm(AutogradTape& tape, TensorRef x, TensorRef weight, double eps);

}  // namespace perfmodel
