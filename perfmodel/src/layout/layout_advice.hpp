#pragma once

#include <string>

#include "perfmodel/detail/advice.hpp"
#include "perfmodel/graph/execution_graph.hpp"

namespace perfmodel {

struct LayoutAdviceQuestion {
  std::string gpu, topology;  ///< as the command line names them
  std::string machine_flags;  ///< " --gpu G --topology T"
  std::int64_t world = 1;
  double host_scale = 1;
};

/// The answer of the layout search for the job of which the graph is one data-parallel rank.
/// Errors: a graph that no layout is known of, no layout that fits.
Result<LayoutPlanAdvice> layout_advice(const ExecutionGraph& graph,
                                       const LayoutAdviceQuestion& question);

}  // namespace perfmodel
