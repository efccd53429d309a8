#include <algorithm>
#include <chrono>
#include <optional>

#include "clocks.hpp"
#include "device_info.hpp"
#include "handles.hpp"
#include "helper_kernels.hpp"
#include "libraries.hpp"
#include "timing.hpp"
#include "workload.hpp"

namespace kernels_bench::gpu {
namespace {

constexpr std::int64_t kMiB = 1 << 20;
/// Left free in addition to a case's own buffers: blocks are rounded up, libraries load their
/// kernels.
constexpr std::int64_t kSpareMemory = 512 * kMiB;
constexpr std::int64_t kMostCopies = 256;
/// Rotating buffers must hold so many caches that each is cold when it is used again.
constexpr std::int64_t kColdCaches = 3;
/// Replays of all sets are not to take longer [s]; slower cases flush instead.
constexpr double kLongestRound = 0.02;

template <class... Functions>
struct Overloaded : Functions... {
  using Functions::operator()...;
};
template <class... Functions>
Overloaded(Functions...) -> Overloaded<Functions...>;

class GpuDevice final : public Device {
 public:
  static Outcome<std::unique_ptr<GpuDevice>> open(int index);

  ~GpuDevice() override {
    if (scratch_ != nullptr) (void)GPU(Free)(scratch_);
  }
  GpuDevice(const GpuDevice&) = delete;
  GpuDevice& operator=(const GpuDevice&) = delete;

  const DeviceInfo& info() const override { return info_; }
  Clocks clocks() override { return clock_reader_->read(); }
  Outcome<Measurement> measure(const Case& point, const MeasureOptions& options) override;

 private:
  explicit GpuDevice(int index) : index_(index) {}
  Outcome<void> start();
  Outcome<void> run_empty_kernel();

  std::unique_ptr<Workload> make_workload(const Case& point);
  std::unique_ptr<Workload> make_peak(const PeakCase& point);
  Outcome<Measurement> run(Workload& workload, const MeasureOptions& options);
  Outcome<std::vector<double>> run_timed(Workload& workload, int copies,
                                         const MeasureOptions& options);
  Outcome<std::vector<double>> run_own(Workload& workload, Context& context,
                                       const MeasureOptions& options);
  Outcome<int> choose_copies(const Workload& workload, bool warm_l2) const;
  Outcome<Flush> make_flush();
  void settle(Failure& failure);

