#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "perfmodel/graph/trace.hpp"
#include "perfmodel/result.hpp"
#include "perfmodel/trace_analysis.hpp"

namespace perfmodel {

/// Traces of several ranks of one job: who makes whom wait. Times are in microseconds, clocks are
/// aligned by the ends of the collectives that match.
struct TraceRanks {
  struct Rank {
    std::string source;
    double compute_us = 0, comm_us = 0, exposed_comm_us = 0;  ///< see TraceAnalysis::Breakdown
    std::size_t last_arrivals = 0;                            ///< collectives that it joined last
    double waiting_us = 0;  ///< in collectives, until the last rank came
    double caused_us = 0;   ///< waiting of the others where it came last
    double clock_offset_us = 0;
  };
  std::vector<Rank> ranks;
  std::optional<std::size_t> straggler;  ///< the rank that causes most waiting
  double compute_imbalance = 0;          ///< compute of the busiest rank over the mean, minus 1
  std::size_t matched = 0, unmatched = 0;
  /// Over all ranks; bandwidths count from the last rank's start to the first one's end.
  std::vector<TraceAnalysis::Collective> collectives;
  std::vector<std::string> warnings;
};

/// Errors: two traces of one rank, or traces of jobs of different sizes, as far as they tell.
Result<void> check_ranks_of_job(std::span<const Trace> traces);

/// Errors: as `check_ranks_of_job` and matching collectives; fewer iterations than the window asks
/// for.
Result<TraceRanks> compare_ranks(std::span<const Trace> traces,
                                 const std::optional<std::pair<std::size_t, std::size_t>>& window);

/// All events of all ranks on one clock, a process each, as a Chrome trace (`.json` or `.json.gz`).
/// `ranks`: what compare_ranks made of the same traces.
Result<void> write_ranks_timeline(std::span<const Trace> traces, const TraceRanks& ranks,
                                  const std::filesystem::path& file);

}  // namespace perfmodel
