#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "builders/emit/autograd_tape.hpp"

namespace perfmodel {

// Shared parts of all DLRMs.

struct DenseLayer {
  TensorRef weight, bias;
};

/// `parameter` makes a float32 parameter of a shape.
std::vector<DenseLayer> make_layers(const std::vector<std::int64_t>& widths,
                                    const std::function<TensorRef(Shape)>& parameter);

/// Linear layers, each followed by ReLU; with `last_is_plain` the last one is not.
TensorRef multilayer_perceptron(AutogradTape& tape, TensorRef x,
                                const std::vector<DenseLayer>& layers, bool last_is_plain = false);

}  // namespace perfmodel
