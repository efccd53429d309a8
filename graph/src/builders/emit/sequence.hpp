#pragma once

#include <vector>

#include "autograd_tape.hpp"

namespace perfmodel {

/// Equal tensors side by side along a new axis `dim` that is not the last one.
TensorRef stack(AutogradTape& tape, const std::vector<TensorRef>& parts, int dim);

/// Equal parts along `dim` that the caller may change in place: PyTorch's own cells call it.
std::vector<TensorRef> unsafe_chunk(AutogradTape& tape, TensorRef x, int parts, int dim);

}  // namespace perfmodel
