#pragma once

#include <span>
#include <vector>

#include "perfmodel/trace_analysis.hpp"
#include "record/match_collectives.hpp"
#include "trace/trace_selection.hpp"

namespace perfmodel {

/// The chosen collectives of one rank in start order, with stamps on its own clock.
std::vector<RankCollective> collectives_of(const Trace& trace, const TraceSelection& chosen);

/// Collectives of one name, size and group together, longest total first.
std::vector<TraceAnalysis::Collective> collective_table(const Trace& trace,
                                                        const TraceSelection& chosen);

/// Bytes that each rank's link carries for one byte of the whole buffer, as nccl-tests counts.
/// Nothing for a kind or a number of ranks that it does not know.
std::optional<double> bus_factor(std::string_view kind, std::optional<std::int64_t> ranks);

}  // namespace perfmodel
