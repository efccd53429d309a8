#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/model_source.hpp"
#include "perfmodel/graph/rewrite.hpp"

namespace perfmodel {

/// The model again, built with `batch`, if `graph` is one that `graph_of_model` made and nothing
/// changed since. A built batch may have copies that a smaller one, made larger, lacks. Nothing for
/// other graphs, and for a batch of 0. Builders of models, a floor above, define it.
std::optional<Result<ExecutionGraph>> model_with_batch(const ExecutionGraph& graph,
                                                       std::int64_t batch);
/// The batch that rewrites ask for; 0: none does.
std::int64_t asked_batch(std::span<const NamedRewrite> rewrites);
/// `apply_rewrites`; a known model begins with the batch that they ask for (`model_with_batch`).
Result<ExecutionGraph> rewrite_model(const ExecutionGraph& graph,
                                     std::span<const NamedRewrite> rewrites);

}  // namespace perfmodel
