#pragma once

#include "autograd_tape.hpp"

namespace perfmodel {

/// Softmax over one axis; `in_float` asks for float32 as `F.softmax(x, dtype=torch.float32)` does.
TensorRef softmax(AutogradTape& tape, TensorRef x, int dim, bool in_float = false);

}  // namespace perfmodel
