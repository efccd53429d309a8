#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "helper_kernels.hpp"
#include "workload.hpp"

namespace kernels_bench::gpu {

/// One matrix product, its algorithm chosen. Valid while its library is.
class Gemm {
 public:
  virtual ~Gemm() = default;
  /// May be captured into a graph.
  virtual Outcome<void> launch(const GemmBuffers& buffers, Stream stream) = 0;
  virtual std::string kernel() const = 0;
};

/// One convolution, its algorithm chosen. Valid while its library is.
class Convolution {
 public:
  virtual ~Convolution() = default;
  virtual std::int64_t workspace_bytes() const = 0;
  virtual Timing timing() const = 0;
  virtual Outcome<void> launch(const ConvolutionBuffers& buffers, void* workspace,
                               Stream stream) = 0;
  virtual std::string kernel() const = 0;
};

/// cuBLAS and cuBLASLt, or rocBLAS: loaded at run time, called as PyTorch calls them. If it is
/// absent, the cases that need it fail with kMissingLibrary. Handle and workspace are made at first
/// use and freed with this object.
class MatrixLibrary {
 public:
  virtual ~MatrixLibrary() = default;
  virtual std::vector<LibraryInfo> info() const = 0;
  virtual Outcome<std::unique_ptr<Gemm>> make_gemm(const GemmCase& point) = 0;
};

/// cuDNN or MIOpen, likewise.
class ConvolutionLibrary {
 public:
  virtual ~ConvolutionLibrary() = default;
  virtual LibraryInfo info() const = 0;
  virtual Outcome<std::unique_ptr<Convolution>> make_convolution(const ConvolutionCase& point,
                                                                 Stream stream) = 0;
};

/// Never null.
std::unique_ptr<MatrixLibrary> open_matrix_library(const DeviceInfo& device);
std::unique_ptr<ConvolutionLibrary> open_convolution_library();

/// kUnsupported unless the sizes fit the libraries' 32-bit integers and are above zero.
Outcome<void> check_sizes(std::initializer_list<std::int64_t> sizes);

/// Returns kMissingLibrary, with the words of `info`.
Failure missing(const LibraryInfo& info);

std::unique_ptr<Workload> make_gemm(const GemmCase& point, MatrixLibrary& library);
std::unique_ptr<Workload> make_convolution(const ConvolutionCase& point,
                                           ConvolutionLibrary& library);

/// Fixed costs of the runtime; null for the kinds of PeakCase that are a kernel's.
std::unique_ptr<Workload> make_fixed_cost(const PeakCase& point, const DeviceInfo& device);

}  // namespace kernels_bench::gpu
