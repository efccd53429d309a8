#pragma once

#include <memory>

#include "perfmodel/predictors/detail/collectives.hpp"
#include "perfmodel/predictors/kernel.hpp"
#include "perfmodel/predictors/topology.hpp"

namespace perfmodel {

/// Kernel model of the collectives on that topology, whatever the GPU. A group that does not fit
/// one node is spread over several; where the topology has no NIC, or the group size is not
/// recorded (0: taken as one node), the price is marked out of range.
std::unique_ptr<KernelModel> make_collective_model(Topology topology,
                                                   const CollectiveOptions& options = {});

}  // namespace perfmodel
