#pragma once

#include "framework.hpp"
#include "part_costs.hpp"
#include "perfmodel/predictors/topology.hpp"

/// The parts of a layout's price that a machine's trouble changes (MachineTrouble).
namespace perfmodel {

/// All links inside a node, and all between nodes, keep this share of their rates.
void scale_links(double link_share, double network_share, Topology& topology);

/// Kernels of products and attention take `factor` times as long.
void scale_products(double factor, ShardCosts& costs);

/// No compute hides collectives.
void overlap_nothing(Framework& framework);

}  // namespace perfmodel
