#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "../core/device.hpp"
#include "runtime.hpp"

namespace kernels_bench::gpu {

/// Blocks of device memory of one size, a few of them kept between measurements: allocating them
/// again would take longer than a small case's launches.
class BlockCache {
 public:
  /// Small requests are cut from blocks of this size: hundreds of rotating buffers would otherwise
  /// cost more time to allocate than to measure.
  static constexpr std::int64_t kBytes = std::int64_t{64} << 20;

  BlockCache() = default;
  ~BlockCache();
  BlockCache(const BlockCache&) = delete;
  BlockCache& operator=(const BlockCache&) = delete;

  Outcome<void*> take();
  void give(void* block);

 private:
  std::vector<void*> blocks_;
};

/// Memory of one measurement; given back when it ends. Random data depend on the seed alone.
class Context {
 public:
  Context(Stream stream, std::uint64_t seed, BlockCache& cache);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  Stream stream() const { return stream_; }
  std::uint64_t seed() const { return seed_; }

  /// Device memory, 256-byte aligned. kOutOfMemory where it does not fit.
  Outcome<void*> allocate(std::int64_t bytes);

  /// Uniform numbers in [low, high) of the type, asynchronously.
  Outcome<void> fill_uniform(void* data, DType dtype, std::int64_t count, float low, float high);

  /// Row numbers in [0, rows) with probability ~ (k + 1)^-zipf_exponent, row numbers shuffled, so
  /// that hot rows are not adjacent; 0: uniform.
  Outcome<void> fill_indices(std::int64_t* indices, std::int64_t count, std::int64_t rows,
                             double zipf_exponent);

  Outcome<void> upload(void* device, const void* host, std::int64_t bytes);
  /// Waits for the stream first.
  Outcome<void> download(void* host, const void* device, std::int64_t bytes);

 private:
  Stream stream_;
  std::uint64_t seed_, fills_ = 0;
  BlockCache& cache_;
  std::vector<void*> cached_blocks_, blocks_;
  char* next_ = nullptr;  ///< free part of the last block
  std::int64_t free_bytes_ = 0;
};

/// How repetitions are timed.
enum class Timing : std::uint8_t {
  kGraph,   ///< launches over rotating buffers captured into a graph; replayed between two events
  kEvents,  ///< one launch between two events (calls that cannot be captured)
  kOwn,     ///< `own_times` measures: host calls
};

/// One case made ready on a device: its buffers and how to launch it.
class Workload {
 public:
  virtual ~Workload() = default;

  virtual Timing timing() const { return Timing::kGraph; }

  /// Memory of one set of buffers (inputs and outputs that one launch touches or may touch).
  virtual std::int64_t bytes_per_copy() const = 0;

  /// Allocates `copies` sets of buffers and fills the inputs. Launches then rotate over them, so
  /// that the L2 is cold; what may stay shared (tables larger than the L2) is the workload's
  /// choice.
  virtual Outcome<void> prepare(Context& context, int copies) = 0;

  /// Enqueues the case once on set `copy`. May be captured into a graph: no synchronising calls.
  virtual Outcome<void> launch(int copy, Stream stream) = 0;

  /// Runs set 0 once and compares it with a plain reference, all of it or a sample spread over it:
  /// the largest absolute error relative to the largest absolute reference value; kWrongResult if
  /// that exceeds the type's tolerance or anything is not finite. Called before timing.
  virtual Outcome<double> check(Context& context) = 0;

  /// Timing::kOwn: times of `repetitions` runs, µs.
  virtual Outcome<std::vector<double>> own_times(Context& context, int repetitions);

  /// Algorithm or library call, where known.
  virtual std::string kernel() const { return {}; }
};

/// Own kernels, one file each in workloads/.
std::unique_ptr<Workload> make_embedding(const EmbeddingCase& point);
std::unique_ptr<Workload> make_memory(const MemoryCase& point);
std::unique_ptr<Workload> make_elementwise(const ElementwiseCase& point);
std::unique_ptr<Workload> make_rows(const RowCase& point);
std::unique_ptr<Workload> make_batch_norm(const BatchNormCase& point);
std::unique_ptr<Workload> make_dropout(const DropoutCase& point);
std::unique_ptr<Workload> make_transpose(const TransposeCase& point);
std::unique_ptr<Workload> make_concat(const ConcatCase& point);
std::unique_ptr<Workload> make_gather(const GatherCase& point);
std::unique_ptr<Workload> make_tril(const TrilCase& point);
std::unique_ptr<Workload> make_hashed_product(const HashedProductCase& point);
std::unique_ptr<Workload> make_copy_bandwidth(const PeakCase& point);
/// Times are of one pass over `bytes`.
std::unique_ptr<Workload> make_read_bandwidth(const PeakCase& point);
std::unique_ptr<Workload> make_fma(const PeakCase& point);

/// `Failure` from a runtime call that did not succeed: kOutOfMemory or kDevice, naming the call.
Failure failure_of(Status status, const char* call);

}  // namespace kernels_bench::gpu

/// Returns the failure of a runtime call from a function that returns an Outcome.
#define GPU_TRY(call)                                                             \
  do {                                                                            \
    if (const auto gpu_status = (call); gpu_status != GPU(Success)) {             \
      return tl::unexpected(::kernels_bench::gpu::failure_of(gpu_status, #call)); \
    }                                                                             \
  } while (false)
