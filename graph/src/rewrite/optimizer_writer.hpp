#pragma once

#include "graph_copy.hpp"
#include "optimizer_reader.hpp"
#include "perfmodel/graph/rewrites/training.hpp"

namespace perfmodel {

/// The settings that a group of parameters gets.
OptimizerSettings rewritten_settings(const OptimizerSettings& from, const OptimizerRewrite& rewrite,
                                     const PyTorch& pytorch);

/// Writes a step that was read, changed by `rewrite`, under its label, which has been copied.
/// Updates of sparse gradients are copied as they are.
void write_optimizer_step(GraphCopy& copy, const ReadStep& step, const OptimizerRewrite& rewrite);

}  // namespace perfmodel
