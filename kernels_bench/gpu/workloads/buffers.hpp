#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "../../kernels/reference.hpp"
#include "../workload.hpp"

/// Shared by the workloads of own kernels: sets of buffers, and comparison with a reference.
namespace kernels_bench::gpu {

/// Returns the failure of an Outcome from a function that returns one.
#define TRY_OUTCOME(expression)                                                  \
  do {                                                                           \
    if (auto tried = (expression); !tried) {                                     \
      return tl::unexpected<::kernels_bench::Failure>(std::move(tried).error()); \
    }                                                                            \
  } while (false)

struct Buffer {
  enum class Content : std::uint8_t { kUninitialized, kUniform, kIndices, kBytes };
  Content content = Content::kUninitialized;
  DType dtype = DType::kFloat32;  ///< kUniform
  std::int64_t count = 0;         ///< elements, indices or bytes
  float low = -1, high = 1;       ///< kUniform
  std::int64_t rows = 1;          ///< kIndices
  double zipf_exponent = 0;       ///< kIndices
  bool shared = false;            ///< one for all sets: larger than the L2
  std::int64_t touched = -1;      ///< bytes that one launch touches; -1: all

  std::int64_t bytes() const;

  static Buffer uniform(DType dtype, std::int64_t count, float low = -1, float high = 1);
  static Buffer output(DType dtype, std::int64_t count);
  static Buffer indices(std::int64_t count, std::int64_t rows, double zipf_exponent = 0);
  /// Bytes that hold no numbers: masks, workspaces.
  static Buffer workspace(std::int64_t bytes);
};

/// A workload whose sets of buffers are a list.
class BufferedWorkload : public Workload {
 public:
  std::int64_t bytes_per_copy() const override;
  Outcome<void> prepare(Context& context, int copies) override;

 protected:
  virtual std::vector<Buffer> buffers() const = 0;

  /// Buffer number `buffer` of a set, in the order of buffers().
  template <class T>
  T* data(int copy, int buffer) const {
    return static_cast<T*>(sets_[static_cast<std::size_t>(copy)][static_cast<std::size_t>(buffer)]);
  }

 private:
  std::vector<std::vector<void*>> sets_;
};

/// Device properties that launches depend on.
struct DeviceLimits {
  int num_sms = 1, max_threads_per_sm = 1024;
  std::int64_t l2_bytes = 0;
  bool bfloat16_multiply_add = false;  ///< as an instruction on pairs

  /// Blocks that fill the device `waves` times.
  std::int64_t blocks(int threads, int waves = 1) const {
    return std::int64_t{waves} * num_sms * std::max(1, max_threads_per_sm / threads);
  }
};
/// Limits of the current device; asked for once.
const DeviceLimits& device_limits();

/// Largest error of rounding and fp32 arithmetic, relative to the largest reference value.
double tolerance(DType dtype);

/// Rows of a tensor on the device as doubles. Small tensors are downloaded once as a whole.
class HostRows {
 public:
  HostRows(Context& context, const void* data, DType dtype, std::int64_t rows, std::int64_t cols);
  Outcome<reference::Row> row(std::int64_t row);

 private:
  Context& context_;
  const char* data_;
  DType dtype_;
  std::int64_t rows_, cols_;
  std::vector<char> whole_;
};

/// Outputs of up to so many elements are compared as a whole, in some ms on the host.
inline constexpr std::int64_t kWholeElements = std::int64_t{1} << 18;

/// At most `count` row numbers, evenly spread, first and last among them.
std::vector<std::int64_t> spread_rows(std::int64_t rows, std::int64_t count);

/// All rows of a small tensor, else some spread over it, first and last among them.
std::vector<std::int64_t> sample_rows(std::int64_t rows, std::int64_t cols);

/// Collects how far results are from their reference.
class ErrorMeter {
 public:
  void add(double actual, double expected);
  Outcome<void> add(const Outcome<reference::Row>& actual, const reference::Row& expected);
  /// kWrongResult above `tolerance` or where something is not finite.
  Outcome<double> result(double tolerance) const;

 private:
  double largest_ = 0, error_ = 0;
  bool finite_ = true;
};

/// A tensor of any shape as rows for a check: elementwise results need no rows of their own.
struct Chunks {
  std::int64_t rows, cols, elements;
  explicit Chunks(std::int64_t elements);
  /// The last one is short.
  std::int64_t size(std::int64_t chunk) const { return std::min(cols, elements - chunk * cols); }
};

/// Elements [begin, begin + count) of a tensor on the device.
Outcome<reference::Row> read_elements(Context& context, const void* data, DType dtype,
                                      std::int64_t begin, std::int64_t count);

/// `height` runs of `width` elements, `pitch` elements apart, packed on the device first.
Outcome<reference::Row> read_block(Context& context, const void* data, DType dtype,
                                   std::int64_t begin, std::int64_t pitch, std::int64_t width,
                                   std::int64_t height);

}  // namespace kernels_bench::gpu
