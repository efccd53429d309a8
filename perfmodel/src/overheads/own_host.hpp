#pragma once

#include <optional>
#include <utility>

#include "perfmodel/overheads.hpp"
#include "perfmodel/predictors/gpu.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// Takes the time that the collector of its traces added out of a table, which then describes steps
/// as they run (docs/overheads.md):
///
///   h_i = r_i / s * f_i * sqrt(B / A)
///
/// r_i: term i as recorded; s: slowdown of this recording's host against `reference`, from the ops
/// and calls that both have (`scale_to_shared_ops`); f_i: `reference.without_collector`; A: host
/// time of a step of `graph` by r / s * f, B: by `reference`. The recording says what the program
/// does; the speed of its host comes half from the recording and half from the reference.
///
/// If the recording cannot tell its speed (a second collector ran together with the profiler, no op
/// is shared), B alone tells it. If the recorder is unknown, the table stays. In unusual cases the
/// table's first warnings say what was done. `gpu`: launches are counted for it.
///
/// Errors of a prediction of `graph`.
Result<void> take_collector_out(OverheadTable& table, const OverheadTable& reference,
                                const ExecutionGraph& graph, const Gpu& gpu);

/// Mean length of the steps of a trace, in microseconds: the length of their marks or, if the
/// device falls further back from step to step, from the end of its work of a step to the next
/// one's; the whole trace if it marks no steps.
/// `window`: iterations [first, last) of it.
double recorded_step_us(const Trace& trace,
                        const std::optional<std::pair<std::size_t, std::size_t>>& window = {});

}  // namespace perfmodel
