#pragma once

/// The one header that knows whether CUDA or HIP compiles the sources of this folder.
#if defined(__HIP_PLATFORM_AMD__) || defined(__HIPCC__)
#include <hip/hip_runtime.h>
#define GPU(name) hip##name
#define KERNELS_BENCH_HIP 1
#else
#include <cuda_runtime.h>
#define GPU(name) cuda##name
#define KERNELS_BENCH_HIP 0
#endif

namespace kernels_bench::gpu {

using Stream = GPU(Stream_t);
using Event = GPU(Event_t);
using Status = GPU(Error_t);

}  // namespace kernels_bench::gpu
