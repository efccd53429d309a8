#pragma once

#include "perfmodel/predictors/detail/collectives.hpp"

namespace perfmodel::kernels {

/// Price of a collective on a topology; see `make_collective_model`.
Price price_collective(const KernelWork& work, const Gpu& gpu, const Topology& topology,
                       const CollectiveOptions& options);

}  // namespace perfmodel::kernels
