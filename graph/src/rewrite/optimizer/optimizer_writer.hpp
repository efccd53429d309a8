#pragma once

#include <cstdint>
#include <unordered_map>

#include "perfmodel/graph/rewrites/training.hpp"
#include "rewrite/graph_copy.hpp"
#include "step/optimizer_reader.hpp"

namespace perfmodel {

/// The settings that a group of parameters gets.
OptimizerSettings rewritten_settings(const OptimizerSettings& from, const OptimizerRewrite& rewrite,
                                     const PyTorch& pytorch);

/// Gradients that stand for others, by the index of these in the source.
using OtherGradients = std::unordered_map<std::int64_t, TensorRef>;

/// Writes a step that was read, changed by `rewrite`, under its label, which has been copied.
/// Updates of sparse gradients are copied as they are; gradients of another type than the parameter
/// are cast first.
void write_optimizer_step(GraphCopy& copy, const ReadStep& step, const OptimizerRewrite& rewrite,
                          const OtherGradients& gradients = {});

}  // namespace perfmodel
