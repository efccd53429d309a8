#pragma once

#include <cstdint>

#include "../core/cases.hpp"
#include "random.hpp"
#include "runtime.hpp"
#include "sample_sums.hpp"

/// The kernels around a measurement: data, L2 flush, empty and waiting kernels, references.
/// Only their source needs the device compiler. All are asynchronous.
namespace kernels_bench::gpu {

Status launch_fill_uniform(void* data, DType dtype, std::int64_t count, float low, float high,
                           std::uint64_t key, Stream stream);

Status launch_fill_indices(std::int64_t* indices, std::int64_t count, std::int64_t rows,
                           double zipf_exponent, std::uint64_t key, Stream stream);

/// Writes all of `scratch` [multiple of 16 bytes].
Status launch_flush(void* scratch, std::int64_t bytes, Stream stream);

Status launch_empty(Stream stream);

/// Occupies the stream for about `cycles` of the SM clock, while the host queues what follows.
Status launch_spin(std::int64_t cycles, Stream stream);

/// Output of the sampling kernels: per sample the element in double precision, and the one found.
struct Samples {
  static constexpr int kCount = 256;
  double reference[kCount], found[kCount];
};

/// `samples` in device memory.
Status launch_gemm_samples(const GemmCase& point, const GemmBuffers& buffers, Samples* samples,
                           Stream stream);

Status launch_convolution_samples(const ConvolutionCase& point, const ConvolutionBuffers& buffers,
                                  Samples* samples, Stream stream);

}  // namespace kernels_bench::gpu
