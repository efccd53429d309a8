#pragma once

#include "autograd_tape.hpp"
#include "graph_reduction.hpp"

namespace perfmodel {

// Sums and means that are recorded for the backward pass; axes as in graph_reduction.hpp.

TensorRef sum(AutogradTape& tape, TensorRef x);
TensorRef sum(AutogradTape& tape, TensorRef x, const Shape& axes, bool keep_axes);
TensorRef mean(AutogradTape& tape, TensorRef x);
TensorRef mean(AutogradTape& tape, TensorRef x, const Shape& axes, bool keep_axes);
TensorRef divide(AutogradTape& tape, TensorRef x, std::int64_t count);

}  // namespace perfmodel
