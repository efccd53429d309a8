#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "perfmodel/choose_overheads.hpp"
#include "perfmodel/detail/choose_kernel_models.hpp"
#include "perfmodel/detail/match_step.hpp"
#include "perfmodel/graph/graph_from_trace.hpp"
#include "perfmodel/predictors/topology.hpp"
#include "perfmodel/what_if.hpp"
#include "trace/moved_kernel_times.hpp"

namespace perfmodel {

/// Where the program of one rank is predicted. A name may also be a file.
struct TargetQuestion {
  std::string gpu;                ///< the first target
  std::vector<std::string> gpus;  ///< further targets
  std::string overheads, models = "learned", topology;
  std::int64_t world = 0;  ///< see `PredictOptions::world_size`
  double host_scale = 1;
  TimedStep measured = {};             ///< step of the program as its file has it
  std::vector<NamedRewrite> rewrites;  ///< that `load_target` applies to the program
};

/// A target and all that it points to.
struct LoadedTarget {
  WhatIfTarget target;
  ChosenOverheads overheads;
  Topology topology;  ///< if the question names one
  std::unique_ptr<KernelModel> collectives;
  KernelModels models;
  std::optional<MovedKernelTimes> kernel_times;
  KernelTimes kept_times;  ///< for a rewritten program
};

/// All that predictions of one program on several GPUs need. Targets point into it.
struct TargetInputs {
  ChosenKernelModels chosen;
  RecordedProgram program;
  std::deque<LoadedTarget> loaded;
  std::vector<std::string> warnings;

  const WhatIfTarget& target() const { return loaded.front().target; }
  std::vector<WhatIfTarget> targets() const;
};

/// Fills all of `inputs` except its program, on the first GPU alone. A trace brings its own host,
/// and times of kernels that have no model. `inputs` must not move afterwards. Errors: unknown
/// names, files that cannot be read, rewrites that the program refuses.
Result<void> load_target(const TargetQuestion& question, TargetInputs& inputs);

/// The same on all GPUs, each of them once and each warning once; the models are chosen already.
Result<void> load_targets(const TargetQuestion& question, TargetInputs& inputs);

}  // namespace perfmodel
