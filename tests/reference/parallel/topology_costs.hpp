#pragma once

#include "perfmodel/predictors/topology.hpp"
#include "transformer_step.hpp"

namespace perfmodel::parallel {

/// Collectives priced on a topology by `collective_time`, which also shares the NICs among the
/// groups of a node that are active at once. A call that the topology cannot do (more ranks per
/// node than it has, several nodes without NIC) costs NaN, which the step functions report as an
/// error.
CollectiveCost topology_costs(const Topology& topology);

}  // namespace perfmodel::parallel
