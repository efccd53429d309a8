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

/// The price of a collective with a known group and network; `facts.nodes` 0: as few as hold it.
/// Errors: as `with_network`; a group that the topology cannot hold, a work that is no collective
/// of a known size.
Result<Price> price_on_network(const KernelWork& work, const Topology& topology,
                               const NetworkFacts& facts);

/// Turns such a time into a price. Nine of ten measured times are within `low` and `high` where the
/// time is `in_range`; elsewhere both are estimates.
Price collective_price(const CollectiveTime& time, const Topology& topology, Bytes bytes);

}  // namespace perfmodel
