#include "libraries.hpp"
#include "shared_library.hpp"

#if __has_include(<cudnn.h>)
#include <cudnn.h>

namespace kernels_bench::gpu {
namespace {

struct Functions {
  SharedLibrary library{
      {"libcudnn.so.9", "libcudnn.so.8"},
      library_folders({"CUDNN_HOME", "CUDA_HOME"}, "/lib64", "/usr/local/cuda/lib64")};
  decltype(cudnnGetVersion)* get_version = nullptr;
  decltype(cudnnGetErrorString)* error_string = nullptr;
  decltype(cudnnCreate)* create = nullptr;
  decltype(cudnnDestroy)* destroy = nullptr;
  decltype(cudnnSetStream)* set_stream = nullptr;
  decltype(cudnnCreateTensorDescriptor)* create_tensor = nullptr;
  decltype(cudnnSetTensor4dDescriptor)* set_tensor = nullptr;
  decltype(cudnnDestroyTensorDescriptor)* destroy_tensor = nullptr;
  decltype(cudnnCreateFilterDescriptor)* create_filter = nullptr;
  decltype(cudnnSetFilter4dDescriptor)* set_filter = nullptr;
  decltype(cudnnDestroyFilterDescriptor)* destroy_filter = nullptr;
  decltype(cudnnCreateConvolutionDescriptor)* create_convolution = nullptr;
  decltype(cudnnSetConvolution2dDescriptor)* set_convolution = nullptr;
  decltype(cudnnSetConvolutionMathType)* set_math_type = nullptr;
  decltype(cudnnDestroyConvolutionDescriptor)* destroy_convolution = nullptr;
  decltype(cudnnGetConvolutionForwardAlgorithm_v7)* forward_choices = nullptr;
  decltype(cudnnGetConvolutionBackwardDataAlgorithm_v7)* data_choices = nullptr;
  decltype(cudnnGetConvolutionBackwardFilterAlgorithm_v7)* filter_choices = nullptr;
  decltype(cudnnGetConvolutionForwardWorkspaceSize)* forward_workspace = nullptr;
  decltype(cudnnGetConvolutionBackwardDataWorkspaceSize)* data_workspace = nullptr;
  decltype(cudnnGetConvolutionBackwardFilterWorkspaceSize)* filter_workspace = nullptr;
  decltype(cudnnConvolutionForward)* forward = nullptr;
  decltype(cudnnConvolutionBackwardData)* backward_data = nullptr;
  decltype(cudnnConvolutionBackwardFilter)* backward_filter = nullptr;

