#pragma once

#include <string_view>

#include "perfmodel/diagnosis.hpp"
#include "perfmodel/graph/graph_from_trace.hpp"
#include "perfmodel/layout.hpp"
#include "perfmodel/predictor.hpp"

namespace perfmodel {

/// A layout on a machine; a batch is the global batch. Errors: as the pricer has them.
Result<RunModel> layout_run_model(const Predictor& predictor, const LayoutMachine& machine,
                                  const LayoutJob& job, const ParallelLayout& layout);

/// The graph of one rank, or a trace with shapes in its place, whose kernels are priced again; a
/// batch is one GPU's. Errors: as the predictor has them.
Result<RunModel> graph_run_model(const Predictor& predictor, RecordedProgram program,
                                 std::string_view gpu, const AskOptions& asked);

/// Asks the same question once. Not for several threads.
RunModel remembering(RunModel model);

}  // namespace perfmodel
