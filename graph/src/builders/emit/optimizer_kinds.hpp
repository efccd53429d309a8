#pragma once

#include <vector>

#include "optimizer_settings.hpp"

namespace perfmodel {

// One optimizer per file; emit_optimizer() chooses. State exists and no gradient is missing. The
// implementation is resolved.

void emit_sgd(GraphBuilder& graph, const OptimizerSettings& settings,
              const std::vector<ParameterUpdate>& updates);
void emit_adagrad(GraphBuilder& graph, const OptimizerSettings& settings,
                  const std::vector<ParameterUpdate>& updates);
/// Updates one parameter that has a sparse gradient; its step counter is already written.
void update_adagrad_rows(GraphBuilder& graph, const OptimizerSettings& settings,
                         const ParameterUpdate& update);
/// All gradients are sparse.
void emit_sparse_adam(GraphBuilder& graph, const OptimizerSettings& settings,
                      const std::vector<ParameterUpdate>& updates);
void emit_adam(GraphBuilder& graph, const OptimizerSettings& settings,
               const std::vector<ParameterUpdate>& updates);
void emit_bert_adam(GraphBuilder& graph, const OptimizerSettings& settings,
                    const std::vector<ParameterUpdate>& updates);

/// Adam's two means as bitsandbytes keeps them, if there are none yet: 8 bits per number and an
/// fp32 scale for 256 of them; tensors of less than 4,096 numbers keep fp32.
void add_eight_bit_state(GraphBuilder& graph, std::vector<ParameterUpdate>& updates);

/// One field of all updates: `listed(updates, &ParameterUpdate::gradient)`.
std::vector<TensorRef> listed(const std::vector<ParameterUpdate>& updates,
                              TensorRef ParameterUpdate::*field);

/// Step counters go up by one, as `_foreach_*` optimizers count.
void foreach_count(GraphBuilder& graph, const std::vector<TensorRef>& steps);

/// `gradients + weight_decay * parameters` of Adagrad and Adam; 1.13 adds in place.
std::vector<TensorRef> foreach_decayed(GraphBuilder& graph, const OptimizerSettings& settings,
                                       const std::vector<TensorRef>& parameters,
                                       const std::vector<TensorRef>& gradients);

}  // namespace perfmodel