  Functions() {
    library.find("cudnnGetVersion", get_version);
    library.find("cudnnGetErrorString", error_string);
    library.find("cudnnCreate", create);
    library.find("cudnnDestroy", destroy);
    library.find("cudnnSetStream", set_stream);
    library.find("cudnnCreateTensorDescriptor", create_tensor);
    library.find("cudnnSetTensor4dDescriptor", set_tensor);
    library.find("cudnnDestroyTensorDescriptor", destroy_tensor);
    library.find("cudnnCreateFilterDescriptor", create_filter);
    library.find("cudnnSetFilter4dDescriptor", set_filter);
    library.find("cudnnDestroyFilterDescriptor", destroy_filter);
    library.find("cudnnCreateConvolutionDescriptor", create_convolution);
    library.find("cudnnSetConvolution2dDescriptor", set_convolution);
    library.find("cudnnSetConvolutionMathType", set_math_type);
    library.find("cudnnDestroyConvolutionDescriptor", destroy_convolution);
    library.find("cudnnGetConvolutionForwardAlgorithm_v7", forward_choices);
    library.find("cudnnGetConvolutionBackwardDataAlgorithm_v7", data_choices);
    library.find("cudnnGetConvolutionBackwardFilterAlgorithm_v7", filter_choices);
    library.find("cudnnGetConvolutionForwardWorkspaceSize", forward_workspace);
    library.find("cudnnGetConvolutionBackwardDataWorkspaceSize", data_workspace);
    library.find("cudnnGetConvolutionBackwardFilterWorkspaceSize", filter_workspace);
    library.find("cudnnConvolutionForward", forward);
    library.find("cudnnConvolutionBackwardData", backward_data);
    library.find("cudnnConvolutionBackwardFilter", backward_filter);
  }
};

Failure cudnn_failure(const Functions& cudnn, cudnnStatus_t status, const char* call) {
  const std::string message = std::string(call) + ": " + cudnn.error_string(status);
  switch (status) {
    case CUDNN_STATUS_ALLOC_FAILED: return {FailureKind::kOutOfMemory, message};
    case CUDNN_STATUS_EXECUTION_FAILED:
    case CUDNN_STATUS_INTERNAL_ERROR: return {FailureKind::kDevice, message};
    default: return {FailureKind::kUnsupported, message};
  }
}

#define CUDNN_TRY(call)                                                           \
  do {                                                                            \
    if (const auto cudnn_status = (call); cudnn_status != CUDNN_STATUS_SUCCESS) { \
      return tl::unexpected(cudnn_failure(cudnn_, cudnn_status, #call));          \
    }                                                                             \
  } while (false)

cudnnDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::kBFloat16: return CUDNN_DATA_BFLOAT16;
    case DType::kFloat16: return CUDNN_DATA_HALF;
    default: return CUDNN_DATA_FLOAT;
  }
}

/// PyTorch: fp32 without TF32 must not use tensor cores; the default lets fp32 use TF32.
cudnnMathType_t math_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return CUDNN_FMA_MATH;
    case DType::kTf32: return CUDNN_DEFAULT_MATH;
    default: return CUDNN_TENSOR_OP_MATH;
  }
}

constexpr float kOne = 1, kZero = 0;
constexpr std::size_t kWorkspaceLimit = std::size_t{1} << 30;

/// The cuDNN API that PyTorch used before its version 2: the heuristic's first algorithm (benchmark
/// off) whose workspace is within the limit. Newer releases ask the graph API's heuristic.
class CudnnConvolution final : public Convolution {
 public:
  CudnnConvolution(const Functions& cudnn, cudnnHandle_t handle, const ConvolutionCase& point)
      : cudnn_(cudnn), handle_(handle), point_(point) {}
  ~CudnnConvolution() override {
    for (const auto tensor : {input_, output_}) {
      if (tensor != nullptr) cudnn_.destroy_tensor(tensor);
    }
    if (filter_ != nullptr) cudnn_.destroy_filter(filter_);
    if (convolution_ != nullptr) cudnn_.destroy_convolution(convolution_);
  }
  CudnnConvolution(const CudnnConvolution&) = delete;
  CudnnConvolution& operator=(const CudnnConvolution&) = delete;

  Outcome<void> choose() {
    if (auto described = describe(); !described) return described;
    switch (point_.direction) {
      case ConvolutionCase::Direction::kForward: return choose_forward();
      case ConvolutionCase::Direction::kInputGradient: return choose_data();
      default: return choose_filter();
    }
  }

  std::int64_t workspace_bytes() const override { return static_cast<std::int64_t>(workspace_); }
  Timing timing() const override { return Timing::kGraph; }

