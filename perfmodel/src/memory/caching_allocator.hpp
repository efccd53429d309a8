#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "memory/free_blocks.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// Options of PyTorch's allocator (PYTORCH_CUDA_ALLOC_CONF), in bytes, and the device under it.
struct AllocatorOptions {
  static constexpr std::int64_t kUnlimited = std::int64_t{1} << 50;  ///< no device has as much

  /// max_split_size_mb: blocks of this size or more are not split, and smaller requests do not get
  /// them. Above 20 MiB.
  std::int64_t max_split_bytes = kUnlimited;
  /// max_non_split_rounding_mb: by how much such a block may exceed the request that gets it.
  std::int64_t max_non_split_rounding_bytes = 20 << 20;
  /// roundup_power2_divisions, one for all sizes: between two powers of two, requests are rounded
  /// up to this many steps. A power of two; 1: to multiples of 512 B.
  std::int64_t roundup_power2_divisions = 1;
  bool expandable_segments = false;
  /// Limit of all segments together: the device without contexts, libraries and other programs.
  std::int64_t device_bytes = kUnlimited;
};

/// Memory that an allocator holds.
struct AllocatorBytes {
  std::int64_t requested = 0;  ///< by the blocks of `active`, not rounded
  std::int64_t allocated = 0;  ///< blocks in use, rounded
  std::int64_t active = 0;     ///< these, and those that wait for another stream
  std::int64_t reserved = 0;   ///< segments
};

/// A block that `CachingAllocator::allocate` gave out, until it is freed; the number is used again.
enum class BlockId : std::uint32_t {};

struct BlockPlace {
  std::int64_t address = 0, bytes = 0;

  friend bool operator==(const BlockPlace&, const BlockPlace&) = default;
};

/// The caching allocator of PyTorch for one device, without the device: which blocks and segments a
/// sequence of requests makes, in B. Source: c10/cuda/CUDACachingAllocator.cpp of PyTorch 2.6.0,
/// whose rules these are:
///
/// - A request is rounded up to 512 B (or by `roundup_power2_divisions`). The small pool serves
///   requests up to 1 MiB, the large pool all others. Each stream has both pools for itself, and a
///   block stays with its stream.
/// - A request gets the smallest free block of its pool that holds it; of equal ones, the one at
///   the lowest address. If none does, a new segment is made: of 2 MiB in the small pool; in the
///   large one of 20 MiB for requests below 10 MiB, else of the request rounded up to 2 MiB.
/// - The remainder of that block stays free if it is at least 512 B in the small pool, more than
///   1 MiB in the large one. A smaller remainder is given out with the block and counts as
///   allocated.
/// - A freed block merges with its free neighbours in the segment at once.
/// - If a new segment does not fit into the device, wholly free segments go back to it. With
///   `max_split_bytes`, blocks of at least that size go first: one that is large enough, else the
///   largest ones of the pool. Then all of every pool go. If that does not help, the device is out
///   of memory.
/// - Expandable segments: each pool of a stream has one range of addresses, 1 1/8 of the device
///   long, whose pages (2 MiB in the small pool, 20 MiB in the large one) are mapped when needed,
///   beginning with the lowest place where free blocks and unmapped pages together hold the
///   request. A remainder of 512 B or more stays free in the large pool, too. Only pages without a
///   block in use go back to the device. A free block in front of unmapped pages counts as large as
///   it could grow: as long as the next larger block could grow less, that one is taken instead.
///
/// Assumptions: new segments follow all older ones. The driver's choice is not known; it matters
/// only between free blocks of equal size. A block whose free waits for another stream stays active
/// until `complete_free`, even if memory is short, where PyTorch would wait for the event. Not
/// modelled: `garbage_collection_threshold`, divisions by intervals of sizes, private pools (CUDA
/// graphs, MemPool), cudaMallocAsync. Versions after 2.6 were not compared.
///
/// Time per call: the logarithm of the number of free blocks; some 100 ns (tests/benchmarks).
class CachingAllocator {
 public:
  explicit CachingAllocator(const AllocatorOptions& options = {});

