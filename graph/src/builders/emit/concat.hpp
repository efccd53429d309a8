#pragma once

#include "autograd_tape.hpp"

namespace perfmodel {

TensorRef cat(GraphBuilder& graph, const std::vector<TensorRef>& inputs, int dim,
              std::int64_t sequence = -1);
TensorRef stack(GraphBuilder& graph, const std::vector<TensorRef>& inputs, int dim,
                std::int64_t sequence = -1);

TensorRef cat(AutogradTape& tape, const std::vector<TensorRef>& inputs, int dim);

}  // namespace perfmodel