  Outcome<void> launch(const ConvolutionBuffers& b, void* workspace, Stream stream) override {
    CUDNN_TRY(cudnn_.set_stream(handle_, stream));
    switch (point_.direction) {
      case ConvolutionCase::Direction::kForward:
        CUDNN_TRY(cudnn_.forward(handle_, &kOne, input_, b.input, filter_, b.filter, convolution_,
                                 static_cast<cudnnConvolutionFwdAlgo_t>(algorithm_), workspace,
                                 workspace_, &kZero, output_, b.output));
        break;
      case ConvolutionCase::Direction::kInputGradient:
        CUDNN_TRY(cudnn_.backward_data(handle_, &kOne, filter_, b.filter, output_, b.output,
                                       convolution_,
                                       static_cast<cudnnConvolutionBwdDataAlgo_t>(algorithm_),
                                       workspace, workspace_, &kZero, input_, b.input));
        break;
      case ConvolutionCase::Direction::kWeightGradient:
        CUDNN_TRY(cudnn_.backward_filter(handle_, &kOne, input_, b.input, output_, b.output,
                                         convolution_,
                                         static_cast<cudnnConvolutionBwdFilterAlgo_t>(algorithm_),
                                         workspace, workspace_, &kZero, filter_, b.filter));
        break;
    }
    return {};
  }

  std::string kernel() const override {
    static constexpr const char* kCalls[] = {"cudnnConvolutionForward",
                                             "cudnnConvolutionBackwardData",
                                             "cudnnConvolutionBackwardFilter"};
    return std::string(kCalls[static_cast<int>(point_.direction)]) + ", algorithm " +
           std::to_string(algorithm_);
  }

