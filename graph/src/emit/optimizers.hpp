#pragma once

#include <string_view>
#include <vector>

#include "graph_builder.hpp"
#include "perfmodel/graph/training_options.hpp"

namespace perfmodel {

/// "SGD", "AdamW", ...: what PyTorch calls it in the labels of step and zero_grad.
std::string_view optimizer_class(TrainingOptions::Optimizer optimizer);

/// What happens inside Optimizer.step: one gradient per parameter, parameters whose gradient does
/// not exist are passed over. A sparse gradient needs the loop, whatever `implementation` says.
void emit_optimizer(GraphBuilder& graph, TrainingOptions::Optimizer optimizer,
                    TrainingOptions::Implementation implementation,
                    const std::vector<TensorRef>& parameters,
                    const std::vector<TensorRef>& gradients);

}  // namespace perfmodel
