#include <algorithm>

#include "helper_kernels.hpp"
#include "workload.hpp"

namespace kernels_bench::gpu {
namespace {

constexpr std::int64_t kAlignment = 256;
/// Less than a case leaves free (device.cpp).
constexpr std::size_t kKeptBlocks = 4;

}  // namespace

Failure failure_of(Status status, const char* call) {
  (void)GPU(GetLastError)();  // or the next call would report this one's error again
  const std::string message = std::string(call) + ": " + GPU(GetErrorString)(status);
  const bool memory = status == GPU(ErrorMemoryAllocation);
  return {memory ? FailureKind::kOutOfMemory : FailureKind::kDevice, message};
}

BlockCache::~BlockCache() {
  for (void* block : blocks_) (void)GPU(Free)(block);
}

Outcome<void*> BlockCache::take() {
  void* block = nullptr;
  if (blocks_.empty()) {
    GPU_TRY(GPU(Malloc)(&block, static_cast<std::size_t>(kBytes)));
  } else {
    block = blocks_.back();
    blocks_.pop_back();
  }
  return block;
}

void BlockCache::give(void* block) {
  if (blocks_.size() < kKeptBlocks) {
    blocks_.push_back(block);
  } else {
    (void)GPU(Free)(block);
  }
}

Context::Context(Stream stream, std::uint64_t seed, BlockCache& cache)
    : stream_(stream), seed_(seed), cache_(cache) {}

Context::~Context() {
  (void)GPU(StreamSynchronize)(stream_);
  for (void* block : cached_blocks_) cache_.give(block);
  for (void* block : blocks_) (void)GPU(Free)(block);
}

Outcome<void*> Context::allocate(std::int64_t bytes) {
  const std::int64_t size = std::max(bytes + kAlignment - 1, kAlignment) / kAlignment * kAlignment;
  if (size > free_bytes_) {
    // The rest of the last block is given up, unless it is more than this request's own block would
    // leave.
    const std::int64_t block_bytes = std::max(size, BlockCache::kBytes);
    void* block = nullptr;
    if (size <= BlockCache::kBytes) {
      const auto taken = cache_.take();
      if (!taken) return taken;
      block = *taken;
      cached_blocks_.push_back(block);
    } else {
      GPU_TRY(GPU(Malloc)(&block, static_cast<std::size_t>(block_bytes)));
      blocks_.push_back(block);
    }
    if (block_bytes - size <= free_bytes_) return block;
    next_ = static_cast<char*>(block);
    free_bytes_ = block_bytes;
  }
  void* const result = next_;
  next_ += size;
  free_bytes_ -= size;
  return result;
}

Outcome<void> Context::fill_uniform(void* data, DType dtype, std::int64_t count, float low,
                                    float high) {
  GPU_TRY(launch_fill_uniform(data, dtype, count, low, high, mix(seed_) + ++fills_, stream_));
  return {};
}

Outcome<void> Context::fill_indices(std::int64_t* indices, std::int64_t count, std::int64_t rows,
                                    double zipf_exponent) {
  GPU_TRY(launch_fill_indices(indices, count, rows, zipf_exponent, mix(seed_) + ++fills_, stream_));
  return {};
}

Outcome<void> Context::upload(void* device, const void* host, std::int64_t bytes) {
  GPU_TRY(GPU(MemcpyAsync)(device, host, static_cast<std::size_t>(bytes), GPU(MemcpyHostToDevice),
                           stream_));
  GPU_TRY(GPU(StreamSynchronize)(stream_));  // the caller's memory may go
  return {};
}

Outcome<void> Context::download(void* host, const void* device, std::int64_t bytes) {
  GPU_TRY(GPU(StreamSynchronize)(stream_));
  GPU_TRY(GPU(MemcpyAsync)(host, device, static_cast<std::size_t>(bytes), GPU(MemcpyDeviceToHost),
                           stream_));
  GPU_TRY(GPU(StreamSynchronize)(stream_));
  return {};
}

}  // namespace kernels_bench::gpu
