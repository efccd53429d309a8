#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "perfmodel/detail/match_step.hpp"
#include "perfmodel/graph/graph_from_trace.hpp"
#include "perfmodel/what_if.hpp"
#include "terminal/cli11.hpp"

namespace perfmodel::cli {

/// A step that the user measured, without a profiler.
struct TimedStep {
  std::optional<double> us;
  std::string gpu;         ///< that it ran on; empty: the GPU of the question
  std::int64_t batch = 0;  ///< samples in it; 0: the graph's
};

/// `--measured-step TIME`, `--measured-on GPU`, `--measured-batch N`. What multiplies the host's
/// time (`scale_host`) contradicts it.
void add_measured_step(CLI::App& app, TimedStep& measured, CLI::Option* scale_host);

/// With which scales `program` takes on its GPU what was measured; `target` is the question's, with
/// its host and models. Errors: an unknown GPU, a batch that the graph cannot have, those of
/// `match_step`.
Result<StepScales> match_measured(const TimedStep& measured, const RecordedProgram& program,
                                  const WhatIfTarget& target);

/// "the measured step of 5.100 ms on a100-sxm-80gb says that the host's work takes 0.83 of ..."
std::string measured_sentence(const TimedStep& measured, const StepScales& scales);

}  // namespace perfmodel::cli
