#include <cmath>
#include <numeric>

#include "../../kernels/copy.hpp"
#include "../../kernels/multiply_add.hpp"
#include "buffers.hpp"
#include "launch.hpp"

namespace kernels_bench::gpu {
inline namespace peaks_cu {

/// Plain reference of ReadSum: adds all words to `sum`, modulo 2^32.
__global__ void sum_words(const std::uint32_t* words, std::int64_t count, std::uint32_t* sum) {
  std::uint32_t mine = 0;
  const std::int64_t stride = std::int64_t{blockDim.x} * gridDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count;
       i += stride) {
    mine += words[i];
  }
  atomicAdd(sum, mine);
}

/// Reads one working set again and again within a launch: the part that fits into the L2 is found
/// there, whatever ran between launches. Times are of one pass.
class ReadWorkload final : public BufferedWorkload {
 public:
  explicit ReadWorkload(const PeakCase& point)
      : vectors_(std::max<std::int64_t>(point.bytes / 16, 1)),
        passes_(kernels::read_passes(vectors_ * 16)),
        blocks_(device_limits().blocks(kThreads)) {}

  Timing timing() const override { return Timing::kOwn; }

  Outcome<void> launch(int copy, Stream stream) override {
    return launch_passes(copy, passes_, stream);
  }

  /// The sum of all words, modulo 2^32, in two passes.
  Outcome<double> check(Context& context) override {
    constexpr unsigned kReferenceBlocks = 1024;
    TRY_OUTCOME(launch_passes(0, 2, context.stream()));
    auto sum = context.allocate(sizeof(std::uint32_t));
    TRY_OUTCOME(sum);
    GPU_TRY(GPU(MemsetAsync)(*sum, 0, sizeof(std::uint32_t), context.stream()));
    sum_words<<<kReferenceBlocks, kThreads, 0, context.stream()>>>(
        data<std::uint32_t>(0, 0), vectors_ * 4, static_cast<std::uint32_t*>(*sum));
    GPU_TRY(GPU(GetLastError)());
    std::uint32_t expected = 0;
    TRY_OUTCOME(context.download(&expected, *sum, sizeof(expected)));
    std::vector<std::uint32_t> words(static_cast<std::size_t>(blocks_));
    TRY_OUTCOME(context.download(words.data(), data<void>(0, 1), blocks_ * 4));
    if (std::accumulate(words.begin(), words.end(), 0U) != 2 * expected) {
      return tl::unexpected(Failure{FailureKind::kWrongResult, "expected the sum of all words"});
    }
    return 0.0;
  }

  /// All queued after an untimed launch, so that the GPU does not wait for the host.
  Outcome<std::vector<double>> own_times(Context& context, int repetitions) override {
    std::vector<Events> events(static_cast<std::size_t>(repetitions));
    for (Events& pair : events) {
      GPU_TRY(GPU(EventCreate)(&pair.begin));
      GPU_TRY(GPU(EventCreate)(&pair.end));
    }
    TRY_OUTCOME(launch(0, context.stream()));
    for (const Events& pair : events) {
      GPU_TRY(GPU(EventRecord)(pair.begin, context.stream()));
      TRY_OUTCOME(launch(0, context.stream()));
      GPU_TRY(GPU(EventRecord)(pair.end, context.stream()));
    }
    GPU_TRY(GPU(StreamSynchronize)(context.stream()));
    std::vector<double> times;
    for (const Events& pair : events) {
      float milliseconds = 0;
      GPU_TRY(GPU(EventElapsedTime)(&milliseconds, pair.begin, pair.end));
      times.push_back(milliseconds * 1e3 / static_cast<double>(passes_));
    }
    return times;
  }

 private:
  struct Events {
    Event begin = nullptr, end = nullptr;
    ~Events() {
      if (begin != nullptr) (void)GPU(EventDestroy)(begin);
      if (end != nullptr) (void)GPU(EventDestroy)(end);
    }
  };

  std::vector<Buffer> buffers() const override {
    return {Buffer::uniform(DType::kFloat32, vectors_ * 4, 1, 2), Buffer::workspace(blocks_ * 4)};
  }

  Outcome<void> launch_passes(int copy, std::int64_t passes, Stream stream) {
    const kernels::ReadSum body{data<std::uint32_t>(copy, 0), data<std::uint32_t>(copy, 1),
                                vectors_, passes};
    return launch_body(body, blocks_, kThreads, kernels::ReadSum::shared_bytes(kThreads), stream);
  }

  std::int64_t vectors_, passes_, blocks_;
};

/// `bytes` FLOP, up to what the number of steps rounds.
class MultiplyAddWorkload final : public BufferedWorkload {
 public:
  explicit MultiplyAddWorkload(const PeakCase& point)
      : point_(point), blocks_(device_limits().blocks(kThreads)) {}

  Outcome<void> launch(int copy, Stream stream) override {
    if (point_.dtype == DType::kBFloat16 && !device_limits().bfloat16_multiply_add) {
      return tl::unexpected(
          Failure{FailureKind::kUnsupported, "no multiply-add of bf16 in the vector units"});
    }
    return with_type(point_.dtype, [&](auto type) -> Outcome<void> {
      using Body = kernels::MultiplyAddChains<decltype(type)>;
      const Body body{data<float>(copy, 0), kFactor, kAddend, steps<Body>()};
      return launch_body<Body::kThreads>(body, blocks_, Body::kThreads, 0, stream);
    });
  }

  /// All chains tend to addend / (1 - factor).
  Outcome<double> check(Context& context) override {
    TRY_OUTCOME(launch(0, context.stream()));
    const auto sums = read_elements(context, data<void>(0, 0), DType::kFloat32, 0,
                                    blocks_ * std::int64_t{kThreads});
    TRY_OUTCOME(sums);
    const int chains = kernels::MultiplyAddChains<float>::kChains;
    ErrorMeter meter;
    for (const double sum : *sums) meter.add(sum, chains * kAddend / (1 - kFactor));
    // The fixed point is exact; the last bits depend on how few steps there are.
    return meter.result(std::max(tolerance(point_.dtype), 1e-3));
  }

 private:
  static constexpr float kFactor = 0.5F, kAddend = 0.375F;

  std::vector<Buffer> buffers() const override {
    return {Buffer::output(DType::kFloat32, blocks_ * std::int64_t{kThreads})};
  }

  template <class Body>
  int steps() const {
    const double per_step = 2.0 * static_cast<double>(Body::per_block() * blocks_);
    const double steps = static_cast<double>(point_.bytes) / per_step;
    return 8 * static_cast<int>(std::max(2.0, std::round(steps / 8)));
  }

  PeakCase point_;
  std::int64_t blocks_;
};

}  // namespace peaks_cu

std::unique_ptr<Workload> make_read_bandwidth(const PeakCase& point) {
  return std::make_unique<ReadWorkload>(point);
}

std::unique_ptr<Workload> make_fma(const PeakCase& point) {
  return std::make_unique<MultiplyAddWorkload>(point);
}

}  // namespace kernels_bench::gpu
