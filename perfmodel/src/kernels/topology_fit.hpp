#pragma once

#include "kernels/fitted_topology.hpp"

namespace perfmodel {

/// Fits a topology to logs. Errors: what `read_nccl_logs` refuses, unknown names, a group that the
/// topology cannot hold, too few sizes (with those that are missing).
Result<TopologyFit> fit_topology(const TopologyFitStudy& study);

}  // namespace perfmodel
