#pragma once

#include "autograd_tape.hpp"

namespace perfmodel {

TensorRef cat(AutogradTape& tape, const std::vector<TensorRef>& inputs, int dim);

}  // namespace perfmodel
