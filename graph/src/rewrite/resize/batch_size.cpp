#include "perfmodel/graph/rewrites/resize.hpp"

#include "seeds.hpp"

namespace perfmodel {

Result<ExecutionGraph> set_batch_size(const ExecutionGraph& graph,
                                      const BatchSizeOptions& options) {
  return resize::resized(graph, resize::Symbol::kBatch, options.current, options.batch,
                         options.inputs);
}

Result<std::int64_t> batch_size(const ExecutionGraph& graph) {
  return resize::current_size(graph, resize::Symbol::kBatch);
}

}  // namespace perfmodel
