#pragma once

#include "emitter.hpp"

namespace perfmodel {

// Elementwise ops that overwrite their first operand, as PyTorch's own recurrent cells use them.

// These two keep a copy of `x` for the backward pass.
void mul_in_place(AutogradTape& tape, TensorRef x, TensorRef other);
/// The calls of hardtanh in place once the copy is made.
void clamp_as_hardtanh(GraphBuilder& graph, TensorRef x, const Value& low, const Value& high);
void hardtanh_in_place(AutogradTape& tape, TensorRef x, int low, int high);

}  // namespace perfmodel
