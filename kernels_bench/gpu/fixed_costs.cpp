#include <algorithm>
#include <chrono>
#include <functional>

#include "helper_kernels.hpp"
#include "libraries.hpp"
#include "timing.hpp"

namespace kernels_bench::gpu {
namespace {

constexpr int kCalls = 64;  // per repetition, below every launch queue's depth

/// Mean µs of a host call, made on an idle stream.
Outcome<double> time_calls(Stream stream, int calls, const std::function<Status()>& call) {
  GPU_TRY(GPU(StreamSynchronize)(stream));
  Status status = GPU(Success);
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) {
    const Status made = call();
    if (made != GPU(Success)) status = made;
  }
  const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - begin;
  GPU_TRY(status);
  GPU_TRY(GPU(StreamSynchronize)(stream));
  return time.count() / calls;
}

/// A workload that times itself.
class FixedCost : public Workload {
 public:
  Timing timing() const override { return Timing::kOwn; }
  std::int64_t bytes_per_copy() const override { return 0; }
  Outcome<void> prepare(Context&, int) override { return {}; }
  Outcome<void> launch(int, Stream) override { return {}; }
  Outcome<double> check(Context&) override { return std::numeric_limits<double>::quiet_NaN(); }

  Outcome<std::vector<double>> own_times(Context& context, int repetitions) override {
    std::vector<double> times;
    for (int i = 0; i < repetitions; ++i) {
      const auto time = once(context.stream());
      if (!time) return tl::unexpected(time.error());
      times.push_back(*time);
    }
    return times;
  }

 protected:
  virtual Outcome<double> once(Stream stream) = 0;
};

class LaunchCost final : public FixedCost {
  Outcome<double> once(Stream stream) override {
    return time_calls(stream, kCalls, [&] { return launch_empty(stream); });
  }
};

class SynchronizeCost final : public FixedCost {
  Outcome<double> once(Stream stream) override {
    return time_calls(stream, kCalls, [&] { return GPU(StreamSynchronize)(stream); });
  }
};

class EventRecordCost final : public FixedCost {
  Outcome<void> prepare(Context&, int) override {
    auto event = make_event();
    if (!event) return tl::unexpected(event.error());
    event_ = std::move(*event);
    return {};
  }
  Outcome<double> once(Stream stream) override {
    return time_calls(stream, kCalls, [&] { return GPU(EventRecord)(event_.get(), stream); });
  }

  OwnedEvent event_;
};

/// Pinned memory of the host.
class HostBlock {
 public:
  HostBlock() = default;
  ~HostBlock() {
    if (data_ == nullptr) return;
#if KERNELS_BENCH_HIP
    (void)hipHostFree(data_);
#else
    (void)cudaFreeHost(data_);
#endif
  }
  HostBlock(const HostBlock&) = delete;
  HostBlock& operator=(const HostBlock&) = delete;

  Outcome<void> allocate(std::size_t bytes) {
#if KERNELS_BENCH_HIP
    GPU_TRY(hipHostMalloc(&data_, bytes, hipHostMallocDefault));
#else
    GPU_TRY(cudaMallocHost(&data_, bytes));
#endif
    return {};
  }
  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
};

class CopyCallCost final : public FixedCost {
 public:
  explicit CopyCallCost(std::int64_t bytes) : bytes_(bytes) {}

 private:
  std::int64_t bytes_per_copy() const override { return bytes_; }
  Outcome<void> prepare(Context& context, int) override {
    const auto device = context.allocate(bytes_);
    if (!device) return tl::unexpected(device.error());
    device_ = *device;
    return host_.allocate(static_cast<std::size_t>(std::max<std::int64_t>(bytes_, 1)));
  }
  Outcome<double> once(Stream stream) override {
    return time_calls(stream, kCalls / 4, [&] {
      return GPU(MemcpyAsync)(device_, host_.data(), static_cast<std::size_t>(bytes_),
                              GPU(MemcpyHostToDevice), stream);
    });
  }

