#include "dlrm_parts.hpp"

#include "builders/emit/ops.hpp"

namespace perfmodel {

std::vector<DenseLayer> make_layers(const std::vector<std::int64_t>& widths,
                                    const std::function<TensorRef(Shape)>& parameter) {
  std::vector<DenseLayer> layers;
  for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
    const TensorRef weight = parameter({widths[i + 1], widths[i]});
    layers.push_back({weight, parameter({widths[i + 1]})});
  }
  return layers;
}

TensorRef multilayer_perceptron(AutogradTape& tape, TensorRef x,
                                const std::vector<DenseLayer>& layers, bool last_is_plain) {
  for (std::size_t i = 0; i < layers.size(); ++i) {
    x = linear(tape, x, layers[i].weight, layers[i].bias);
    if (i + 1 < layers.size() || !last_is_plain) x = relu(tape, x);
  }
  return x;
}

}  // namespace perfmodel
