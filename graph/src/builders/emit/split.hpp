#pragma once

#include "autograd_tape.hpp"

namespace perfmodel {

/// Pieces of `size` along an axis.
std::vector<TensorRef> split(AutogradTape& tape, TensorRef x, std::int64_t size, int dim);
/// `count` pieces of equal size.
std::vector<TensorRef> chunk(AutogradTape& tape, TensorRef x, int count, int dim);
/// One piece per element of an axis, which goes away.
std::vector<TensorRef> unbind(AutogradTape& tape, TensorRef x, int dim);

}  // namespace perfmodel
