#include <algorithm>

#include "device_info.hpp"
#include "workload.hpp"

namespace kernels_bench::gpu {
namespace {

std::string version_text(int version) {  // 50221153
  return std::to_string(version / 10000000) + '.' + std::to_string(version / 100000 % 100);
}

}  // namespace

Failure no_device(Status counted, int count, int index) {
  if (counted == hipErrorNoDevice) {
    return {FailureKind::kNoDevice, "no AMD GPU: no driver, or no GPU that ROCm supports"};
  }
  if (counted != hipSuccess) {
    return {FailureKind::kNoDevice, std::string("no AMD GPU: ") + hipGetErrorString(counted)};
  }
  return {FailureKind::kNoDevice, "no AMD GPU of number " + std::to_string(index) +
                                      ": the driver shows " + std::to_string(count)};
}

Outcome<DeviceInfo> read_device_info(int index) {
  hipDeviceProp_t properties;
  GPU_TRY(hipGetDeviceProperties(&properties, index));
  int driver = 0, runtime = 0;
  (void)hipDriverGetVersion(&driver);
  (void)hipRuntimeGetVersion(&runtime);
  const std::string target = properties.gcnArchName;  // "gfx90a:sramecc+:xnack-"
  return DeviceInfo{
      .name = properties.name,
      .vendor = "amd",
      .target = target.substr(0, target.find(':')),
      .driver = "HIP " + version_text(driver),
      .runtime = "HIP " + version_text(runtime),
      .memory_bytes = static_cast<std::int64_t>(properties.totalGlobalMem),
      .l2_bytes = properties.l2CacheSize,
      .num_sms = properties.multiProcessorCount,
      .max_threads_per_sm = properties.maxThreadsPerMultiProcessor,
      .warp_size = properties.warpSize,
      .shared_memory_per_sm = static_cast<int>(properties.maxSharedMemoryPerMultiProcessor),
      .clock_mhz = properties.clockRate / 1000.0,
      .memory_clock_mhz = properties.memoryClockRate / 1000.0,
      .memory_bus_bits = properties.memoryBusWidth,
  };
}

/// The runtime does not report the Infinity Cache beyond the L2: 256 MB in MI300 (AMD CDNA 3 white
/// paper), up to 128 MB in RDNA 2 (AMD RDNA 2 white paper).
std::int64_t cache_bytes(const DeviceInfo& info) {
  constexpr std::int64_t kMiB = 1 << 20;
  if (info.target.starts_with("gfx94")) return std::max(info.l2_bytes, 256 * kMiB);
  if (info.target.starts_with("gfx103")) return std::max(info.l2_bytes, 128 * kMiB);
  return info.l2_bytes;
}

}  // namespace kernels_bench::gpu
