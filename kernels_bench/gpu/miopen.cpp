#include <array>

#include "libraries.hpp"
#include "rocm_abi.hpp"
#include "shared_library.hpp"

namespace kernels_bench::gpu {
namespace {

/// The calls of one direction.
struct DirectionFunctions {
  miopen::GetSolution* get_solution = nullptr;
  miopen::CompileSolution* compile = nullptr;
  miopen::Immediate* run = nullptr;
  std::string name;  ///< name of `run`
};

struct Functions {
  SharedLibrary library{{"libMIOpen.so.1"},
                        library_folders({"ROCM_PATH", "ROCM_HOME"}, "/lib", "/opt/rocm/lib")};
  miopen::GetVersion* get_version = nullptr;
  miopen::ErrorString* error_string = nullptr;
  miopen::CreateWithStream* create = nullptr;
  miopen::Destroy* destroy = nullptr;
  miopen::SetStream* set_stream = nullptr;
  miopen::CreateTensor* create_tensor = nullptr;
  miopen::SetTensor* set_tensor = nullptr;
  miopen::DestroyTensor* destroy_tensor = nullptr;
  miopen::CreateConvolution* create_convolution = nullptr;
  miopen::InitConvolution* init_convolution = nullptr;
  miopen::DestroyConvolution* destroy_convolution = nullptr;
  std::array<DirectionFunctions, 3> directions;  ///< by ConvolutionCase::Direction

