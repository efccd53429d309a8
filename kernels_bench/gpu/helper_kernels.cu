#include "helper_kernels.hpp"

namespace kernels_bench::gpu {
inline namespace helper_kernels_cu {

constexpr int kHelperThreads = 256;

std::int64_t blocks_for(std::int64_t items) {
  constexpr std::int64_t kMost = 65536;  // more items: threads loop
  const std::int64_t blocks = (items + kHelperThreads - 1) / kHelperThreads;
  return blocks < 1 ? 1 : blocks > kMost ? kMost : blocks;
}

__device__ std::int64_t first_item() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

__device__ std::int64_t item_step() { return static_cast<std::int64_t>(gridDim.x) * blockDim.x; }

__device__ void store(void* data, DType dtype, std::int64_t i, float value) {
  switch (dtype) {
    case DType::kBFloat16:
      kernels::from_float(value, static_cast<kernels::BFloat16*>(data)[i]);
      break;
    case DType::kFloat16:
      kernels::from_float(value, static_cast<kernels::Half*>(data)[i]);
      break;
    default:
      static_cast<float*>(data)[i] = value;
      break;
  }
}

__global__ void fill_uniform_kernel(void* data, DType dtype, std::int64_t count, float low,
                                    float high, std::uint64_t key) {
  for (std::int64_t i = first_item(); i < count; i += item_step()) {
    const float unit = static_cast<float>(random_bits(key, i) >> 40) * 0x1p-24f;
    store(data, dtype, i, low + (high - low) * unit);
  }
}

__global__ void fill_indices_kernel(std::int64_t* indices, std::int64_t count, std::int64_t rows,
                                    std::uint64_t key) {
  for (std::int64_t i = first_item(); i < count; i += item_step()) {
    indices[i] = random_below(key, i, rows);
  }
}

/// The shuffle's key is the same for every fill: all batches have the same hot rows.
__global__ void fill_zipf_kernel(std::int64_t* indices, std::int64_t count, std::int64_t rows,
                                 ZipfSampler zipf, std::uint64_t key) {
  constexpr std::uint64_t kShuffle = 0x5eed;
  for (std::int64_t i = first_item(); i < count; i += item_step()) {
    indices[i] = shuffled(zipf.rank(key, i) - 1, rows, kShuffle);
  }
}

__global__ void flush_kernel(uint4* scratch, std::int64_t count) {
  for (std::int64_t i = first_item(); i < count; i += item_step()) {
    const unsigned bits = static_cast<unsigned>(i);
    scratch[i] = make_uint4(bits, bits + 1, bits + 2, bits + 3);
  }
}

__global__ void empty_kernel() {}

__global__ void spin_kernel(std::int64_t cycles) {
  const long long start = clock64();
  while (clock64() - start < cycles) {
  }
}

/// Sum over the block's threads, in thread 0.
__device__ double block_sum(double mine) {
  __shared__ double partial[kHelperThreads];
  partial[threadIdx.x] = mine;
  for (int half = kHelperThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < half) partial[threadIdx.x] += partial[threadIdx.x + half];
  }
  return partial[0];
}

/// The element that this block looks at: the last one, where partial tiles go wrong, and others
/// spread at random.
__device__ std::int64_t sampled_element(std::int64_t count) {
  return blockIdx.x == 0 ? count - 1 : random_below(0, blockIdx.x, count);
}

__global__ void gemm_samples_kernel(GemmCase g, GemmBuffers buffers, Samples* samples) {
  const std::int64_t element = sampled_element(g.batch * g.m * g.n);
  const double sum = block_sum(gemm_sum(g, buffers, element, threadIdx.x, kHelperThreads));
  if (threadIdx.x == 0) {
    samples->reference[blockIdx.x] = sum;
    samples->found[blockIdx.x] = load_number(buffers.c, g.dtype, element);
  }
}

__global__ void convolution_samples_kernel(ConvolutionTensors t, Samples* samples) {
  const std::int64_t element = sampled_element(t.result_count());
  const double sum = block_sum(convolution_sum(t, element, threadIdx.x, kHelperThreads));
  if (threadIdx.x == 0) {
    samples->reference[blockIdx.x] = sum;
    samples->found[blockIdx.x] = load_number(t.result(), t.point.dtype, element);
  }
}

}  // namespace helper_kernels_cu

Status launch_fill_uniform(void* data, DType dtype, std::int64_t count, float low, float high,
                           std::uint64_t key, Stream stream) {
  fill_uniform_kernel<<<blocks_for(count), kHelperThreads, 0, stream>>>(data, dtype, count, low,
                                                                        high, key);
  return GPU(GetLastError)();
}

Status launch_fill_indices(std::int64_t* indices, std::int64_t count, std::int64_t rows,
                           double zipf_exponent, std::uint64_t key, Stream stream) {
  if (zipf_exponent > 0) {
    fill_zipf_kernel<<<blocks_for(count), kHelperThreads, 0, stream>>>(
        indices, count, rows, make_zipf_sampler(zipf_exponent, rows), key);
  } else {
    fill_indices_kernel<<<blocks_for(count), kHelperThreads, 0, stream>>>(indices, count, rows,
                                                                          key);
  }
  return GPU(GetLastError)();
}

Status launch_flush(void* scratch, std::int64_t bytes, Stream stream) {
  const std::int64_t count = bytes / static_cast<std::int64_t>(sizeof(uint4));
  flush_kernel<<<blocks_for(count), kHelperThreads, 0, stream>>>(static_cast<uint4*>(scratch),
                                                                 count);
  return GPU(GetLastError)();
}

Status launch_empty(Stream stream) {
  empty_kernel<<<1, 1, 0, stream>>>();
  return GPU(GetLastError)();
}

Status launch_spin(std::int64_t cycles, Stream stream) {
  spin_kernel<<<1, 1, 0, stream>>>(cycles);
  return GPU(GetLastError)();
}

Status launch_gemm_samples(const GemmCase& point, const GemmBuffers& buffers, Samples* samples,
                           Stream stream) {
  gemm_samples_kernel<<<Samples::kCount, kHelperThreads, 0, stream>>>(point, buffers, samples);
  return GPU(GetLastError)();
}

Status launch_convolution_samples(const ConvolutionCase& point, const ConvolutionBuffers& buffers,
                                  Samples* samples, Stream stream) {
  convolution_samples_kernel<<<Samples::kCount, kHelperThreads, 0, stream>>>({point, buffers},
                                                                             samples);
  return GPU(GetLastError)();
}

}  // namespace kernels_bench::gpu
