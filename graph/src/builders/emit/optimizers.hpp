#pragma once

#include <vector>

#include "optimizer_settings.hpp"

namespace perfmodel {

/// What happens inside Optimizer.step. Parameters whose gradient does not exist are passed over. A
/// sparse gradient needs the loop, whatever the settings say; plain SGD, Adagrad and SparseAdam
/// take one.
void emit_optimizer(GraphBuilder& graph, const OptimizerSettings& settings,
                    std::vector<ParameterUpdate> updates);

/// The same with PyTorch's default numbers and state that this step alone knows.
void emit_optimizer(GraphBuilder& graph, TrainingOptions::Optimizer optimizer,
                    TrainingOptions::Implementation implementation,
                    const std::vector<TensorRef>& parameters,
                    const std::vector<TensorRef>& gradients);

/// What happens inside Optimizer.zero_grad to gradients that are kept: zeroed one by one, but as a
/// list where PyTorch 2 was told to use lists or fused steps.
void zero_gradients(GraphBuilder& graph, TrainingOptions::Implementation implementation,
                    const std::vector<TensorRef>& gradients, std::int64_t sequence);

}  // namespace perfmodel
