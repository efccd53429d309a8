#pragma once

#include <optional>
#include <string>
#include <utility>

#include "perfmodel/overheads.hpp"
#include "perfmodel/predictors/gpu.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// Takes out of a table what the collector of its traces added, so that it is that of steps as they
/// run (docs/overheads.md):
///
///   h_i = r_i / s * f_i * sqrt(B / A)
///
/// r_i: term i as recorded; s: how much slower than `reference` this recording's host was, from the
/// ops and calls that both have (`scale_to_shared_ops`); f_i: `reference.without_collector`; A:
/// host time of a step of `graph` by r / s * f, B: by `reference`. What the program does comes from
/// the recording, how fast its host is half from it and half from the reference.
///
/// Where the recording cannot tell its speed (a second collector ran beside the profiler, no op is
/// shared) B alone tells it. Where what recorded it is not known, the table stays. Warnings of the
/// table begin with what was done where that is not the usual. `gpu`: for which launches are
/// counted.
///
/// Errors: those of a prediction of `graph`.
Result<void> take_collector_out(OverheadTable& table, const OverheadTable& reference,
                                const ExecutionGraph& graph, const Gpu& gpu);

/// Mean length of the steps of a trace, in microseconds: of their marks or, where the device falls
/// behind them, from the end of its work of a step to the next one's; of all of the trace where it
/// marks none.
/// `window`: iterations [first, last) of it.
double recorded_step_us(const Trace& trace,
                        const std::optional<std::pair<std::size_t, std::size_t>>& window = {});

}  // namespace perfmodel
