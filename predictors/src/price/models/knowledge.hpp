#pragma once

#include "perfmodel/predictors/kernel.hpp"

namespace perfmodel {

/// How near to this GPU the heuristic's figures were fitted or checked, by `measured_kernels` of
/// the architecture. An entry that names no type counts for all types; fp16 counts as bf16, since
/// matrix units run both at one rate.
Knowledge heuristic_knowledge(const KernelWork& work, const Gpu& gpu);

/// The same models, whose prices say what is known. If such kernels were not measured on the
/// architecture, the ends of the range are twice as far from the price, as ratios:
///
///   low, high = t (low / t)^2, t (high / t)^2
///
/// With the figures of another architecture the errors of bf16 products grow by a factor of 2 to 3
/// (docs/kernel_models.md). Collectives speak for themselves.
KernelModels with_knowledge(const KernelModels& heuristics);

}  // namespace perfmodel
