#pragma once

#include <cstddef>
#include <cstdint>

#include "../runtime.hpp"

#if KERNELS_BENCH_HIP
#include <rocprim/device/device_radix_sort.hpp>
#else
#include <cub/device/device_radix_sort.cuh>
#endif

namespace kernels_bench::gpu {

/// Keys and their values by ascending key, of which the lowest `bits` bits count. With a null
/// `workspace` only its size is asked for.
struct SortPairs {
  const std::uint32_t* keys_in = nullptr;
  std::uint32_t* keys_out = nullptr;
  const std::uint32_t* values_in = nullptr;
  std::uint32_t* values_out = nullptr;
  std::int64_t count = 0;
  int bits = 32;
};

inline Status sort_pairs(void* workspace, std::size_t& workspace_bytes, const SortPairs& sort,
                         Stream stream) {
#if KERNELS_BENCH_HIP
  return rocprim::radix_sort_pairs(
      workspace, workspace_bytes, sort.keys_in, sort.keys_out, sort.values_in, sort.values_out,
      static_cast<std::size_t>(sort.count), 0U, static_cast<unsigned>(sort.bits), stream);
#else
  return cub::DeviceRadixSort::SortPairs(workspace, workspace_bytes, sort.keys_in, sort.keys_out,
                                         sort.values_in, sort.values_out, sort.count, 0, sort.bits,
                                         stream);
#endif
}

}  // namespace kernels_bench::gpu
