#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime.hpp"

/// The few C functions of rocBLAS and MIOpen that are called, declared here since the libraries are
/// looked for at run time and their headers are not needed to build. Values and signatures are from
/// ROCm 5 and 6 (rocblas-types.h, rocblas-functions.h, miopen.h); enumerations are ints.
namespace kernels_bench::gpu::rocblas {

using Handle = struct OpaqueHandle*;
inline constexpr int kSuccess = 0, kMemoryError = 5, kInternalError = 6;
inline constexpr int kOperationNone = 111, kOperationTranspose = 112;
inline constexpr int kFloat16 = 150, kFloat32 = 151, kBFloat16 = 168;
inline constexpr int kStandardAlgorithm = 0;

using CreateHandle = int(Handle*);
using DestroyHandle = int(Handle);
using SetStream = int(Handle, hipStream_t);
using VersionString = int(char*, std::size_t);
using StatusString = const char*(int);
using Sgemm = int(Handle, int op_a, int op_b, int m, int n, int k, const float* alpha,
                  const float* a, int lda, const float* b, int ldb, const float* beta, float* c,
                  int ldc);
using SgemmStridedBatched = int(Handle, int op_a, int op_b, int m, int n, int k, const float* alpha,
                                const float* a, int lda, std::int64_t stride_a, const float* b,
                                int ldb, std::int64_t stride_b, const float* beta, float* c,
                                int ldc, std::int64_t stride_c, int batch_count);
using GemmEx = int(Handle, int op_a, int op_b, int m, int n, int k, const void* alpha,
                   const void* a, int a_type, int lda, const void* b, int b_type, int ldb,
                   const void* beta, const void* c, int c_type, int ldc, void* d, int d_type,
                   int ldd, int compute_type, int algorithm, std::int32_t solution_index,
                   std::uint32_t flags);
using GemmStridedBatchedEx = int(Handle, int op_a, int op_b, int m, int n, int k, const void* alpha,
                                 const void* a, int a_type, int lda, std::int64_t stride_a,
                                 const void* b, int b_type, int ldb, std::int64_t stride_b,
                                 const void* beta, const void* c, int c_type, int ldc,
                                 std::int64_t stride_c, void* d, int d_type, int ldd,
                                 std::int64_t stride_d, int batch_count, int compute_type,
                                 int algorithm, std::int32_t solution_index, std::uint32_t flags);

}  // namespace kernels_bench::gpu::rocblas

namespace kernels_bench::gpu::miopen {

using Handle = struct OpaqueHandle*;
using Tensor = struct OpaqueTensor*;
using Convolution = struct OpaqueConvolution*;
inline constexpr int kSuccess = 0, kAllocFailed = 4, kInternalError = 5, kUnknownError = 7;
inline constexpr int kHalf = 0, kFloat = 1, kBFloat16 = 5;
inline constexpr int kCrossCorrelation = 0;  ///< miopenConvolution

/// miopenConvSolution_t
struct Solution {
  float time;  ///< estimated, ms
  std::size_t workspace_size;
  std::uint64_t id;
  int algorithm;
};

using GetVersion = int(std::size_t* major, std::size_t* minor, std::size_t* patch);
using ErrorString = const char*(int);
using CreateWithStream = int(Handle*, hipStream_t);
using Destroy = int(Handle);
using SetStream = int(Handle, hipStream_t);
using CreateTensor = int(Tensor*);
using SetTensor = int(Tensor, int type, int n, int c, int h, int w);
using DestroyTensor = int(Tensor);
using CreateConvolution = int(Convolution*);
using InitConvolution = int(Convolution, int mode, int pad_h, int pad_w, int stride_h, int stride_w,
                            int dilation_h, int dilation_w);
using DestroyConvolution = int(Convolution);

/// Immediate mode: the same shapes for all three directions, though the tensors' order differs:
/// forward (w, x, y), data (dy, w, dx), weights (dy, x, dw); the last one is written.
using GetSolution = int(Handle, Tensor, Tensor, Convolution, Tensor, std::size_t most,
                        std::size_t* count, Solution* solutions);
using CompileSolution = int(Handle, Tensor, Tensor, Convolution, Tensor, std::uint64_t id);
using Immediate = int(Handle, Tensor, const void*, Tensor, const void*, Convolution, Tensor, void*,
                      void* workspace, std::size_t workspace_size, std::uint64_t id);

}  // namespace kernels_bench::gpu::miopen
