#pragma once

#include "price/collectives/terms.hpp"

namespace perfmodel::collectives {

/// A collective that NCCL tunes over several nodes, at least as long as the same buffer inside one;
/// never shorter on more nodes with as many ranks each.
Terms between_nodes(const Topology& topology, const CollectiveQuery& query);

}  // namespace perfmodel::collectives
