#pragma once

#include "perfmodel/prediction.hpp"
#include "perfmodel/sharding/detail/step_needs.hpp"

namespace perfmodel::sharding {

/// The parts of a predicted step of build_torchrec_dlrm(), collectives and streams other than the
/// main one left out. The prediction has its calls; `kernel_gap_us` passes between two kernels.
BatchWork torchrec_step_parts(const Prediction& prediction, double kernel_gap_us);

}  // namespace perfmodel::sharding