  int index_;
  DeviceInfo info_;
  std::unique_ptr<ClockReader> clock_reader_;
  OwnedStream stream_;
  std::unique_ptr<MatrixLibrary> matrix_;
  std::unique_ptr<ConvolutionLibrary> convolution_;
  BlockCache blocks_;
  void* scratch_ = nullptr;  ///< for the flush
  std::optional<Failure> broken_;
};

Outcome<std::unique_ptr<GpuDevice>> GpuDevice::open(int index) {
  int count = 0;  // stays as it is where there is no driver
  const Status counted = GPU(GetDeviceCount)(&count);
  if (counted != GPU(Success) || index < 0 || index >= count) {
    (void)GPU(GetLastError)();
    return tl::unexpected(no_device(counted, count, index));
  }
  std::unique_ptr<GpuDevice> device(new GpuDevice(index));
  if (auto started = device->start(); !started) return tl::unexpected(started.error());
  return device;
}

Outcome<void> GpuDevice::start() {
  GPU_TRY(GPU(SetDevice)(index_));
  auto info = read_device_info(index_);
  if (!info) return tl::unexpected(info.error());
  info_ = std::move(*info);
  auto stream = make_stream();
  if (!stream) return tl::unexpected(stream.error());
  stream_ = std::move(*stream);
  if (auto ran = run_empty_kernel(); !ran) return ran;

  char pci_address[32] = "";
  GPU_TRY(GPU(DeviceGetPCIBusId)(pci_address, sizeof pci_address, index_));
  clock_reader_ = make_clock_reader(pci_address);
  if (const std::string version = clock_reader_->driver_version(); !version.empty()) {
    info_.driver = version + " (" + info_.driver + ")";
  }
  matrix_ = open_matrix_library(info_);
  convolution_ = open_convolution_library();
  info_.libraries = matrix_->info();
  info_.libraries.push_back(convolution_->info());
  std::size_t free = 0, total = 0;
  GPU_TRY(GPU(MemGetInfo)(&free, &total));
  info_.free_bytes = static_cast<std::int64_t>(free);
  return {};
}

/// A GPU that this module has no code for fails here, with a name for it.
Outcome<void> GpuDevice::run_empty_kernel() {
  Status status = launch_empty(stream_.get());
  if (status == GPU(Success)) status = GPU(StreamSynchronize)(stream_.get());
  if (status == GPU(Success)) return {};
  return tl::unexpected(
      Failure{FailureKind::kUnsupported, info_.name + " (" + info_.target + ") runs no kernel: " +
                                             failure_of(status, "empty kernel").message});
}

Outcome<Measurement> GpuDevice::measure(const Case& point, const MeasureOptions& options) {
  if (broken_) return tl::unexpected(*broken_);
  GPU_TRY(GPU(SetDevice)(index_));
  const std::unique_ptr<Workload> workload = make_workload(point);
  auto measurement = run(*workload, options);
  if (!measurement) settle(measurement.error());
  return measurement;
}

/// A call can fail without harm to the device. Otherwise every later one fails as well, and the
/// device is given up.
void GpuDevice::settle(Failure& failure) {
  (void)GPU(GetLastError)();
  const Status status = GPU(DeviceSynchronize)();
  if (status != GPU(Success)) {
    failure.kind = FailureKind::kDevice;
    broken_ = failure;
  } else if (failure.kind == FailureKind::kDevice) {
    failure.kind = FailureKind::kUnsupported;
  }
}

std::unique_ptr<Workload> GpuDevice::make_workload(const Case& point) {
  return std::visit(
      Overloaded{
          [this](const GemmCase& c) { return make_gemm(c, *matrix_); },
          [this](const ConvolutionCase& c) { return make_convolution(c, *convolution_); },
          [](const EmbeddingCase& c) { return make_embedding(c); },
          [](const MemoryCase& c) { return make_memory(c); },
          [](const ElementwiseCase& c) { return make_elementwise(c); },
          [](const RowCase& c) { return make_rows(c); },
          [](const BatchNormCase& c) { return make_batch_norm(c); },
          [](const DropoutCase& c) { return make_dropout(c); },
          [](const TransposeCase& c) { return make_transpose(c); },
          [](const ConcatCase& c) { return make_concat(c); },
          [](const GatherCase& c) { return make_gather(c); },
          [](const TrilCase& c) { return make_tril(c); },
          [](const HashedProductCase& c) { return make_hashed_product(c); },
          [this](const PeakCase& c) { return make_peak(c); },
      },
      point);
}

std::unique_ptr<Workload> GpuDevice::make_peak(const PeakCase& point) {
  switch (point.kind) {
    case PeakCase::Kind::kCopyBandwidth: return make_copy_bandwidth(point);
    case PeakCase::Kind::kReadBandwidth: return make_read_bandwidth(point);
    case PeakCase::Kind::kFma: return make_fma(point);
    case PeakCase::Kind::kMatrix:
      return make_gemm(GemmCase{.dtype = point.dtype,
                                .batch = 1,
                                .m = point.bytes,
                                .n = point.bytes,
                                .k = point.bytes},
                       *matrix_);
    default: return make_fixed_cost(point, info_);
  }
}

Outcome<Measurement> GpuDevice::run(Workload& workload, const MeasureOptions& options) {
  const auto copies = choose_copies(workload, options.warm_l2);
  if (!copies) return tl::unexpected(copies.error());
  Context context(stream_.get(), options.seed, blocks_);
  if (auto ready = workload.prepare(context, *copies); !ready) {
    return tl::unexpected(ready.error());
  }
  GPU_TRY(GPU(StreamSynchronize)(stream_.get()));
  Measurement measurement;
  if (options.check) {
    const auto error = workload.check(context);
    if (!error) return tl::unexpected(error.error());
    measurement.max_error = *error;
  }
  auto times = workload.timing() == Timing::kOwn ? run_own(workload, context, options)
                                                 : run_timed(workload, *copies, options);
  if (!times) return tl::unexpected(times.error());
  measurement.times_us = std::move(*times);
  measurement.kernel = workload.kernel();
  return measurement;
}

/// Number of buffer sets that makes all of them cold; kOutOfMemory if one does not fit.
Outcome<int> GpuDevice::choose_copies(const Workload& workload, bool warm_l2) const {
  std::size_t free = 0, total = 0;
  GPU_TRY(GPU(MemGetInfo)(&free, &total));
  const std::int64_t bytes = std::max<std::int64_t>(workload.bytes_per_copy(), 1);
  const std::int64_t usable = static_cast<std::int64_t>(free) - kSpareMemory;
  if (bytes > usable) {
    return tl::unexpected(Failure{FailureKind::kOutOfMemory,
                                  "needs " + std::to_string(bytes / kMiB) + " MiB, free are " +
                                      std::to_string(std::max<std::int64_t>(usable, 0) / kMiB)});
  }
  if (warm_l2 || workload.timing() == Timing::kOwn) return 1;
  const std::int64_t cold = (kColdCaches * cache_bytes(info_) + bytes - 1) / bytes;
  return static_cast<int>(std::clamp<std::int64_t>(std::min(cold, usable / bytes), 1, kMostCopies));
}

Outcome<std::vector<double>> GpuDevice::run_timed(Workload& workload, int copies,
                                                  const MeasureOptions& options) {
  // The first run of each set is no part of the times, nor of the capture: libraries load kernels.
  // A check has run set 0: large cases, which have no other, need no second run.
  const auto begin = std::chrono::steady_clock::now();
  for (int i = options.check && copies == 1 ? 1 : 0; i < copies; ++i) {
    if (auto launched = workload.launch(i, stream_.get()); !launched) {
      return tl::unexpected(launched.error());
    }
  }
  GPU_TRY(GPU(StreamSynchronize)(stream_.get()));
  const std::chrono::duration<double> round = std::chrono::steady_clock::now() - begin;

  TimingSetup setup{.workload = workload,
                    .stream = stream_.get(),
                    .copies = copies,
                    .min_launches = 1,
                    .flush = {}};
  const bool graph = workload.timing() == Timing::kGraph;
  if (graph && copies * workload.bytes_per_copy() >= kColdCaches * cache_bytes(info_) &&
      round.count() < kLongestRound) {
    // A replay of all sets leaves only its own last lines to the next one, as in a running model; a
    // flush's dirty lines would be written back at the cost of kernels that only read.
    setup.min_launches = copies;
  } else if (!options.warm_l2) {
    auto flush = make_flush();
    if (!flush) return tl::unexpected(flush.error());
    setup.flush = *flush;
  }
  return graph ? time_graph(setup, options) : time_events(setup, options);
}

Outcome<std::vector<double>> GpuDevice::run_own(Workload& workload, Context& context,
                                                const MeasureOptions& options) {
  const auto trial = workload.own_times(context, 1);
  if (!trial || trial->empty()) return trial;
  return workload.own_times(context, repetitions_for(trial->front(), options));
}

/// Twice the cache; made once, kept.
Outcome<Flush> GpuDevice::make_flush() {
  const std::int64_t bytes = 2 * std::max(cache_bytes(info_), 32 * kMiB);
  if (scratch_ == nullptr) {
    GPU_TRY(GPU(Malloc)(&scratch_, static_cast<std::size_t>(bytes)));
  }
  return Flush{.scratch = scratch_, .bytes = bytes};
}

}  // namespace

Outcome<std::vector<double>> Workload::own_times(Context&, int) {
  return tl::unexpected(Failure{FailureKind::kUnsupported, "this workload does not time itself"});
}

}  // namespace kernels_bench::gpu

extern "C" {

__attribute__((visibility("default"))) int kernels_bench_module_version() {
  return kernels_bench::kModuleVersion;
}

__attribute__((visibility("default"))) kernels_bench::Device* kernels_bench_open_device(
    int index, kernels_bench::Failure* failure) {
  auto device = kernels_bench::gpu::GpuDevice::open(index);
  if (device) return device->release();
  *failure = std::move(device.error());
  return nullptr;
}

}  // extern "C"
