#pragma once

#include <cstdint>

namespace perfmodel {

/// How the host gives a step's work to the device. No graph tells it: predictions are asked for it.
enum class Launching : std::uint8_t {
  kEager,       ///< op by op
  kCompiled,    ///< a region by code that only launches its kernels
  kCudaGraphs,  ///< a region by one launch of a captured graph (CUDA graphs, HIP graphs)
};

}  // namespace perfmodel
