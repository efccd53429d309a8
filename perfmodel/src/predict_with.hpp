#pragma once

#include "host_facts.hpp"
#include "perfmodel/predict.hpp"

namespace perfmodel {

/// `predict` with the facts of the graph, or of one that differs in sizes alone, and of this table;
/// null: they are found first. They must hold all iterations of the graph.
Result<Prediction> predict_with(const ExecutionGraph& graph, const Gpu& gpu,
                                const OverheadTable& table, const HostFacts* facts,
                                const PredictOptions& options);

}  // namespace perfmodel
