#pragma once

#include <algorithm>

#include "../../core/cases.hpp"
#include "../../kernels/team.hpp"
#include "../workload.hpp"

/// From a kernel body (a struct, see kernels/team.hpp) to a launch.
namespace kernels_bench::gpu {

/// The Block of kernels/team.hpp on a device: one-dimensional grids of one-dimensional blocks.
class DeviceBlock {
 public:
  PM_HD explicit DeviceBlock(float* shared) : shared_(shared) {}
#if PM_CUDA_DEVICE || PM_HIP_DEVICE
  PM_HD int thread() const { return static_cast<int>(threadIdx.x); }
  PM_HD int threads() const { return static_cast<int>(blockDim.x); }
  PM_HD std::int64_t block() const { return blockIdx.x; }
  PM_HD std::int64_t blocks() const { return gridDim.x; }
  PM_HD int warp_size() const { return warpSize; }
  PM_HD void sync() const { __syncthreads(); }
#else  // the host half of a device source compiles bodies too, and never runs them
  PM_HD int thread() const { return 0; }
  PM_HD int threads() const { return 1; }
  PM_HD std::int64_t block() const { return 0; }
  PM_HD std::int64_t blocks() const { return 1; }
  PM_HD int warp_size() const { return 1; }
  PM_HD void sync() const {}
#endif
  PM_HD float* shared() const { return shared_; }

  PM_HD float shuffle_xor(float value, int mask, int width) const {
#if PM_CUDA_DEVICE
    // Groups of one warp may have gone different ways: only this group's lanes take part.
    const unsigned lane = threadIdx.x % warpSize, first = lane / width * width;
    const unsigned group = width == warpSize ? ~0U : ((1U << width) - 1U) << first;
    return __shfl_xor_sync(group, value, mask, width);
#elif PM_HIP_DEVICE
    return __shfl_xor(value, mask, width);
#else
    (void)mask, (void)width;
    return value;
#endif
  }

 private:
  float* shared_;
};

template <int kMaxThreads, class Body>
__global__ void __launch_bounds__(kMaxThreads) run_body(const Body body) {
  extern __shared__ float4 shared_memory[];
  body(DeviceBlock(reinterpret_cast<float*>(shared_memory)));
}

inline constexpr int kThreads = 256;

/// Bodies walk their work with the grid's stride, so that fewer blocks do as well.
template <int kMaxThreads = kThreads, class Body>
Outcome<void> launch_body(const Body& body, std::int64_t blocks, int threads, int shared_bytes,
                          Stream stream) {
  constexpr std::int64_t kMostBlocks = std::int64_t{1} << 30;
  const auto grid = static_cast<unsigned>(std::clamp<std::int64_t>(blocks, 1, kMostBlocks));
  run_body<kMaxThreads>
      <<<grid, static_cast<unsigned>(threads), static_cast<std::size_t>(shared_bytes), stream>>>(
          body);
  GPU_TRY(GPU(GetLastError)());
  return {};
}

/// A body of independent items, kUnroll per thread.
template <class Body>
Outcome<void> launch_items(const Body& body, Stream stream) {
  const std::int64_t tile = std::int64_t{kThreads} * Body::kUnroll;
  return launch_body(body, kernels::ceil_divide(body.items(), tile), kThreads, 0, stream);
}

/// Groups of `lanes` threads with one task each.
template <class Body>
Outcome<void> launch_groups(const Body& body, std::int64_t tasks, int lanes, Stream stream) {
  return launch_body(body, kernels::ceil_divide(tasks, kThreads / lanes), kThreads, 0, stream);
}

/// Calls `use` with a value of the element type. kTf32 is fp32 in memory.
///
/// The result is named, not deduced: clang 15 would instantiate `use` before the members that
/// follow it in its class are parsed, and leave them undefined.
template <class Use>
Outcome<void> with_type(DType dtype, const Use& use) {
  switch (dtype) {
    case DType::kBFloat16: return use(kernels::BFloat16{});
    case DType::kFloat16: return use(kernels::Half{});
    default: return use(float{});
  }
}

template <int N>
struct Constant {
  static constexpr int kValue = N;
};

/// Calls `use` with the elements of a 16-byte load where `widest`, else with 1.
template <class T, class Use>
Outcome<void> with_vector(bool widest, const Use& use) {
  return widest ? use(Constant<kernels::kWidest<T>>{}) : use(Constant<1>{});
}

}  // namespace kernels_bench::gpu
