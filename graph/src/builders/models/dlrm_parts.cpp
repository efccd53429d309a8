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

const std::vector<std::int64_t>& criteo_rows_mlperf() {
  static const std::vector<std::int64_t> kRows = {
      39884406, 39043,    17289,    7420,     20263,  3,     7120, 1543, 63,
      38532951, 2953546,  403346,   10,       2208,   11938, 155,  4,    976,
      14,       39979771, 25641295, 39664984, 585935, 12972, 108,  36};
  return kRows;
}

const std::vector<std::int64_t>& criteo_rows_mlperf_v3() {
  static const std::vector<std::int64_t> kRows = {
      40000000, 39060,    17295,    7424,     20265,  3,     7122, 1543, 63,
      40000000, 3067956,  405282,   10,       2209,   11938, 155,  4,    976,
      14,       40000000, 40000000, 40000000, 590152, 12973, 108,  36};
  return kRows;
}

const std::vector<std::int64_t>& criteo_pooling_mlperf_v3() {
  static const std::vector<std::int64_t> kPooling = {3, 2, 1, 2, 6, 1, 1,  1,   1,  7,  3, 8, 1,
                                                     6, 9, 5, 1, 1, 1, 12, 100, 27, 10, 3, 1, 1};
  return kPooling;
}

}  // namespace perfmodel
