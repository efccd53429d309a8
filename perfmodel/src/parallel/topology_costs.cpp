#include "perfmodel/parallel/topology_costs.hpp"

#include <limits>

#include "perfmodel/predictors/collectives.hpp"

namespace perfmodel::parallel {

CollectiveCost topology_costs(const Topology& topology) {
  return [topology](const CollectiveCall& call) -> double {
    constexpr double kImpossible = std::numeric_limits<double>::quiet_NaN();
    if (call.ranks <= 1) return 0;
    const auto kind = collective_kind(call.kind);
    if (!kind) return kImpossible;
    Topology shared = topology;
    if (shared.nic && call.groups_per_node > 1) {
      shared.nic->bandwidth.value /= static_cast<double>(call.groups_per_node);
    }
    const auto time = collective_time(shared, {.kind = *kind,
                                               .bytes = Bytes{call.bytes},
                                               .ranks = static_cast<int>(call.ranks),
                                               .nodes = static_cast<int>(call.nodes)});
    return time ? time->time.count() : kImpossible;
  };
}

}  // namespace perfmodel::parallel
