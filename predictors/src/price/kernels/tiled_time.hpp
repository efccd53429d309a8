#pragma once

namespace perfmodel::kernels {

/// Result of a tile model, in microseconds.
struct TiledTime {
  double compute = 0;  ///< multiply-adds of the busiest SM, tails and padding included
  double memory = 0;   ///< DRAM and L2 traffic
  double latency = 0;  ///< empty kernel, first loads, last stores, split-K reduction
  double total = 0;
};

}  // namespace perfmodel::kernels
