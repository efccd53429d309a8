#pragma once

#include "kernels/fitted_topology.hpp"

namespace perfmodel {

/// The topology file of a fit: `like` with the curves of all groups, and with the NICs and NCCL's
/// rates of `fitted`.
Result<OrderedJson> topology_json(const TopologyFitStudy& study, const TopologyFit& fit,
                                  const Topology& fitted);

}  // namespace perfmodel
