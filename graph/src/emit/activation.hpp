#pragma once

#include "autograd_tape.hpp"

namespace perfmodel {

TensorRef relu(AutogradTape& tape, TensorRef x);
TensorRef relu_in_place(AutogradTape& tape, TensorRef x);
TensorRef leaky_relu(AutogradTape& tape, TensorRef x, double slope);
TensorRef leaky_relu_in_place(AutogradTape& tape, TensorRef x, double slope);
TensorRef sigmoid(AutogradTape& tape, TensorRef x);

}  // namespace perfmodel
