#include "buffers.hpp"

#include <algorithm>
#include <cmath>

#include "../../kernels/portability.hpp"

namespace kernels_bench::gpu {
inline namespace buffers_cu {

constexpr std::int64_t kSampledElements = std::int64_t{1} << 18;
constexpr std::int64_t kSampledRows = 128;

std::int64_t aligned(std::int64_t bytes) { return (bytes + 255) / 256 * 256; }

double element(const char* data, DType dtype, std::int64_t index) {
  const char* at = data + index * bytes_of(dtype);
  std::uint16_t bits = 0;
  float value = 0;
  switch (dtype) {
    case DType::kBFloat16:
      memcpy(&bits, at, sizeof(bits));
      return kernels::to_float(kernels::BFloat16{bits});
    case DType::kFloat16:
      memcpy(&bits, at, sizeof(bits));
      return kernels::to_float(kernels::Half{bits});
    default:
      memcpy(&value, at, sizeof(value));
      return value;
  }
}

}  // namespace buffers_cu

std::int64_t Buffer::bytes() const {
  switch (content) {
    case Content::kBytes:
      return count;
    case Content::kIndices:
      return count * 8;
    default:
      return count * bytes_of(dtype);
  }
}

Buffer Buffer::uniform(DType dtype, std::int64_t count, float low, float high) {
  Buffer buffer;
  buffer.content = Content::kUniform;
  buffer.dtype = dtype;
  buffer.count = count;
  buffer.low = low;
  buffer.high = high;
  return buffer;
}

Buffer Buffer::output(DType dtype, std::int64_t count) {
  Buffer buffer;
  buffer.dtype = dtype;
  buffer.count = count;
  return buffer;
}

Buffer Buffer::indices(std::int64_t count, std::int64_t rows, double zipf_exponent) {
  Buffer buffer;
  buffer.content = Content::kIndices;
  buffer.count = count;
  buffer.rows = rows;
  buffer.zipf_exponent = zipf_exponent;
  return buffer;
}

Buffer Buffer::workspace(std::int64_t bytes) {
  Buffer buffer;
  buffer.content = Content::kBytes;
  buffer.count = bytes;
  return buffer;
}

std::int64_t BufferedWorkload::bytes_per_copy() const {
  std::int64_t bytes = 0;
  for (const Buffer& buffer : buffers()) {
    bytes += aligned(buffer.touched < 0 ? buffer.bytes() : buffer.touched);
  }
  return bytes;
}

Outcome<void> BufferedWorkload::prepare(Context& context, int copies) {
  const std::vector<Buffer> list = buffers();
  sets_.clear();
  for (int copy = 0; copy < copies; ++copy) {
    std::vector<void*> set;
    for (std::size_t i = 0; i < list.size(); ++i) {
      const Buffer& buffer = list[i];
      if (buffer.shared && copy > 0) {
        set.push_back(sets_[0][i]);
        continue;
      }
      auto memory = context.allocate(buffer.bytes());
      TRY_OUTCOME(memory);
      set.push_back(*memory);
      if (buffer.count == 0) continue;  // left out of this case
      if (buffer.content == Buffer::Content::kUniform) {
        TRY_OUTCOME(
            context.fill_uniform(*memory, buffer.dtype, buffer.count, buffer.low, buffer.high));
      } else if (buffer.content == Buffer::Content::kIndices) {
        TRY_OUTCOME(context.fill_indices(static_cast<std::int64_t*>(*memory), buffer.count,
                                         buffer.rows, buffer.zipf_exponent));
      }
    }
    sets_.push_back(std::move(set));
  }
  return {};
}

const DeviceLimits& device_limits() {
  static const DeviceLimits kLimits = [] {
    DeviceLimits limits;
#if KERNELS_BENCH_HIP
    hipDeviceProp_t properties;
#else
    cudaDeviceProp properties;
#endif
    int device = 0;
    if (GPU(GetDevice)(&device) != GPU(Success)) return limits;
    if (GPU(GetDeviceProperties)(&properties, device) != GPU(Success)) return limits;
    limits.num_sms = properties.multiProcessorCount;
    limits.max_threads_per_sm = properties.maxThreadsPerMultiProcessor;
    limits.l2_bytes = properties.l2CacheSize;
    limits.bfloat16_multiply_add = !KERNELS_BENCH_HIP && properties.major >= 8;
    return limits;
  }();
  return kLimits;
}

double tolerance(DType dtype) {
  switch (dtype) {
    case DType::kBFloat16:
      return 0x1p-7;
    case DType::kFloat16:
      return 0x1p-9;
    default:
      return 2e-5;
  }
}

HostRows::HostRows(Context& context, const void* data, DType dtype, std::int64_t rows,
                   std::int64_t cols)
    : context_(context),
      data_(static_cast<const char*>(data)),
      dtype_(dtype),
      rows_(rows),
      cols_(cols) {}

Outcome<reference::Row> HostRows::row(std::int64_t row) {
  if (rows_ * cols_ > kWholeElements) {
    return read_elements(context_, data_, dtype_, row * cols_, cols_);
  }
  if (whole_.empty()) {
    whole_.resize(static_cast<std::size_t>(rows_ * cols_ * bytes_of(dtype_)));
    TRY_OUTCOME(context_.download(whole_.data(), data_, static_cast<std::int64_t>(whole_.size())));
  }
  reference::Row result(static_cast<std::size_t>(cols_));
  for (std::int64_t i = 0; i < cols_; ++i) {
    result[static_cast<std::size_t>(i)] = element(whole_.data(), dtype_, row * cols_ + i);
  }
  return result;
}

Outcome<reference::Row> read_elements(Context& context, const void* data, DType dtype,
                                      std::int64_t begin, std::int64_t count) {
  std::vector<char> bytes(static_cast<std::size_t>(count * bytes_of(dtype)));
  TRY_OUTCOME(context.download(bytes.data(),
                               static_cast<const char*>(data) + begin * bytes_of(dtype),
                               static_cast<std::int64_t>(bytes.size())));
  reference::Row result(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    result[static_cast<std::size_t>(i)] = element(bytes.data(), dtype, i);
  }
  return result;
}

Outcome<reference::Row> read_block(Context& context, const void* data, DType dtype,
                                   std::int64_t begin, std::int64_t pitch, std::int64_t width,
                                   std::int64_t height) {
  const std::int64_t size = bytes_of(dtype);
  auto packed = context.allocate(width * height * size);
  TRY_OUTCOME(packed);
  const auto row_bytes = static_cast<std::size_t>(width * size);
  const auto pitch_bytes = height == 1 ? row_bytes : static_cast<std::size_t>(pitch * size);
  GPU_TRY(GPU(Memcpy2DAsync)(*packed, row_bytes, static_cast<const char*>(data) + begin * size,
                             pitch_bytes, row_bytes, static_cast<std::size_t>(height),
                             GPU(MemcpyDeviceToDevice), context.stream()));
  return read_elements(context, *packed, dtype, 0, width * height);
}

std::vector<std::int64_t> spread_rows(std::int64_t rows, std::int64_t count) {
  count = std::min(count, rows);
  std::vector<std::int64_t> sample;
  for (std::int64_t i = 0; i < count; ++i) {
    const double share = count == 1 ? 0 : static_cast<double>(i) / static_cast<double>(count - 1);
    sample.push_back(std::llround(share * static_cast<double>(rows - 1)));
  }
  return sample;
}

std::vector<std::int64_t> sample_rows(std::int64_t rows, std::int64_t cols) {
  if (rows * cols <= kWholeElements) return spread_rows(rows, rows);
  return spread_rows(rows, std::clamp<std::int64_t>(kSampledElements / cols, 2, kSampledRows));
}

void ErrorMeter::add(double actual, double expected) {
  if (!std::isfinite(actual)) finite_ = false;
  largest_ = std::max(largest_, std::abs(expected));
  error_ = std::max(error_, std::abs(actual - expected));
}

Outcome<void> ErrorMeter::add(const Outcome<reference::Row>& actual,
                              const reference::Row& expected) {
  TRY_OUTCOME(actual);
  for (std::size_t i = 0; i < expected.size(); ++i) add((*actual)[i], expected[i]);
  return {};
}

Outcome<double> ErrorMeter::result(double tolerance) const {
  const double relative = largest_ > 0 ? error_ / largest_ : error_;
  if (finite_ && relative <= tolerance) return relative;
  const std::string found =
      finite_ ? "off by " + std::to_string(relative) + " of the largest value" : "not finite";
  return tl::unexpected(Failure{
      FailureKind::kWrongResult,
      "expected the reference within " + std::to_string(tolerance) + ", found a result " + found});
}

Chunks::Chunks(std::int64_t all) : rows(1), cols(std::min<std::int64_t>(all, 4096)), elements(all) {
  rows = kernels::ceil_divide(elements, cols);
}

}  // namespace kernels_bench::gpu
