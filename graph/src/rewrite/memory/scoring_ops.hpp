#pragma once

#include <cstdint>
#include <vector>

#include "step/step_view.hpp"

namespace perfmodel {

/// The ops of additive attention (Bahdanau et al. 2015) that make tanh(query + key), once per step
/// of a decoder: a sum in which one side is broadcast, a layer norm if there is one, a tanh. Both
/// sides have a gradient: a bias has no producer. Outermost nodes of the forward pass.
std::vector<std::vector<std::int32_t>> scoring_ops(const StepView& step);

}  // namespace perfmodel
