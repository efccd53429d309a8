#pragma once

#include "autograd_tape.hpp"

namespace perfmodel {

// Tensors that a model makes from nothing, on its device.

/// `torch.empty(shape)`; `with_dtype`: the caller names the type.
TensorRef python_empty(GraphBuilder& graph, DType dtype, const Shape& shape,
                       bool with_dtype = true);
TensorRef ones(GraphBuilder& graph, DType dtype, Shape shape);
TensorRef full(GraphBuilder& graph, Shape shape, double value);
/// torch.arange(0, count) of whole numbers.
TensorRef arange(GraphBuilder& graph, std::int64_t count);
/// Inside an arange: gives `unsized` its size and writes the numbers.
TensorRef fill_arange(GraphBuilder& graph, TensorRef unsized, std::int64_t count);
/// torch.tensor(number): made in host memory, then copied.
TensorRef tensor_of_number(AutogradTape& tape, DType dtype);

}  // namespace perfmodel