  std::int64_t bytes_;
  void* device_ = nullptr;
  HostBlock host_;
};

class GraphLaunchCost final : public FixedCost {
 public:
  explicit GraphLaunchCost(std::int64_t kernels) : kernels_(kernels) {}

 private:
  Outcome<void> prepare(Context& context, int) override {
    auto graph = capture(context.stream(), [&]() -> Outcome<void> {
      for (std::int64_t i = 0; i < kernels_; ++i) GPU_TRY(launch_empty(context.stream()));
      return {};
    });
    if (!graph) return tl::unexpected(graph.error());
    graph_ = std::move(*graph);
    return {};
  }
  Outcome<double> once(Stream stream) override {
    return time_calls(stream, 1, [&] { return GPU(GraphLaunch)(graph_.get(), stream); });
  }

  std::int64_t kernels_;
  OwnedGraphExec graph_;
};

/// Device times between two events, queued while a kernel keeps the stream busy, so that no wait
/// for the host is in them.
class DeviceCost : public FixedCost {
 public:
  explicit DeviceCost(double clock_mhz) : clock_mhz_(clock_mhz > 0 ? clock_mhz : 1000) {}

 protected:
  Outcome<void> prepare(Context&, int) override {
    for (OwnedEvent* event : {&begin_, &end_}) {
      auto made = make_event();
      if (!made) return tl::unexpected(made.error());
      *event = std::move(*made);
    }
    auto other = make_stream();
    if (!other) return tl::unexpected(other.error());
    other_ = std::move(*other);
    return {};
  }

  Outcome<void> occupy(Stream stream, double microseconds) const {
    GPU_TRY(launch_spin(static_cast<std::int64_t>(microseconds * clock_mhz_), stream));
    return {};
  }

  double clock_mhz_;
  OwnedEvent begin_, end_;
  OwnedStream other_;
};

class EmptyKernelCost final : public DeviceCost {
 public:
  using DeviceCost::DeviceCost;

 private:
  Outcome<double> once(Stream stream) override {
    constexpr int kKernels = 256;
    constexpr double kQueueingTime = 3000;  // µs, over 10 per launch
    if (auto busy = occupy(stream, kQueueingTime); !busy) return tl::unexpected(busy.error());
    GPU_TRY(GPU(EventRecord)(begin_.get(), stream));
    for (int i = 0; i < kKernels; ++i) GPU_TRY(launch_empty(stream));
    GPU_TRY(GPU(EventRecord)(end_.get(), stream));
    const auto time = microseconds_between(begin_, end_);
    if (!time) return time;
    return *time / kKernels;
  }
};

class EventWaitCost final : public DeviceCost {
 public:
  using DeviceCost::DeviceCost;

 private:
  Outcome<double> once(Stream stream) override {
    if (auto busy = occupy(stream, 300); !busy) return tl::unexpected(busy.error());
    GPU_TRY(GPU(EventRecord)(begin_.get(), stream));
    GPU_TRY(GPU(StreamWaitEvent)(other_.get(), begin_.get(), 0));
    GPU_TRY(GPU(EventRecord)(end_.get(), other_.get()));
    return microseconds_between(begin_, end_);
  }
};

}  // namespace

std::unique_ptr<Workload> make_fixed_cost(const PeakCase& point, const DeviceInfo& device) {
  switch (point.kind) {
    case PeakCase::Kind::kLaunch: return std::make_unique<LaunchCost>();
    case PeakCase::Kind::kEmptyKernel: return std::make_unique<EmptyKernelCost>(device.clock_mhz);
    case PeakCase::Kind::kEventRecord: return std::make_unique<EventRecordCost>();
    case PeakCase::Kind::kEventWait: return std::make_unique<EventWaitCost>(device.clock_mhz);
    case PeakCase::Kind::kStreamSync: return std::make_unique<SynchronizeCost>();
    case PeakCase::Kind::kCopyCall: return std::make_unique<CopyCallCost>(point.bytes);
    case PeakCase::Kind::kGraphLaunch: return std::make_unique<GraphLaunchCost>(point.bytes);
    default: return nullptr;
  }
}

}  // namespace kernels_bench::gpu
