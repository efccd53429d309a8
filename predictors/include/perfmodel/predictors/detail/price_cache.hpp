#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "perfmodel/predictors/kernel.hpp"

namespace perfmodel {

/// Remembers the prices of kernels on one GPU: `price(work)` is `models.price(work, gpu)` to the
/// bit. For callers that repeat the same few thousand kernels, such as a scheduler that keeps one
/// cache per kind of GPU.
///
/// Memory is bounded: a fixed table of `capacity()` entries (`kEntryBytes` each), of which the
/// system only provides pages that hold prices. An entry is within `kProbes` places of its hash's;
/// if all are taken, a new price replaces one of them. That is rare up to half the capacity;
/// beyond, the cache forgets some prices and asks the models again.
///
/// Keys are compared whole, never by hash alone; 0.0 and -0.0 are different keys. Collectives,
/// which carry a name, go to the models each time.
///
/// Thread-safe: any number of threads may ask at once. Readers take no lock and write nothing
/// shared. Each entry has a sequence number (odd during a write) that a reader compares before and
/// after; a reader that meets a writer treats the price as missing, and a writer that meets another
/// drops its price.
class PriceCache {
 public:
  static constexpr std::size_t kDefaultCapacity = std::size_t{1} << 16;
  static constexpr std::size_t kProbes = 8;
  static constexpr std::size_t kEntryBytes = 192;

  /// Caches prices of `models`, which must outlive the cache and not change, on `gpu` (copied).
  /// `capacity` is rounded up to a power of two, `kProbes` at least.
  PriceCache(const KernelModels& models, const Gpu& gpu, std::size_t capacity = kDefaultCapacity);
  ~PriceCache();
  PriceCache(const PriceCache&) = delete;
  PriceCache& operator=(const PriceCache&) = delete;

  Price price(const KernelWork& work);

  /// Sets `price` if the cache has it; the models are not asked.
  bool find(const KernelWork& work, Price& price) const;

  /// prices[i] = price(work[i]); as many prices as work. Missing ones go to the models together.
  void price_many(std::span<const KernelWork> work, std::span<Price> prices);

  const Gpu& gpu() const { return gpu_; }
  std::size_t capacity() const { return mask_ + 1; }
  std::size_t size() const;  ///< prices in the table; counts, for reports and tests
  /// Prices asked of the models so far, collectives included.
  std::uint64_t misses() const { return misses_.load(std::memory_order_relaxed); }

 private:
  struct Key;
  struct Entry;
  bool find(const Key& key, Price& price) const;
  void insert(const Key& key, const Price& price);

  const KernelModels& models_;
  Gpu gpu_;
  std::size_t mask_ = 0;
  Entry* entries_;                                     ///< owned
  alignas(64) std::atomic<std::uint64_t> misses_ = 0;  ///< apart from the data that readers read
};

}  // namespace perfmodel
