#include <array>

#include "gemm_mapping.hpp"
#include "libraries.hpp"
#include "rocm_abi.hpp"
#include "shared_library.hpp"

namespace kernels_bench::gpu {
namespace {

struct Functions {
  SharedLibrary library{
      {"librocblas.so.5", "librocblas.so.4", "librocblas.so.3", "librocblas.so.0"},
      library_folders({"ROCM_PATH", "ROCM_HOME"}, "/lib", "/opt/rocm/lib")};
  rocblas::CreateHandle* create = nullptr;
  rocblas::DestroyHandle* destroy = nullptr;
  rocblas::SetStream* set_stream = nullptr;
  rocblas::VersionString* version_string = nullptr;
  rocblas::StatusString* status_string = nullptr;
  rocblas::Sgemm* sgemm = nullptr;
  rocblas::SgemmStridedBatched* sgemm_batched = nullptr;
  rocblas::GemmEx* gemm_ex = nullptr;
  rocblas::GemmStridedBatchedEx* gemm_batched_ex = nullptr;

  Functions() {
    library.find("rocblas_create_handle", create);
    library.find("rocblas_destroy_handle", destroy);
    library.find("rocblas_set_stream", set_stream);
    library.find("rocblas_get_version_string", version_string);
    library.find("rocblas_status_to_string", status_string);
    library.find("rocblas_sgemm", sgemm);
    library.find("rocblas_sgemm_strided_batched", sgemm_batched);
    library.find("rocblas_gemm_ex", gemm_ex);
    library.find("rocblas_gemm_strided_batched_ex", gemm_batched_ex);
  }
};

Failure rocblas_failure(const Functions& rocblas, int status, const char* call) {
  const std::string message = std::string(call) + ": " + rocblas.status_string(status);
  switch (status) {
    case rocblas::kMemoryError: return {FailureKind::kOutOfMemory, message};
    case rocblas::kInternalError: return {FailureKind::kDevice, message};
    default: return {FailureKind::kUnsupported, message};
  }
}

#define ROCBLAS_TRY(call)                                                          \
  do {                                                                             \
    if (const auto rocblas_status = (call); rocblas_status != rocblas::kSuccess) { \
      return tl::unexpected(rocblas_failure(rocblas_, rocblas_status, #call));     \
    }                                                                              \
  } while (false)

constexpr float kOne = 1, kZero = 0;

int operation(bool transposed) {
  return transposed ? rocblas::kOperationTranspose : rocblas::kOperationNone;
}

/// The library chooses its kernel (standard algorithm, solution 0, no flags), as in PyTorch.
class RocblasGemm final : public Gemm {
 public:
  RocblasGemm(const Functions& rocblas, rocblas::Handle handle, const GemmCase& point)
      : rocblas_(rocblas), handle_(handle), point_(point), call_(column_major(point)) {}

  Outcome<void> launch(const GemmBuffers& buffers, Stream stream) override {
    ROCBLAS_TRY(rocblas_.set_stream(handle_, stream));
    return bytes_of(point_.dtype) == 4 ? launch_single(buffers) : launch_half(buffers);
  }

  std::string kernel() const override {
    if (bytes_of(point_.dtype) == 4) {
      return point_.batched ? "rocblas_sgemm_strided_batched" : "rocblas_sgemm";
    }
    return point_.batched ? "rocblas_gemm_strided_batched_ex" : "rocblas_gemm_ex";
  }

 private:
  // check_sizes has made sure that all of these fit.
  int m() const { return static_cast<int>(call_.m); }
  int n() const { return static_cast<int>(call_.n); }
  int k() const { return static_cast<int>(call_.k); }
  int batch() const { return static_cast<int>(call_.batch); }
  int first_ld() const { return static_cast<int>(call_.first_ld); }
  int second_ld() const { return static_cast<int>(call_.second_ld); }
  int output_ld() const { return static_cast<int>(call_.output_ld); }

  Outcome<void> launch_single(const GemmBuffers& buffers) {
    const int first_op = operation(call_.first_transposed);
    const int second_op = operation(call_.second_transposed);
    const auto* first = static_cast<const float*>(buffers.b);
    const auto* second = static_cast<const float*>(buffers.a);
    auto* output = static_cast<float*>(buffers.c);
    if (point_.batched) {
      ROCBLAS_TRY(rocblas_.sgemm_batched(handle_, first_op, second_op, m(), n(), k(), &kOne, first,
                                         first_ld(), call_.first_stride, second, second_ld(),
                                         call_.second_stride, &kZero, output, output_ld(),
                                         call_.output_stride, batch()));
    } else {
      ROCBLAS_TRY(rocblas_.sgemm(handle_, first_op, second_op, m(), n(), k(), &kOne, first,
                                 first_ld(), second, second_ld(), &kZero, output, output_ld()));
    }
    return {};
  }

  Outcome<void> launch_half(const GemmBuffers& buffers) {
    const int first_op = operation(call_.first_transposed);
    const int second_op = operation(call_.second_transposed);
    const int type = point_.dtype == DType::kBFloat16 ? rocblas::kBFloat16 : rocblas::kFloat16;
    if (point_.batched) {
      ROCBLAS_TRY(rocblas_.gemm_batched_ex(
          handle_, first_op, second_op, m(), n(), k(), &kOne, buffers.b, type, first_ld(),
          call_.first_stride, buffers.a, type, second_ld(), call_.second_stride, &kZero, buffers.c,
          type, output_ld(), call_.output_stride, buffers.c, type, output_ld(), call_.output_stride,
          batch(), rocblas::kFloat32, rocblas::kStandardAlgorithm, 0, 0));
    } else {
      ROCBLAS_TRY(rocblas_.gemm_ex(handle_, first_op, second_op, m(), n(), k(), &kOne, buffers.b,
                                   type, first_ld(), buffers.a, type, second_ld(), &kZero,
                                   buffers.c, type, output_ld(), buffers.c, type, output_ld(),
                                   rocblas::kFloat32, rocblas::kStandardAlgorithm, 0, 0));
    }
    return {};
  }

  const Functions& rocblas_;
  rocblas::Handle handle_;
  GemmCase point_;
  ColumnMajorGemm call_;
};

class Rocblas final : public MatrixLibrary {
 public:
  Rocblas() = default;
  ~Rocblas() override {
    if (handle_ != nullptr) rocblas_.destroy(handle_);
  }
  Rocblas(const Rocblas&) = delete;
  Rocblas& operator=(const Rocblas&) = delete;

  std::vector<LibraryInfo> info() const override { return {rocblas_info(), hipblaslt_info()}; }

  Outcome<std::unique_ptr<Gemm>> make_gemm(const GemmCase& point) override {
    if (point.bias) {  // one of many layouts: no reason to end the family
      return tl::unexpected(
          Failure{FailureKind::kUnsupported, "hipBLASLt: epilogues are not called"});
    }
    if (point.dtype == DType::kTf32) {
      return tl::unexpected(Failure{FailureKind::kUnsupported, "rocBLAS: no TF32"});
    }
    if (!rocblas_.library.usable()) return tl::unexpected(missing(rocblas_info()));
    if (handle_ == nullptr) ROCBLAS_TRY(rocblas_.create(&handle_));
    return std::make_unique<RocblasGemm>(rocblas_, handle_, point);
  }

 private:
  LibraryInfo rocblas_info() const {
    LibraryInfo info{.name = "rocBLAS", .version = {}, .problem = rocblas_.library.problem()};
    if (!rocblas_.library.usable()) return info;
    std::array<char, 256> version = {};
    rocblas_.version_string(version.data(), version.size());
    info.version = version.data();
    return info;
  }

  /// Its enumerators and structures changed from ROCm 5 to 6 under the same name of the library.
  static LibraryInfo hipblaslt_info() {
    return {"hipBLASLt", {}, "not called: its binary interface differs between releases"};
  }

  Functions rocblas_;
  rocblas::Handle handle_ = nullptr;
};

}  // namespace

std::unique_ptr<MatrixLibrary> open_matrix_library(const DeviceInfo&) {
  return std::make_unique<Rocblas>();
}

}  // namespace kernels_bench::gpu
