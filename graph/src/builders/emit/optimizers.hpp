#pragma once

#include <vector>

#include "optimizer_settings.hpp"

namespace perfmodel {

/// The ops inside Optimizer.step. Parameters whose gradient does not exist are passed over. A
/// sparse gradient needs the loop, whatever the settings say; plain SGD, Adagrad and SparseAdam
/// take one.
void emit_optimizer(GraphBuilder& graph, const OptimizerSettings& settings,
                    std::vector<ParameterUpdate> updates);

/// The same with PyTorch's default numbers and state for this step only.
void emit_optimizer(GraphBuilder& graph, TrainingOptions::Optimizer optimizer,
                    TrainingOptions::Implementation implementation,
                    const std::vector<TensorRef>& parameters,
                    const std::vector<TensorRef>& gradients);

/// The ops inside Optimizer.zero_grad on kept gradients: one by one, or as a list if PyTorch 2 uses
/// lists or fused steps.
void zero_gradients(GraphBuilder& graph, TrainingOptions::Implementation implementation,
                    const std::vector<TensorRef>& gradients, std::int64_t sequence);

}  // namespace perfmodel
