#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "perfmodel/detail/trace_report.hpp"
#include "perfmodel/result.hpp"
#include "perfmodel/trace_analysis.hpp"

namespace perfmodel {

/// What changed from one trace to another of the same program. Times are in microseconds per step,
/// means over the steps; a trace without steps is one.
struct TraceComparison {
  std::size_t steps_before = 0, steps_after = 0;
  double step_before_us = 0, step_after_us = 0;

  /// Parts of a step; before and after add up to the steps.
  struct Term {
    std::string name;  ///< "compute", "exposed_comm", "exposed_memcpy", "idle"
    double before_us = 0, after_us = 0;
  };
  std::vector<Term> terms;

  struct Step {
    std::string before, after;  ///< names
    double before_us = 0, after_us = 0;
  };
  std::vector<Step> steps;  ///< in their order, as many as both have

  /// An op (or one of its kernels) whose count per step or device time differs.
  struct Change {
    std::string op, shapes;  ///< shapes empty: not recorded in one of the traces
    std::string kernel;      ///< of kernels only
    double count_before = 0, count_after = 0;
    double before_us = 0, after_us = 0;  ///< of the op without those inside
    double host_before_us = 0, host_after_us = 0;

    double change_us() const { return after_us - before_us; }
  };
  std::vector<Change> ops, kernels;  ///< largest change first; what is equal is left out

  std::vector<std::string> warnings;
};

/// One trace of a comparison: the same iterations of it, summed up and analysed.
struct ComparedTrace {
  const TraceReport& report;
  const TraceAnalysis& analysis;
};

/// Error: the traces have no op with device work in common.
Result<TraceComparison> compare(const ComparedTrace& before, const ComparedTrace& after);

}  // namespace perfmodel
