#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/predict/measured_step_option.hpp"
#include "perfmodel/choose_overheads.hpp"
#include "perfmodel/detail/choose_kernel_models.hpp"
#include "perfmodel/graph/detail/read_options.hpp"
#include "perfmodel/graph/graph_from_trace.hpp"
#include "perfmodel/what_if.hpp"
#include "trace/moved_kernel_times.hpp"

namespace perfmodel::cli {

/// Where one rank's program is predicted, as flags say.
struct TargetArguments {
  std::string gpu, overheads, models = "learned", topology;
  double host_scale = 1;
  TimedStep measured = {};
};

/// What a WhatIfTarget points to.
struct TargetInputs {
  ChosenKernelModels chosen;
  RecordedProgram program;
  ChosenOverheads overheads;
  std::unique_ptr<KernelModel> collectives;
  std::optional<KernelModels> models;
  std::optional<MovedKernelTimes> kernel_times;
  WhatIfTarget target;
  std::vector<std::string> warnings;
};

/// Fills all of `inputs` but its program, which stands there. A trace brings
/// its own host, and times of kernels that have no model. `inputs` must not move afterwards.
/// Errors: unknown names, those of readers.
Result<void> load_target(const TargetArguments& arguments, TargetInputs& inputs);

}  // namespace perfmodel::cli
