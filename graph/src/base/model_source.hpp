#pragma once

#include <string_view>

#include "perfmodel/graph/execution_graph.hpp"

namespace perfmodel {

/// The `source` of a known model's graph begins so; the model's name follows. A rewrite drops both:
/// the changed graph is no longer the one that the name builds.
inline constexpr std::string_view kModelSource = "model ";

inline bool is_known_model(const ExecutionGraph& graph) {
  return graph.source.starts_with(kModelSource);
}

}  // namespace perfmodel
