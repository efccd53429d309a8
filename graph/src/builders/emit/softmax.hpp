#pragma once

#include "emitter.hpp"

namespace perfmodel {

/// Softmax over one axis; `in_float` asks for float32 as `F.softmax(x, dtype=torch.float32)` does.
TensorRef softmax(AutogradTape& tape, TensorRef x, int dim, bool in_float = false);

/// The kernel's op of the backward pass; `out` is the softmax.
TensorRef softmax_backward(GraphBuilder& graph, TensorRef gradient, TensorRef out, int dim);

/// Softmax over the last axis whose rows without a finite number become 0, as
/// F.scaled_dot_product_attention calls it.
TensorRef safe_softmax(AutogradTape& tape, TensorRef x);

/// Its logarithm; `with_dtype`: as cross_entropy() calls it, with the type that x has.
TensorRef log_softmax(AutogradTape& tape, TensorRef x, int dim, bool with_dtype = false);

}  // namespace perfmodel
