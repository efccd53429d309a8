#pragma once

#include <optional>

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/graph/rewrites/training.hpp"
#include "step/backward_pass.hpp"

namespace perfmodel {

/// A type of 8 or 4 bits and what shares a scale.
struct NarrowRecipe {
  DType dtype = DType::kFloat8;
  PrecisionOptions::Scaling scaling = PrecisionOptions::Scaling::kDelayed;
};

/// A graph in bf16 or fp16 with the products of its linear layers in a narrow type, as Transformer
/// Engine's recipes compute them; see rewrite_precision(). Nothing where no product can be.
std::optional<ExecutionGraph> narrow_products(const ExecutionGraph& graph, const BackwardPass& pass,
                                              const NarrowRecipe& recipe);

}  // namespace perfmodel
