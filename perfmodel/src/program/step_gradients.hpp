#pragma once

#include <cstdint>
#include <vector>

#include "host_program.hpp"

namespace perfmodel {

/// A gradient of one step.
struct StepGradient {
  std::int32_t item = -1;      ///< its AccumulateGrad
  std::int32_t producer = -1;  ///< item of the backward op before it
  std::int32_t forward = -1;   ///< item of the op that used the parameter
  double bytes = 0;
  DType dtype = DType::kFloat32;
};

/// Per step of the program its gradients of parameters on the GPU, in the order of readiness.
std::vector<std::vector<StepGradient>> step_gradients(const ExecutionGraph& graph,
                                                      const HostProgram& program);

}  // namespace perfmodel
