#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "perfmodel/detail/trace_report.hpp"
#include "perfmodel/graph/trace.hpp"
#include "perfmodel/prediction.hpp"
#include "perfmodel/result.hpp"
#include "perfmodel/trace_analysis.hpp"

namespace perfmodel {

/// The changes from one recording or prediction of a step to another. Times are in microseconds per
/// step, means over the steps; a trace without steps is one.
struct TraceComparison {
  std::size_t steps_before = 0, steps_after = 0;
  double step_before_us = 0, step_after_us = 0;

  /// A part of a step.
  struct Term {
    std::string name;
    double before_us = 0, after_us = 0;
  };
  /// Terms of the device: "compute", "exposed_comm", "exposed_memcpy", "idle". They add up to the
  /// step.
  std::vector<Term> terms;
  /// Terms of the host: "t1" to "tx" (see OverheadTable) and "wait". They add up to the step as
  /// well. Only a prediction against a trace has them.
  std::vector<Term> host_terms;

  struct Step {
    std::string before, after;  ///< names
    double before_us = 0, after_us = 0;
  };
  std::vector<Step> steps;  ///< in their order, as many as both have

  /// An op (or one of its kernels, or a family of kernels) whose count per step or time differs.
  struct Change {
    std::string op, shapes;  ///< shapes empty: not recorded in one of the traces
    std::string kernel;      ///< name of the kernel, or of the family
    double count_before = 0, count_after = 0;
    double before_us = 0, after_us = 0;  ///< device time
    double host_before_us = 0, host_after_us = 0;

    double change_us() const { return after_us - before_us; }
    double host_change_us() const { return host_after_us - host_before_us; }
  };
  std::vector<Change> ops, kernels;  ///< largest change first; what is equal is left out
  std::vector<Change> families;      ///< all of them, longest first; of predictions only

  std::vector<std::string> warnings;
};

/// One trace of a comparison: the same iterations of it, summed up and analysed.
struct ComparedTrace {
  const TraceReport& report;
  const TraceAnalysis& analysis;
};

/// Ops are those that launch the work themselves, by name and shapes; by name where one of the
/// traces has no shapes. Error: the traces have no op with device work in common.
Result<TraceComparison> compare(const ComparedTrace& before, const ComparedTrace& after);

/// Compares the step that a trace measured ("before") with its prediction ("after"). Ops are
/// top-level ones: their device time includes all ops within, their host time goes from the end of
/// the op before to their own, waits aside. `kernels` are the families that each op launches. All
/// rows stay, also equal ones. `iterations`: [first, last) of the trace.
///
/// Errors: fewer iterations than asked for; no device work; no op with device work in common; a
/// prediction without ops.
Result<TraceComparison> compare(
    const Trace& measured, const Prediction& predicted,
    const std::optional<std::pair<std::size_t, std::size_t>>& iterations = {});

}  // namespace perfmodel
