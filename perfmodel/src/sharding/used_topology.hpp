#pragma once

#include "perfmodel/predictors/topology.hpp"
#include "perfmodel/sharding/sharding_study.hpp"

namespace perfmodel::sharding {

/// The topology with only the links that the software uses.
Topology used_topology(const ExchangeSoftware& network, Topology topology);

}  // namespace perfmodel::sharding
