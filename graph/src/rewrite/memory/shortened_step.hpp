#pragma once

#include <cstddef>
#include <optional>

#include "perfmodel/graph/execution_graph.hpp"

namespace perfmodel {

/// A training step with three and with four layers of its longest stack, to ask what each further
/// layer adds: the layers between the first ones and the last one are left out, with their backward
/// functions and the updates of their parameters.
struct ShortenedStep {
  std::size_t layers = 0;  ///< the whole step has so many in that stack
  ExecutionGraph with_three, with_four;
};

/// Empty: the step has no stack of at least eight layers that one tensor and its gradient connect,
/// or an op of its update belongs to no known optimizer.
std::optional<ShortenedStep> shortened_step(const ExecutionGraph& graph);

}  // namespace perfmodel
