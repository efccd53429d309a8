#include "topology_costs.hpp"

#include <limits>

#include "perfmodel/predictors/detail/collectives.hpp"

namespace perfmodel::parallel {

CollectiveCost topology_costs(const Topology& topology) {
  return [topology](const CollectiveCall& call) -> double {
    constexpr double kImpossible = std::numeric_limits<double>::quiet_NaN();
    if (call.ranks <= 1) return 0;
    const auto kind = collective_kind(call.kind);
    if (!kind) return kImpossible;
    const auto time =
        collective_time(topology, {.kind = *kind,
                                   .bytes = Bytes{call.bytes},
                                   .ranks = static_cast<int>(call.ranks),
                                   .nodes = static_cast<int>(call.nodes),
                                   .groups_per_node = static_cast<int>(call.groups_per_node)});
    return time ? time->time.count() : kImpossible;
  };
}

}  // namespace perfmodel::parallel