 private:
  Outcome<void> describe() {
    const auto n = static_cast<int>(point_.n), c = static_cast<int>(point_.c),
               h = static_cast<int>(point_.h), w = static_cast<int>(point_.w),
               k = static_cast<int>(point_.k), filter = static_cast<int>(point_.filter),
               pad = static_cast<int>(point_.pad), stride = static_cast<int>(point_.stride);
    const cudnnDataType_t type = type_of(point_.dtype);
    CUDNN_TRY(cudnn_.create_tensor(&input_));
    CUDNN_TRY(cudnn_.set_tensor(input_, CUDNN_TENSOR_NCHW, type, n, c, h, w));
    CUDNN_TRY(cudnn_.create_filter(&filter_));
    CUDNN_TRY(cudnn_.set_filter(filter_, type, CUDNN_TENSOR_NCHW, k, c, filter, filter));
    CUDNN_TRY(cudnn_.create_tensor(&output_));
    CUDNN_TRY(cudnn_.set_tensor(output_, CUDNN_TENSOR_NCHW, type, n, k,
                                (h + 2 * pad - filter) / stride + 1,
                                (w + 2 * pad - filter) / stride + 1));
    CUDNN_TRY(cudnn_.create_convolution(&convolution_));
    CUDNN_TRY(cudnn_.set_convolution(convolution_, pad, pad, stride, stride, 1, 1,
                                     CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
    CUDNN_TRY(cudnn_.set_math_type(convolution_, math_of(point_.dtype)));
    return {};
  }

  /// The first of the heuristic's list that the library itself says it can run.
  template <class Perf, class WorkspaceOf>
  Outcome<void> take_first(const Perf* choices, int count, const WorkspaceOf& workspace_of) {
    for (int i = 0; i < count; ++i) {
      if (choices[i].status != CUDNN_STATUS_SUCCESS || choices[i].memory > kWorkspaceLimit)
        continue;
      CUDNN_TRY(cudnn_.set_math_type(convolution_, choices[i].mathType));
      std::size_t bytes = 0;
      if (workspace_of(choices[i].algo, &bytes) != CUDNN_STATUS_SUCCESS) continue;
      if (bytes > kWorkspaceLimit) continue;
      algorithm_ = static_cast<int>(choices[i].algo);
      workspace_ = bytes;
      return {};
    }
    return tl::unexpected(
        Failure{FailureKind::kUnsupported, "cuDNN has no algorithm within 1 GiB of workspace"});
  }

  Outcome<void> choose_forward() {
    cudnnConvolutionFwdAlgoPerf_t choices[CUDNN_CONVOLUTION_FWD_ALGO_COUNT];
    int count = 0;
    CUDNN_TRY(cudnn_.forward_choices(handle_, input_, filter_, convolution_, output_,
                                     CUDNN_CONVOLUTION_FWD_ALGO_COUNT, &count, choices));
    return take_first(choices, count, [this](auto algorithm, std::size_t* bytes) {
      return cudnn_.forward_workspace(handle_, input_, filter_, convolution_, output_, algorithm,
                                      bytes);
    });
  }

  Outcome<void> choose_data() {
    cudnnConvolutionBwdDataAlgoPerf_t choices[CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT];
    int count = 0;
    CUDNN_TRY(cudnn_.data_choices(handle_, filter_, output_, convolution_, input_,
                                  CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT, &count, choices));
    return take_first(choices, count, [this](auto algorithm, std::size_t* bytes) {
      return cudnn_.data_workspace(handle_, filter_, output_, convolution_, input_, algorithm,
                                   bytes);
    });
  }

  Outcome<void> choose_filter() {
    cudnnConvolutionBwdFilterAlgoPerf_t choices[CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT];
    int count = 0;
    CUDNN_TRY(cudnn_.filter_choices(handle_, input_, output_, convolution_, filter_,
                                    CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT, &count, choices));
    return take_first(choices, count, [this](auto algorithm, std::size_t* bytes) {
      return cudnn_.filter_workspace(handle_, input_, output_, convolution_, filter_, algorithm,
                                     bytes);
    });
  }

  const Functions& cudnn_;
  cudnnHandle_t handle_;
  ConvolutionCase point_;
  cudnnTensorDescriptor_t input_ = nullptr, output_ = nullptr;
  cudnnFilterDescriptor_t filter_ = nullptr;
  cudnnConvolutionDescriptor_t convolution_ = nullptr;
  int algorithm_ = 0;
  std::size_t workspace_ = 0;
};

class Cudnn final : public ConvolutionLibrary {
 public:
  Cudnn() = default;
  ~Cudnn() override {
    if (handle_ != nullptr) cudnn_.destroy(handle_);
  }
  Cudnn(const Cudnn&) = delete;
  Cudnn& operator=(const Cudnn&) = delete;

  LibraryInfo info() const override {
    LibraryInfo info{.name = "cuDNN", .version = {}, .problem = cudnn_.library.problem()};
    if (!cudnn_.library.usable()) return info;
    const std::size_t version = cudnn_.get_version();  // 8907, 91900
    const std::size_t major_unit = version < 10000 ? 1000 : 10000;
    info.version = std::to_string(version / major_unit) + '.' +
                   std::to_string(version % major_unit / 100) + '.' + std::to_string(version % 100);
    return info;
  }

  Outcome<std::unique_ptr<Convolution>> make_convolution(const ConvolutionCase& point,
                                                         Stream stream) override {
    if (!cudnn_.library.usable()) return tl::unexpected(missing(info()));
    if (handle_ == nullptr) CUDNN_TRY(cudnn_.create(&handle_));
    CUDNN_TRY(cudnn_.set_stream(handle_, stream));
    auto convolution = std::make_unique<CudnnConvolution>(cudnn_, handle_, point);
    if (auto chosen = convolution->choose(); !chosen) return tl::unexpected(chosen.error());
    return convolution;
  }

 private:
  Functions cudnn_;
  cudnnHandle_t handle_ = nullptr;
};

}  // namespace

std::unique_ptr<ConvolutionLibrary> open_convolution_library() { return std::make_unique<Cudnn>(); }

}  // namespace kernels_bench::gpu

#else  // no header when this was built

namespace kernels_bench::gpu {
namespace {

class NoCudnn final : public ConvolutionLibrary {
 public:
  LibraryInfo info() const override { return {"cuDNN", {}, "built without its header, cudnn.h"}; }
  Outcome<std::unique_ptr<Convolution>> make_convolution(const ConvolutionCase&, Stream) override {
    return tl::unexpected(missing(info()));
  }
};

}  // namespace

std::unique_ptr<ConvolutionLibrary> open_convolution_library() {
  return std::make_unique<NoCudnn>();
}

}  // namespace kernels_bench::gpu

#endif
