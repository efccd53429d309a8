#include <cublasLt.h>
#include <cublas_v2.h>

#include "gemm_mapping.hpp"
#include "libraries.hpp"
#include "shared_library.hpp"

namespace kernels_bench::gpu {
namespace {

// Spelled out, and checked below, because cublas_v2.h overloads these two.
using GemmEx = cublasStatus_t(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int,
                              const void*, const void*, cudaDataType, int, const void*,
                              cudaDataType, int, const void*, void*, cudaDataType, int,
                              cublasComputeType_t, cublasGemmAlgo_t);
using GemmStridedBatchedEx = cublasStatus_t(cublasHandle_t, cublasOperation_t, cublasOperation_t,
                                            int, int, int, const void*, const void*, cudaDataType,
                                            int, long long, const void*, cudaDataType, int,
                                            long long, const void*, void*, cudaDataType, int,
                                            long long, int, cublasComputeType_t, cublasGemmAlgo_t);

static_assert(sizeof(static_cast<GemmEx*>(&cublasGemmEx)) > 0);
static_assert(sizeof(static_cast<GemmStridedBatchedEx*>(&cublasGemmStridedBatchedEx)) > 0);

/// The functions in use. cuBLASLt comes first: cuBLAS needs it, and finds it loaded.
struct Functions {
  SharedLibrary lt_library, library;

  decltype(cublasLtGetProperty)* lt_get_property = nullptr;
  decltype(cublasLtCreate)* lt_create = nullptr;
  decltype(cublasLtDestroy)* lt_destroy = nullptr;
  decltype(cublasLtMatmul)* lt_matmul = nullptr;
  decltype(cublasLtMatmulAlgoGetHeuristic)* lt_heuristic = nullptr;
  decltype(cublasLtMatmulAlgoConfigGetAttribute)* lt_algo_attribute = nullptr;
  decltype(cublasLtMatmulDescCreate)* lt_desc_create = nullptr;
  decltype(cublasLtMatmulDescDestroy)* lt_desc_destroy = nullptr;
  decltype(cublasLtMatmulDescSetAttribute)* lt_desc_set = nullptr;
  decltype(cublasLtMatrixLayoutCreate)* lt_layout_create = nullptr;
  decltype(cublasLtMatrixLayoutDestroy)* lt_layout_destroy = nullptr;
  decltype(cublasLtMatmulPreferenceCreate)* lt_preference_create = nullptr;
  decltype(cublasLtMatmulPreferenceDestroy)* lt_preference_destroy = nullptr;
  decltype(cublasLtMatmulPreferenceSetAttribute)* lt_preference_set = nullptr;

  decltype(cublasGetProperty)* get_property = nullptr;
  decltype(cublasGetStatusString)* status_string = nullptr;
  decltype(cublasCreate_v2)* create = nullptr;
  decltype(cublasDestroy_v2)* destroy = nullptr;
  decltype(cublasSetStream_v2)* set_stream = nullptr;
  decltype(cublasSetWorkspace_v2)* set_workspace = nullptr;
  decltype(cublasSetMathMode)* set_math_mode = nullptr;
  decltype(cublasSgemm_v2)* sgemm = nullptr;
  decltype(cublasSgemmStridedBatched)* sgemm_batched = nullptr;
  GemmEx* gemm_ex = nullptr;
  GemmStridedBatchedEx* gemm_batched_ex = nullptr;

  Functions()
      : lt_library({"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11"}, folders()),
        library({"libcublas.so.13", "libcublas.so.12", "libcublas.so.11"}, folders()) {
    lt_library.find("cublasLtGetProperty", lt_get_property);
    lt_library.find("cublasLtCreate", lt_create);
    lt_library.find("cublasLtDestroy", lt_destroy);
    lt_library.find("cublasLtMatmul", lt_matmul);
    lt_library.find("cublasLtMatmulAlgoGetHeuristic", lt_heuristic);
    lt_library.find("cublasLtMatmulAlgoConfigGetAttribute", lt_algo_attribute);
    lt_library.find("cublasLtMatmulDescCreate", lt_desc_create);
    lt_library.find("cublasLtMatmulDescDestroy", lt_desc_destroy);
    lt_library.find("cublasLtMatmulDescSetAttribute", lt_desc_set);
    lt_library.find("cublasLtMatrixLayoutCreate", lt_layout_create);
    lt_library.find("cublasLtMatrixLayoutDestroy", lt_layout_destroy);
    lt_library.find("cublasLtMatmulPreferenceCreate", lt_preference_create);
    lt_library.find("cublasLtMatmulPreferenceDestroy", lt_preference_destroy);
    lt_library.find("cublasLtMatmulPreferenceSetAttribute", lt_preference_set);
    library.find("cublasGetProperty", get_property);
    library.find("cublasGetStatusString", status_string);
    library.find("cublasCreate_v2", create);
    library.find("cublasDestroy_v2", destroy);
    library.find("cublasSetStream_v2", set_stream);
    library.find("cublasSetWorkspace_v2", set_workspace);
    library.find("cublasSetMathMode", set_math_mode);
    library.find("cublasSgemm_v2", sgemm);
    library.find("cublasSgemmStridedBatched", sgemm_batched);
    library.find("cublasGemmEx", gemm_ex);
    library.find("cublasGemmStridedBatchedEx", gemm_batched_ex);
  }

