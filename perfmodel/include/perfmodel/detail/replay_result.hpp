#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "perfmodel/detail/critical_path.hpp"
#include "perfmodel/detail/job_timeline.hpp"
#include "perfmodel/detail/rank_report.hpp"
#include "perfmodel/graph/chakra.hpp"

namespace perfmodel {

/// The step of a trace that is scheduled again from its own durations. Times in microseconds.
struct Replay {
  struct Iteration {
    std::string name;
    double measured_us = 0;  ///< host wall; 0: the file has no times of it
    double unscaled_us = 0;  ///< replayed with every scale at 1
    double replayed_us = 0;
    double measured_device_period_us = 0;  ///< from the last step's end of device work to its own
    double unscaled_device_period_us = 0;  ///< these three are 0 for the first iteration
    double replayed_device_period_us = 0;
    double data_loading_us = 0;       ///< as measured, in all
    double unrecorded_device_us = 0;  ///< for which nothing that the trace holds kept the device
    bool queue_filling = false;  ///< the launch queue was not full yet, as it is from some step on

    /// Error of the replay itself, as a fraction; 0 without a measurement.
    double error() const { return measured_us > 0 ? unscaled_us / measured_us - 1 : 0; }
    /// The change that the scales make, as a fraction.
    double change() const { return unscaled_us > 0 ? replayed_us / unscaled_us - 1 : 0; }
  };
  /// Over the iterations of all ranks, without iterations with `queue_filling`; periods 0: none.
  struct Medians {
    double measured_us = 0, unscaled_us = 0, replayed_us = 0;
    double measured_device_period_us = 0, replayed_device_period_us = 0;
    std::size_t iterations = 0, left_out = 0;
  };
  struct Rank {
    std::string source;
    std::int64_t rank = -1;
    double clock_offset_us = 0;  ///< its clock less the first trace's
    std::vector<Iteration> iterations;
    double mean_abs_error = 0, worst_abs_error = 0;  ///< over its iterations' error()
    CriticalPath critical_path;                      ///< in its last reported iteration
    RankReport communication;
  };
  std::vector<Rank> ranks;
  std::optional<JobReport> job;     ///< with several ranks
  double mean_abs_error = 0;        ///< over the iterations of all ranks
  double unrecorded_device_us = 0;  ///< mean per iteration
  Medians median;
  std::size_t tasks = 0, edges = 0, inferred_edges = 0;
  std::size_t collectives_matched = 0, collectives_unmatched = 0;
  std::optional<JobTimeline> timeline;  ///< with the critical path of the slowest rank
  std::vector<ChakraTrace> chakra;      ///< one per rank
  std::vector<std::string> warnings;
};

}  // namespace perfmodel