  /// `bytes` > 0: PyTorch does not ask for nothing. Error: the device is full; blocks in use stay
  /// as they are, cached segments are gone.
  Result<BlockId> allocate(std::int64_t bytes, int stream = 0);

  /// Frees a block that no other stream uses: it can be given out again at once.
  void free(BlockId block);

  /// The same in two halves for a block that another stream uses, too (`record_stream`): after the
  /// first one it is active, but not allocated; the second one is the event of that stream, after
  /// which the block can be given out again.
  void request_free(BlockId block);
  void complete_free(BlockId block);

  /// Gives back segments (pages) without a block in use, as `torch.cuda.empty_cache` does.
  void release_cached();

  const AllocatorBytes& current() const { return current_; }
  const AllocatorBytes& peak() const { return peak_; }  ///< each figure's own
  void reset_peaks() { peak_ = current_; }

  /// Address and size of a block in use, the part that was not split off included.
  BlockPlace place(BlockId block) const;

  std::int64_t segments() const { return segments_; }  ///< ranges, if they are expandable
  std::int64_t device_allocations() const { return device_allocations_; }  ///< cudaMalloc, mappings
  std::int64_t device_frees() const { return device_frees_; }
  std::int64_t retries() const { return retries_; }  ///< requests for which all caches were freed

 private:
  using Index = std::uint32_t;  // index of a block or pool
  static constexpr Index kNone = UINT32_MAX;

  enum class State : std::uint8_t { kUnmapped, kFree, kAllocated, kPending };
  struct Block {
    std::int64_t address = 0, bytes = 0, requested = 0;
    Index previous = kNone, next = kNone;  // neighbours in the segment
    Index pool = 0;
    State state = State::kFree;
  };
  /// A free or unmapped block is listed in its pool, unless it is just being changed.
  struct Pool {
    int stream = 0;
    bool is_small = true;
    FreeBlocks free = {};
    std::vector<Index> unmapped = {};  // by address
  };

  std::int64_t rounded(std::int64_t bytes) const;
  Index pool_of(std::int64_t bytes, int stream);
  bool is_in(Index block, State state) const;

  // These take or make a block that is listed no more.
  std::optional<Index> cached_block(Index pool, std::int64_t bytes);
  std::optional<Index> new_block(Index pool, std::int64_t bytes);
  std::optional<Index> new_segment(Index pool, std::int64_t bytes);
  std::optional<Index> grown_block(Index pool, std::int64_t bytes);

  FreeBlocks::Position least_expandable(const FreeBlocks& free, FreeBlocks::Position first) const;
  bool keeps_remainder(const Block& block, std::int64_t bytes) const;
  BlockId give_out(Index block, std::int64_t bytes, std::int64_t requested);

  Index room_to_grow(Index pool, std::int64_t bytes);
  bool has_room(Index first, std::int64_t bytes) const;
  bool map_pages(Index block, std::int64_t bytes);
  void unmap_pages(Index block);

  bool release_oversize(Index pool, std::int64_t bytes);
  void release_segment(Index block);

  Index make_block(const Block& block);
  void drop_block(Index block);
  Index split(Index block, std::int64_t bytes);
  void absorb(Index block, Index neighbour);
  void list_merged(Index block);
  void list(Index block);
  void unlist(Index block);

  bool fits(std::int64_t bytes) const;
  void take_from_device(std::int64_t bytes);
  void return_to_device(std::int64_t bytes);
  Unexpected out_of_memory(std::int64_t bytes) const;

  AllocatorOptions options_;
  std::vector<Block> blocks_;
  std::vector<Index> unused_;  // indices into blocks_
  std::vector<Pool> pools_;
  std::int64_t next_address_ = 0;
  AllocatorBytes current_, peak_;
  std::int64_t segments_ = 0, device_allocations_ = 0, device_frees_ = 0, retries_ = 0;
};

}  // namespace perfmodel
