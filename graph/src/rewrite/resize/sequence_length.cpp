#include "perfmodel/graph/rewrites/resize.hpp"

#include "seeds.hpp"

namespace perfmodel {

Result<ExecutionGraph> set_sequence_length(const ExecutionGraph& graph,
                                           const SequenceLengthOptions& options) {
  return resize::resized(graph, resize::Symbol::kSequence, options.current, options.length);
}

}  // namespace perfmodel
