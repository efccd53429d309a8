#pragma once

#include "perfmodel/graph/rewrites/training.hpp"
#include "rewrite/graph_copy.hpp"
#include "step/optimizer_reader.hpp"
#include "step/values.hpp"

namespace perfmodel {

/// The step with the settings that `rewrite` gives its groups, without the state that these do not
/// use.
ReadStep rewritten_step(ReadStep step, const OptimizerRewrite& rewrite, const PyTorch& pytorch);

/// Writes a step under its label, which has been copied. Updates of sparse gradients are copied as
/// they are; gradients of another type than the parameter are cast first. `others`: tensors that
/// parameters and gradients have become.
void write_optimizer_step(GraphCopy& copy, const ReadStep& step,
                          const FactsOfValues<TensorRef>* others = nullptr);

}  // namespace perfmodel
