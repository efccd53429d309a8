#include <cstring>

#include "../../kernels/copy.hpp"
#include "buffers.hpp"
#include "launch.hpp"

namespace kernels_bench::gpu {
inline namespace memory_cu {

using Kind = MemoryCase::Kind;

constexpr std::int64_t kPiece = std::int64_t{1} << 16, kPieces = 64;

/// Bytes [begin, begin + count) of device memory.
Outcome<std::vector<std::uint8_t>> read_bytes(Context& context, const void* data,
                                              std::int64_t begin, std::int64_t count) {
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(count));
  TRY_OUTCOME(context.download(bytes.data(), static_cast<const char*>(data) + begin, count));
  return bytes;
}

/// Random bytes; floats fill them, except the last three.
Buffer random_bytes(std::int64_t bytes) {
  return Buffer::uniform(DType::kFloat32, (bytes + 3) / 4, 1, 2);
}

Failure wrong_bytes() { return {FailureKind::kWrongResult, "expected the source's bytes"}; }

/// Device memory to device memory: by the runtime or by the copy kernel, and memset.
class DeviceCopyWorkload final : public BufferedWorkload {
 public:
  enum class How : std::uint8_t { kRuntime, kKernel, kSet };
  DeviceCopyWorkload(std::int64_t bytes, How how) : bytes_(bytes), how_(how) {}

  Outcome<void> launch(int copy, Stream stream) override {
    const auto bytes = static_cast<std::size_t>(bytes_);
    if (how_ == How::kSet) {
      GPU_TRY(GPU(MemsetAsync)(data<void>(copy, 0), 0, bytes, stream));
      return {};
    }
    if (how_ == How::kRuntime) {
      GPU_TRY(GPU(MemcpyAsync)(data<void>(copy, 0), data<void>(copy, 1), bytes,
                               GPU(MemcpyDeviceToDevice), stream));
      return {};
    }
    return launch_items(
        kernels::Copy{data<std::uint8_t>(copy, 1), data<std::uint8_t>(copy, 0), bytes_}, stream);
  }

  Outcome<double> check(Context& context) override {
    TRY_OUTCOME(launch(0, context.stream()));
    const std::int64_t pieces = kernels::ceil_divide(bytes_, kPiece);
    for (const std::int64_t piece : spread_rows(pieces, kPieces)) {
      const std::int64_t begin = piece * kPiece, count = std::min(kPiece, bytes_ - begin);
      const auto found = read_bytes(context, data<void>(0, 0), begin, count);
      TRY_OUTCOME(found);
      std::vector<std::uint8_t> expected(static_cast<std::size_t>(count));
      if (how_ != How::kSet) {
        TRY_OUTCOME(context.download(expected.data(), data<char>(0, 1) + begin, count));
      }
      if (*found != expected) return tl::unexpected(wrong_bytes());
    }
    return 0.0;
  }

 private:
  std::vector<Buffer> buffers() const override {
    if (how_ == How::kSet) return {random_bytes(bytes_)};
    return {Buffer::workspace(bytes_), random_bytes(bytes_)};
  }

  std::int64_t bytes_;
  How how_;
};

/// Pinned memory of the host, or pageable.
class HostMemory {
 public:
  HostMemory() = default;
  ~HostMemory() {
    if (pinned_ != nullptr) (void)free_pinned(pinned_);
  }
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;

  Outcome<void> allocate(std::int64_t bytes, bool pinned) {
    if (pinned) {
      GPU_TRY(allocate_pinned(&pinned_, static_cast<std::size_t>(bytes)));
      // Written once, so that every page is there.
      std::memset(pinned_, 0x5a, static_cast<std::size_t>(bytes));
    } else {
      pageable_.assign(static_cast<std::size_t>(bytes), 0x5a);
    }
    return {};
  }

  void* data() { return pinned_ != nullptr ? pinned_ : pageable_.data(); }

 private:
#if KERNELS_BENCH_HIP
  static Status allocate_pinned(void** memory, std::size_t bytes) {
    return hipHostMalloc(memory, bytes, hipHostMallocDefault);
  }
  static Status free_pinned(void* memory) { return hipHostFree(memory); }
#else
  static Status allocate_pinned(void** memory, std::size_t bytes) {
    return cudaMallocHost(memory, bytes);
  }
  static Status free_pinned(void* memory) { return cudaFreeHost(memory); }
#endif

  void* pinned_ = nullptr;
  std::vector<char> pageable_;
};

/// One buffer on the host for all sets, since its caches are not measured.
class HostCopyWorkload final : public BufferedWorkload {
 public:
  explicit HostCopyWorkload(const MemoryCase& point) : point_(point) {}

  /// Copies of pageable memory wait on the host, which a graph would not.
  Timing timing() const override { return point_.pinned ? Timing::kGraph : Timing::kEvents; }

