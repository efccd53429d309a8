#include "device_info.hpp"
#include "workload.hpp"

namespace kernels_bench::gpu {
namespace {

std::string version_text(int version) {  // 13000
  return std::to_string(version / 1000) + '.' + std::to_string(version % 1000 / 10);
}

}  // namespace

Failure no_device(Status counted, int count, int index) {
  const std::string runtime = version_text(CUDART_VERSION);
  if (counted == cudaErrorInsufficientDriver) {
    return {FailureKind::kNoDevice, "no NVIDIA GPU: no driver, or one too old for CUDA " + runtime};
  }
  if (counted != cudaSuccess) {
    return {FailureKind::kNoDevice, std::string("no NVIDIA GPU: ") + cudaGetErrorString(counted)};
  }
  return {FailureKind::kNoDevice, "no NVIDIA GPU of number " + std::to_string(index) +
                                      ": the driver shows " + std::to_string(count)};
}

Outcome<DeviceInfo> read_device_info(int index) {
  cudaDeviceProp properties;
  GPU_TRY(cudaGetDeviceProperties(&properties, index));
  // Members of cudaDeviceProp until CUDA 13. In kHz; absent on some systems, hence no GPU_TRY.
  int clock = 0, memory_clock = 0, driver = 0, runtime = 0;
  (void)cudaDeviceGetAttribute(&clock, cudaDevAttrClockRate, index);
  (void)cudaDeviceGetAttribute(&memory_clock, cudaDevAttrMemoryClockRate, index);
  (void)cudaDriverGetVersion(&driver);
  (void)cudaRuntimeGetVersion(&runtime);
  return DeviceInfo{
      .name = properties.name,
      .vendor = "nvidia",
      .target = "sm_" + std::to_string(properties.major) + std::to_string(properties.minor),
      .driver = "CUDA " + version_text(driver),
      .runtime = "CUDA " + version_text(runtime),
      .memory_bytes = static_cast<std::int64_t>(properties.totalGlobalMem),
      .l2_bytes = properties.l2CacheSize,
      .num_sms = properties.multiProcessorCount,
      .max_threads_per_sm = properties.maxThreadsPerMultiProcessor,
      .warp_size = properties.warpSize,
      .shared_memory_per_sm = static_cast<int>(properties.sharedMemPerMultiprocessor),
      .clock_mhz = clock / 1000.0,
      .memory_clock_mhz = memory_clock / 1000.0,
      .memory_bus_bits = properties.memoryBusWidth,
  };
}

std::int64_t cache_bytes(const DeviceInfo& info) { return info.l2_bytes; }

}  // namespace kernels_bench::gpu
