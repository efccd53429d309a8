#pragma once

#include <cstdint>
#include <optional>

#include "perfmodel/detail/predict_options.hpp"
#include "perfmodel/prediction.hpp"
#include "program/host_facts.hpp"

namespace perfmodel {

struct JobMemory;

/// `predict` with the facts of the graph, or of one that only differs in sizes, and of this table;
/// null: they are found first. They must hold all iterations of the graph. `added_bytes`: the bytes
/// of gradients that each step of the graph reduces, if its collectives were put there for this
/// question. Of a pipeline's `stages`, the slowest is the answer. `memory`: whether to fill the
/// prediction's. `last`: left by the question before, and for the next one; null: neither.
Result<Prediction> predict_with(const ExecutionGraph& graph, const Gpu& gpu,
                                const OverheadTable& table, const HostFacts* facts,
                                const PredictOptions& options,
                                std::optional<double> added_bytes = {}, std::int64_t stages = 1,
                                bool memory = true, JobMemory* last = nullptr);

/// Errors: a graph that a machine without a GPU recorded; a trace that is scaled out.
Result<void> check_input(const ExecutionGraph& graph, const PredictOptions& options);

}  // namespace perfmodel
