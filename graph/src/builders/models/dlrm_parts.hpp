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

/// Rows of the categorical features of Criteo Terabyte in MLPerf, hashed into at most 40 million:
/// as in DLRM (v1.0), and as in DLRM-DCNv2 (v3.0).
const std::vector<std::int64_t>& criteo_rows_mlperf();
const std::vector<std::int64_t>& criteo_rows_mlperf_v3();
/// Lookups per sample of the multi-hot features that MLPerf v3.0 makes of them.
const std::vector<std::int64_t>& criteo_pooling_mlperf_v3();

}  // namespace perfmodel