  Functions() {
    library.find("miopenGetVersion", get_version);
    library.find("miopenGetErrorString", error_string);
    library.find("miopenCreateWithStream", create);
    library.find("miopenDestroy", destroy);
    library.find("miopenSetStream", set_stream);
    library.find("miopenCreateTensorDescriptor", create_tensor);
    library.find("miopenSet4dTensorDescriptor", set_tensor);
    library.find("miopenDestroyTensorDescriptor", destroy_tensor);
    library.find("miopenCreateConvolutionDescriptor", create_convolution);
    library.find("miopenInitConvolutionDescriptor", init_convolution);
    library.find("miopenDestroyConvolutionDescriptor", destroy_convolution);
    const char* const names[] = {"Forward", "BackwardData", "BackwardWeights"};
    for (std::size_t i = 0; i < directions.size(); ++i) {
      const std::string prefix = std::string("miopenConvolution") + names[i];
      DirectionFunctions& direction = directions[i];
      direction.name = prefix + "Immediate";
      library.find((prefix + "GetSolution").c_str(), direction.get_solution);
      library.find((prefix + "CompileSolution").c_str(), direction.compile);
      library.find(direction.name.c_str(), direction.run);
    }
  }
};

Failure miopen_failure(const Functions& miopen, int status, const char* call) {
  const std::string message = std::string(call) + ": " + miopen.error_string(status);
  switch (status) {
    case miopen::kAllocFailed: return {FailureKind::kOutOfMemory, message};
    case miopen::kInternalError:
    case miopen::kUnknownError: return {FailureKind::kDevice, message};
    default: return {FailureKind::kUnsupported, message};
  }
}

#define MIOPEN_TRY(call)                                                        \
  do {                                                                          \
    if (const auto miopen_status = (call); miopen_status != miopen::kSuccess) { \
      return tl::unexpected(miopen_failure(miopen_, miopen_status, #call));     \
    }                                                                           \
  } while (false)

int type_of(DType dtype) {
  switch (dtype) {
    case DType::kBFloat16: return miopen::kBFloat16;
    case DType::kFloat16: return miopen::kHalf;
    default: return miopen::kFloat;
  }
}

/// Immediate mode, as PyTorch uses it with benchmarking off: the first solution, which MIOpen
/// expects to be the fastest, within the limit of the workspace.
class MiopenConvolution final : public Convolution {
 public:
  MiopenConvolution(const Functions& miopen, miopen::Handle handle, const ConvolutionCase& point)
      : miopen_(miopen),
        calls_(miopen.directions[static_cast<std::size_t>(point.direction)]),
        handle_(handle),
        point_(point) {}
  ~MiopenConvolution() override {
    for (const auto tensor : {input_, filter_, output_}) {
      if (tensor != nullptr) miopen_.destroy_tensor(tensor);
    }
    if (convolution_ != nullptr) miopen_.destroy_convolution(convolution_);
  }
  MiopenConvolution(const MiopenConvolution&) = delete;
  MiopenConvolution& operator=(const MiopenConvolution&) = delete;

  Outcome<void> choose() {
    if (auto described = describe(); !described) return described;
    const auto [first, second, result] = ordered(input_, filter_, output_);
    std::array<miopen::Solution, 16> solutions = {};
    std::size_t count = 0;
    MIOPEN_TRY(calls_.get_solution(handle_, first, second, convolution_, result, solutions.size(),
                                   &count, solutions.data()));
    constexpr std::size_t kWorkspaceLimit = std::size_t{1} << 30;
    for (std::size_t i = 0; i < count && i < solutions.size(); ++i) {
      if (solutions[i].workspace_size > kWorkspaceLimit) continue;
      solution_ = solutions[i];
      MIOPEN_TRY(calls_.compile(handle_, first, second, convolution_, result, solution_.id));
      return {};
    }
    return tl::unexpected(
        Failure{FailureKind::kUnsupported, "MIOpen has no solution within 1 GiB of workspace"});
  }

  std::int64_t workspace_bytes() const override {
    return static_cast<std::int64_t>(solution_.workspace_size);
  }
  Timing timing() const override { return Timing::kEvents; }  // may wait for the device inside

  Outcome<void> launch(const ConvolutionBuffers& buffers, void* workspace, Stream stream) override {
    MIOPEN_TRY(miopen_.set_stream(handle_, stream));
    const auto [first, second, result] = ordered(input_, filter_, output_);
    const auto [first_data, second_data, result_data] =
        ordered(buffers.input, buffers.filter, buffers.output);
    MIOPEN_TRY(calls_.run(handle_, first, first_data, second, second_data, convolution_, result,
                          result_data, workspace, solution_.workspace_size, solution_.id));
    return {};
  }

  std::string kernel() const override {
    return calls_.name + ", solution " + std::to_string(solution_.id);
  }

 private:
  template <class T>
  std::array<T, 3> ordered(T input, T filter, T output) const {
    switch (point_.direction) {
      case ConvolutionCase::Direction::kForward: return {filter, input, output};
      case ConvolutionCase::Direction::kInputGradient: return {output, filter, input};
      default: return {output, input, filter};
    }
  }

  Outcome<void> describe() {
    const auto n = static_cast<int>(point_.n), c = static_cast<int>(point_.c),
               h = static_cast<int>(point_.h), w = static_cast<int>(point_.w),
               k = static_cast<int>(point_.k), filter = static_cast<int>(point_.filter),
               pad = static_cast<int>(point_.pad), stride = static_cast<int>(point_.stride);
    const int type = type_of(point_.dtype);
    MIOPEN_TRY(miopen_.create_tensor(&input_));
    MIOPEN_TRY(miopen_.set_tensor(input_, type, n, c, h, w));
    MIOPEN_TRY(miopen_.create_tensor(&filter_));
    MIOPEN_TRY(miopen_.set_tensor(filter_, type, k, c, filter, filter));
    MIOPEN_TRY(miopen_.create_tensor(&output_));
    MIOPEN_TRY(miopen_.set_tensor(output_, type, n, k, (h + 2 * pad - filter) / stride + 1,
                                  (w + 2 * pad - filter) / stride + 1));
    MIOPEN_TRY(miopen_.create_convolution(&convolution_));
    MIOPEN_TRY(miopen_.init_convolution(convolution_, miopen::kCrossCorrelation, pad, pad, stride,
                                        stride, 1, 1));
    return {};
  }

  const Functions& miopen_;
  const DirectionFunctions& calls_;
  miopen::Handle handle_;
  ConvolutionCase point_;
  miopen::Tensor input_ = nullptr, filter_ = nullptr, output_ = nullptr;
  miopen::Convolution convolution_ = nullptr;
  miopen::Solution solution_ = {};
};

class Miopen final : public ConvolutionLibrary {
 public:
  Miopen() = default;
  ~Miopen() override {
    if (handle_ != nullptr) miopen_.destroy(handle_);
  }
  Miopen(const Miopen&) = delete;
  Miopen& operator=(const Miopen&) = delete;

  LibraryInfo info() const override {
    LibraryInfo info{.name = "MIOpen", .version = {}, .problem = miopen_.library.problem()};
    std::size_t major = 0, minor = 0, patch = 0;
    if (!miopen_.library.usable()) return info;
    if (miopen_.get_version(&major, &minor, &patch) != miopen::kSuccess) return info;
    info.version =
        std::to_string(major) + '.' + std::to_string(minor) + '.' + std::to_string(patch);
    return info;
  }

  Outcome<std::unique_ptr<Convolution>> make_convolution(const ConvolutionCase& point,
                                                         Stream stream) override {
    if (!miopen_.library.usable()) return tl::unexpected(missing(info()));
    if (point.dtype == DType::kTf32) {
      return tl::unexpected(Failure{FailureKind::kUnsupported, "MIOpen: no TF32"});
    }
    if (handle_ == nullptr) MIOPEN_TRY(miopen_.create(&handle_, stream));
    auto convolution = std::make_unique<MiopenConvolution>(miopen_, handle_, point);
    if (auto chosen = convolution->choose(); !chosen) return tl::unexpected(chosen.error());
    return convolution;
  }

 private:
  Functions miopen_;
  miopen::Handle handle_ = nullptr;
};

}  // namespace

std::unique_ptr<ConvolutionLibrary> open_convolution_library() {
  return std::make_unique<Miopen>();
}

}  // namespace kernels_bench::gpu
