#pragma once

#include "autograd_tape.hpp"

namespace perfmodel {

TensorRef relu(AutogradTape& tape, TensorRef x);
TensorRef sigmoid(AutogradTape& tape, TensorRef x);

}  // namespace perfmodel
