#pragma once

#include <string>

#include "../core/device.hpp"
#include "runtime.hpp"

namespace kernels_bench::gpu {

/// All but libraries, free memory and the driver's own version.
Outcome<DeviceInfo> read_device_info(int index);

/// Explains to a user this number of GPUs, or the failure to count them. kNoDevice.
Failure no_device(Status counted, int count, int index);

/// Capacity of the caches between the SMs and the memory: what has to be swept to make them cold.
std::int64_t cache_bytes(const DeviceInfo& info);

}  // namespace kernels_bench::gpu