  Outcome<void> prepare(Context& context, int copies) override {
    TRY_OUTCOME(BufferedWorkload::prepare(context, copies));
    TRY_OUTCOME(host_.allocate(point_.bytes, point_.pinned));
    if (to_device()) {  // random data, as the device's are
      TRY_OUTCOME(context.download(host_.data(), data<void>(0, 0), point_.bytes));
    }
    return {};
  }

  Outcome<void> launch(int copy, Stream stream) override {
    void* const device = data<void>(copy, 0);
    void* const to = to_device() ? device : host_.data();
    const void* const from = to_device() ? host_.data() : device;
    GPU_TRY(GPU(MemcpyAsync)(to, from, static_cast<std::size_t>(point_.bytes),
                             to_device() ? GPU(MemcpyHostToDevice) : GPU(MemcpyDeviceToHost),
                             stream));
    return {};
  }

  Outcome<double> check(Context& context) override {
    // Something else in the target first.
    if (to_device()) {
      GPU_TRY(GPU(MemsetAsync)(data<void>(0, 0), 0, static_cast<std::size_t>(point_.bytes),
                               context.stream()));
    }
    TRY_OUTCOME(launch(0, context.stream()));
    GPU_TRY(GPU(StreamSynchronize)(context.stream()));
    const std::int64_t pieces = kernels::ceil_divide(point_.bytes, kPiece);
    for (const std::int64_t piece : spread_rows(pieces, kPieces)) {
      const std::int64_t begin = piece * kPiece, count = std::min(kPiece, point_.bytes - begin);
      const auto device = read_bytes(context, data<void>(0, 0), begin, count);
      TRY_OUTCOME(device);
      const char* host = static_cast<const char*>(host_.data()) + begin;
      if (std::memcmp(device->data(), host, device->size()) != 0) {
        return tl::unexpected(wrong_bytes());
      }
    }
    return 0.0;
  }

 private:
  bool to_device() const { return point_.kind == Kind::kHostToDevice; }

  std::vector<Buffer> buffers() const override { return {random_bytes(point_.bytes)}; }

  MemoryCase point_;
  HostMemory host_;
};

class StridedCopyWorkload final : public BufferedWorkload {
 public:
  explicit StridedCopyWorkload(const MemoryCase& point) : point_(point) {}

  /// A whole number of rows; Word is the widest type that divides them.
  Outcome<void> launch(int copy, Stream stream) override {
    const std::int64_t row = point_.row_bytes;
    if (row % 16 == 0) return launch_words<kernels::Vector<std::uint32_t, 4>>(copy, stream);
    if (row % 8 == 0) return launch_words<kernels::Vector<std::uint32_t, 2>>(copy, stream);
    if (row % 4 == 0) return launch_words<std::uint32_t>(copy, stream);
    if (row % 2 == 0) return launch_words<std::uint16_t>(copy, stream);
    return launch_words<std::uint8_t>(copy, stream);
  }

  Outcome<double> check(Context& context) override {
    TRY_OUTCOME(launch(0, context.stream()));
    const std::int64_t row = point_.row_bytes;
    for (const std::int64_t r : spread_rows(rows(), 512)) {
      const auto expected = read_bytes(context, data<void>(0, 1), 2 * r * row, row);
      TRY_OUTCOME(expected);
      const auto found = read_bytes(context, data<void>(0, 0), r * row, row);
      TRY_OUTCOME(found);
      if (*found != *expected) return tl::unexpected(wrong_bytes());
    }
    return 0.0;
  }

 private:
  std::int64_t rows() const { return point_.bytes / point_.row_bytes; }

  std::vector<Buffer> buffers() const override {
    const std::int64_t bytes = rows() * point_.row_bytes;
    return {Buffer::workspace(bytes), random_bytes(2 * bytes)};
  }

  template <class Word>
  Outcome<void> launch_words(int copy, Stream stream) {
    const auto size = static_cast<std::int64_t>(sizeof(Word));
    const std::int64_t per_row = point_.row_bytes / size, words = rows() * per_row;
    return launch_items(kernels::StridedCopy<Word>{data<Word>(copy, 1), data<Word>(copy, 0), words,
                                                   per_row, kernels::Divider(per_row, words)},
                        stream);
  }

  MemoryCase point_;
};

}  // namespace memory_cu

std::unique_ptr<Workload> make_memory(const MemoryCase& point) {
  using How = DeviceCopyWorkload::How;
  switch (point.kind) {
    case Kind::kHostToDevice:
    case Kind::kDeviceToHost:
      return std::make_unique<HostCopyWorkload>(point);
    case Kind::kDeviceToDevice:
      return std::make_unique<DeviceCopyWorkload>(point.bytes, How::kRuntime);
    case Kind::kSet:
      return std::make_unique<DeviceCopyWorkload>(point.bytes, How::kSet);
    case Kind::kStrided:
      break;
  }
  return std::make_unique<StridedCopyWorkload>(point);
}

std::unique_ptr<Workload> make_copy_bandwidth(const PeakCase& point) {
  return std::make_unique<DeviceCopyWorkload>(point.bytes, DeviceCopyWorkload::How::kKernel);
}

}  // namespace kernels_bench::gpu
