#pragma once

#include <optional>

#include "perfmodel/graph/rewrites/training.hpp"
#include "step/step_view.hpp"

namespace perfmodel {

/// A graph in bf16 or fp16 with the products of its linear layers in 8 bits, or with kNv16 in 4, as
/// Transformer Engine's recipes compute them; see rewrite_precision(). Nothing where no product can
/// be.
std::optional<ExecutionGraph> narrow_products(const StepView& step,
                                              PrecisionOptions::Scaling scaling);

}  // namespace perfmodel
