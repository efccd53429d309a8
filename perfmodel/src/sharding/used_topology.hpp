#pragma once

#include "perfmodel/predictors/topology.hpp"
#include "perfmodel/sharding/sharding_study.hpp"

namespace perfmodel::sharding {

/// The topology with only the links that the software uses.
Topology used_topology(const ExchangeSoftware& network, Topology topology);

/// How many GPUs of the study's world are one host: as the study says, or as many as there may be.
/// If links join machines (NVL72), a rack is one host, whatever the study says up to a machine's
/// size; several racks have equal parts of the world.
std::int64_t host_size(const ShardingStudy& study, const Topology& topology);

}  // namespace perfmodel::sharding
