#pragma once

#include "autograd_tape.hpp"

namespace perfmodel {

// Elementwise ops that overwrite their first operand, as PyTorch's own recurrent cells use them.

void sigmoid_in_place(AutogradTape& tape, TensorRef x);
void tanh_in_place(AutogradTape& tape, TensorRef x);
void add_in_place(AutogradTape& tape, TensorRef x, TensorRef other);
/// Keeps a copy of `x` for the gradient of `other`.
void mul_in_place(AutogradTape& tape, TensorRef x, TensorRef other);

}  // namespace perfmodel