  static std::vector<std::string> folders() {
    return library_folders({"CUDA_HOME", "CUDA_PATH"}, "/lib64", "/usr/local/cuda/lib64");
  }
};

/// Both libraries have one.
LibraryInfo info_of(const char* name, const SharedLibrary& library,
                    decltype(cublasGetProperty)* get_property) {
  LibraryInfo info{.name = name, .version = {}, .problem = library.problem()};
  if (!library.usable()) return info;
  for (const auto type : {MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL}) {
    int number = 0;
    get_property(type, &number);
    if (!info.version.empty()) info.version += '.';
    info.version += std::to_string(number);
  }
  return info;
}

Failure cublas_failure(const Functions& cublas, cublasStatus_t status, const char* call) {
  const std::string text =
      cublas.library.usable() ? cublas.status_string(status) : std::to_string(status);
  switch (status) {
    case CUBLAS_STATUS_ALLOC_FAILED:
      return {FailureKind::kOutOfMemory, std::string(call) + ": " + text};
    case CUBLAS_STATUS_NOT_SUPPORTED:
    case CUBLAS_STATUS_ARCH_MISMATCH:
    case CUBLAS_STATUS_INVALID_VALUE:
      return {FailureKind::kUnsupported, std::string(call) + ": " + text};
    default: return {FailureKind::kDevice, std::string(call) + ": " + text};
  }
}

#define CUBLAS_TRY(call)                                                             \
  do {                                                                               \
    if (const auto cublas_status = (call); cublas_status != CUBLAS_STATUS_SUCCESS) { \
      return tl::unexpected(cublas_failure(cublas_, cublas_status, #call));          \
    }                                                                                \
  } while (false)

cudaDataType type_of(DType dtype) {
  switch (dtype) {
    case DType::kBFloat16: return CUDA_R_16BF;
    case DType::kFloat16: return CUDA_R_16F;
    default: return CUDA_R_32F;
  }
}

cublasOperation_t operation(bool transposed) { return transposed ? CUBLAS_OP_T : CUBLAS_OP_N; }

constexpr float kOne = 1, kZero = 0;

/// Device memory for as long as the library is open.
class Workspace {
 public:
  Workspace() = default;
  ~Workspace() {
    if (data_ != nullptr) (void)cudaFree(data_);
  }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  Outcome<void> allocate(std::size_t bytes) {
    GPU_TRY(cudaMalloc(&data_, bytes));
    bytes_ = bytes;
    return {};
  }
  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// at::cuda::blas::gemm and bgemm: Sgemm for fp32, GemmEx with fp32 products' sums for halves.
class BlasGemm final : public Gemm {
 public:
  BlasGemm(const Functions& cublas, cublasHandle_t handle, const Workspace& workspace,
           const GemmCase& point)
      : cublas_(cublas),
        handle_(handle),
        workspace_(workspace),
        dtype_(point.dtype),
        batched_(point.batched),
        call_(column_major(point)) {}

  Outcome<void> launch(const GemmBuffers& buffers, Stream stream) override {
    CUBLAS_TRY(cublas_.set_stream(handle_, stream));  // also forgets the workspace
    CUBLAS_TRY(cublas_.set_workspace(handle_, workspace_.data(), workspace_.bytes()));
    CUBLAS_TRY(cublas_.set_math_mode(
        handle_, dtype_ == DType::kTf32 ? CUBLAS_TF32_TENSOR_OP_MATH : CUBLAS_DEFAULT_MATH));
    return bytes_of(dtype_) == 4 ? launch_single(buffers) : launch_half(buffers);
  }

  std::string kernel() const override {
    if (bytes_of(dtype_) == 4) return batched_ ? "cublasSgemmStridedBatched" : "cublasSgemm";
    return batched_ ? "cublasGemmStridedBatchedEx" : "cublasGemmEx";
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
    const auto first_op = operation(call_.first_transposed);
    const auto second_op = operation(call_.second_transposed);
    const auto* first = static_cast<const float*>(buffers.b);
    const auto* second = static_cast<const float*>(buffers.a);
    auto* output = static_cast<float*>(buffers.c);
    if (batched_) {
      CUBLAS_TRY(cublas_.sgemm_batched(handle_, first_op, second_op, m(), n(), k(), &kOne, first,
                                       first_ld(), call_.first_stride, second, second_ld(),
                                       call_.second_stride, &kZero, output, output_ld(),
                                       call_.output_stride, batch()));
    } else {
      CUBLAS_TRY(cublas_.sgemm(handle_, first_op, second_op, m(), n(), k(), &kOne, first,
                               first_ld(), second, second_ld(), &kZero, output, output_ld()));
    }
    return {};
  }

  Outcome<void> launch_half(const GemmBuffers& buffers) {
    const auto first_op = operation(call_.first_transposed);
    const auto second_op = operation(call_.second_transposed);
    const cudaDataType type = type_of(dtype_);
    if (batched_) {
      CUBLAS_TRY(cublas_.gemm_batched_ex(handle_, first_op, second_op, m(), n(), k(), &kOne,
                                         buffers.b, type, first_ld(), call_.first_stride, buffers.a,
                                         type, second_ld(), call_.second_stride, &kZero, buffers.c,
                                         type, output_ld(), call_.output_stride, batch(),
                                         CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT_TENSOR_OP));
    } else {
      CUBLAS_TRY(cublas_.gemm_ex(handle_, first_op, second_op, m(), n(), k(), &kOne, buffers.b,
                                 type, first_ld(), buffers.a, type, second_ld(), &kZero, buffers.c,
                                 type, output_ld(), CUBLAS_COMPUTE_32F,
                                 CUBLAS_GEMM_DEFAULT_TENSOR_OP));
    }
    return {};
  }

  const Functions& cublas_;
  cublasHandle_t handle_;
  const Workspace& workspace_;
  DType dtype_;
  bool batched_;
  ColumnMajorGemm call_;
};

/// at::cuda::blas::gemm_and_bias: the epilogue adds the bias, the heuristic's first algorithm runs.
class LtGemm final : public Gemm {
 public:
  LtGemm(const Functions& cublas, cublasLtHandle_t handle, const Workspace& workspace)
      : cublas_(cublas), handle_(handle), workspace_(workspace) {}
  ~LtGemm() override {
    if (preference_ != nullptr) cublas_.lt_preference_destroy(preference_);
    for (const auto layout : {first_, second_, output_}) {
      if (layout != nullptr) cublas_.lt_layout_destroy(layout);
    }
    if (desc_ != nullptr) cublas_.lt_desc_destroy(desc_);
  }
  LtGemm(const LtGemm&) = delete;
  LtGemm& operator=(const LtGemm&) = delete;

  Outcome<void> choose(const GemmCase& point) {
    if (auto described = describe(point); !described) return described;
    // Any pointer: algorithms for a bias are found only where there is one.
    if (auto set = set_bias(workspace_.data()); !set) return set;
    const std::size_t most = workspace_.bytes();
    CUBLAS_TRY(cublas_.lt_preference_create(&preference_));
    CUBLAS_TRY(cublas_.lt_preference_set(preference_, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                         &most, sizeof most));
    int found = 0;
    CUBLAS_TRY(cublas_.lt_heuristic(handle_, desc_, first_, second_, output_, output_, preference_,
                                    1, &choice_, &found));
    if (found == 0) CUBLAS_TRY(CUBLAS_STATUS_NOT_SUPPORTED);
    return {};
  }

  Outcome<void> launch(const GemmBuffers& buffers, Stream stream) override {
    if (auto set = set_bias(buffers.bias); !set) return set;
    CUBLAS_TRY(cublas_.lt_matmul(handle_, desc_, &kOne, buffers.b, first_, buffers.a, second_,
                                 &kZero, buffers.c, output_, buffers.c, output_, &choice_.algo,
                                 workspace_.data(), workspace_.bytes(), stream));
    return {};
  }

  std::string kernel() const override {
    int id = -1;
    std::size_t written = 0;
    cublas_.lt_algo_attribute(&choice_.algo, CUBLASLT_ALGO_CONFIG_ID, &id, sizeof id, &written);
    return "cublasLtMatmul, algorithm " + std::to_string(id);
  }

 private:
  Outcome<void> describe(const GemmCase& point) {
    const ColumnMajorGemm call = column_major(point);
    const cudaDataType type = type_of(point.dtype);
    CUBLAS_TRY(cublas_.lt_desc_create(
        &desc_, point.dtype == DType::kTf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
        CUDA_R_32F));
    const cublasOperation_t first = operation(call.first_transposed);
    const cublasOperation_t second = operation(call.second_transposed);
    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    CUBLAS_TRY(cublas_.lt_desc_set(desc_, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first));
    CUBLAS_TRY(cublas_.lt_desc_set(desc_, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second));
    CUBLAS_TRY(
        cublas_.lt_desc_set(desc_, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
    if (auto layout =
            make_layout(&first_, type, call.m, call.k, call.first_transposed, call.first_ld);
        !layout) {
      return layout;
    }
    if (auto layout =
            make_layout(&second_, type, call.k, call.n, call.second_transposed, call.second_ld);
        !layout) {
      return layout;
    }
    return make_layout(&output_, type, call.m, call.n, false, call.output_ld);
  }

  /// Makes the layout of the matrix in memory; `rows` and `cols` are of op(matrix).
  Outcome<void> make_layout(cublasLtMatrixLayout_t* layout, cudaDataType type, std::int64_t rows,
                            std::int64_t cols, bool transposed, std::int64_t ld) {
    if (transposed) std::swap(rows, cols);
    CUBLAS_TRY(cublas_.lt_layout_create(layout, type, static_cast<std::uint64_t>(rows),
                                        static_cast<std::uint64_t>(cols), ld));
    return {};
  }

  Outcome<void> set_bias(const void* bias) {
    CUBLAS_TRY(cublas_.lt_desc_set(desc_, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias));
    return {};
  }

  const Functions& cublas_;
  cublasLtHandle_t handle_;
  const Workspace& workspace_;
  cublasLtMatmulDesc_t desc_ = nullptr;
  cublasLtMatrixLayout_t first_ = nullptr, second_ = nullptr, output_ = nullptr;
  cublasLtMatmulPreference_t preference_ = nullptr;
  cublasLtMatmulHeuristicResult_t choice_ = {};
};

class Cublas final : public MatrixLibrary {
 public:
  explicit Cublas(const DeviceInfo& device)
      : large_workspace_(device.target == "sm_90" || device.target == "sm_100") {}
  ~Cublas() override {
    if (handle_ != nullptr) cublas_.destroy(handle_);
    if (lt_handle_ != nullptr) cublas_.lt_destroy(lt_handle_);
  }
  Cublas(const Cublas&) = delete;
  Cublas& operator=(const Cublas&) = delete;

  std::vector<LibraryInfo> info() const override {
    return {info_of("cuBLAS", cublas_.library, cublas_.get_property),
            info_of("cuBLASLt", cublas_.lt_library, cublas_.lt_get_property)};
  }

  Outcome<std::unique_ptr<Gemm>> make_gemm(const GemmCase& point) override {
    if (point.bias) return make_lt_gemm(point);
    if (auto started = start(); !started) return tl::unexpected(started.error());
    return std::make_unique<BlasGemm>(cublas_, handle_, workspace_, point);
  }

 private:
  static constexpr std::size_t kKiB = 1024;

  Outcome<std::unique_ptr<Gemm>> make_lt_gemm(const GemmCase& point) {
    if (point.batched) {
      return tl::unexpected(Failure{FailureKind::kUnsupported, "a batched GEMM with bias"});
    }
    if (auto started = start_lt(); !started) return tl::unexpected(started.error());
    auto gemm = std::make_unique<LtGemm>(cublas_, lt_handle_, lt_workspace_);
    if (auto chosen = gemm->choose(point); !chosen) return tl::unexpected(chosen.error());
    return gemm;
  }

  /// The workspace is PyTorch's default, :4096:2:16:8 and on Hopper 32 MiB (CUDAHooks'
  /// parseChosenWorkspaceSize). cuBLAS's own would be allocated while a graph is captured.
  Outcome<void> start() {
    if (!cublas_.library.usable()) return tl::unexpected(missing(info()[0]));
    if (handle_ == nullptr) CUBLAS_TRY(cublas_.create(&handle_));
    if (workspace_.data() != nullptr) return {};
    return workspace_.allocate((large_workspace_ ? 32 * 1024 : 2 * 4096 + 8 * 16) * kKiB);
  }

  /// PyTorch's default has been 1 MiB; newer releases share cuBLAS's 32 MiB on Hopper, taken here.
  Outcome<void> start_lt() {
    if (!cublas_.lt_library.usable()) return tl::unexpected(missing(info()[1]));
    if (lt_handle_ == nullptr) CUBLAS_TRY(cublas_.lt_create(&lt_handle_));
    if (lt_workspace_.data() != nullptr) return {};
    return lt_workspace_.allocate((large_workspace_ ? 32 * 1024 : 1024) * kKiB);
  }

  Functions cublas_;
  bool large_workspace_;
  Workspace workspace_, lt_workspace_;
  cublasHandle_t handle_ = nullptr;
  cublasLtHandle_t lt_handle_ = nullptr;
};

}  // namespace

std::unique_ptr<MatrixLibrary> open_matrix_library(const DeviceInfo& device) {
  return std::make_unique<Cublas>(device);
}

}  // namespace kernels_bench::gpu
