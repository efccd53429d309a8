#pragma once

#include "autograd_tape.hpp"

namespace perfmodel {

/// nn.Dropout in training: zero with this probability, the rest scaled up. With 0 the op hands its
/// input on.
TensorRef dropout(AutogradTape& tape, TensorRef x, double probability);

}  // namespace perfmodel
