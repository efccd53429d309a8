#include "memory/caching_allocator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "perfmodel/detail/check.hpp"

namespace perfmodel {
namespace {

// Names as in the source.
constexpr std::int64_t kMinBlockSize = 512;
constexpr std::int64_t kSmallSize = 1 << 20;       // largest request of the small pool
constexpr std::int64_t kSmallBuffer = 2 << 20;     // segment or page of the small pool
constexpr std::int64_t kLargeBuffer = 20 << 20;    // page of the large pool, or segment, for
constexpr std::int64_t kMinLargeAlloc = 10 << 20;  // requests below this one
constexpr std::int64_t kRoundLarge = 2 << 20;      // segments of larger requests
constexpr std::int64_t kTooMany = std::int64_t{1} << 60;

std::int64_t round_up(std::int64_t bytes, std::int64_t step) {
  return (bytes + step - 1) / step * step;
}

std::int64_t segment_bytes(std::int64_t bytes) {
  if (bytes <= kSmallSize) return kSmallBuffer;
  return bytes < kMinLargeAlloc ? kLargeBuffer : round_up(bytes, kRoundLarge);
}

std::int64_t page_bytes(bool is_small) { return is_small ? kSmallBuffer : kLargeBuffer; }

}  // namespace

CachingAllocator::CachingAllocator(const AllocatorOptions& options) : options_(options) {
  PERFMODEL_CHECK(options.max_split_bytes > kLargeBuffer);
  PERFMODEL_CHECK(
      options.roundup_power2_divisions > 0 &&
      std::has_single_bit(static_cast<std::uint64_t>(options.roundup_power2_divisions)));
}

Result<BlockId> CachingAllocator::allocate(std::int64_t bytes, int stream) {
  PERFMODEL_CHECK(bytes > 0);
  if (bytes >= kTooMany) return out_of_memory(bytes);
  const std::int64_t size = rounded(bytes);
  const Index pool = pool_of(size, stream);
  std::optional<Index> block = cached_block(pool, size);
  if (!block) block = new_block(pool, size);
  if (!block && release_oversize(pool, size)) block = new_block(pool, size);
  if (!block) {
    release_cached();
    ++retries_;
    block = new_block(pool, size);
  }
  if (!block) return out_of_memory(bytes);
  return give_out(*block, size, bytes);
}

std::int64_t CachingAllocator::rounded(std::int64_t bytes) const {
  const std::int64_t divisions = options_.roundup_power2_divisions;
  if (divisions == 1 || bytes <= kMinBlockSize * divisions) return round_up(bytes, kMinBlockSize);
  const auto power = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(bytes)));
  return round_up(bytes, power / divisions);
}

CachingAllocator::Index CachingAllocator::pool_of(std::int64_t bytes, int stream) {
  const bool is_small = bytes <= kSmallSize;
  const auto found = std::ranges::find_if(
      pools_, [&](const Pool& p) { return p.stream == stream && p.is_small == is_small; });
  const auto index = static_cast<Index>(found - pools_.begin());
  if (found == pools_.end()) pools_.push_back({.stream = stream, .is_small = is_small});
  return index;
}

std::optional<CachingAllocator::Index> CachingAllocator::cached_block(Index pool,
                                                                      std::int64_t bytes) {
  FreeBlocks& free = pools_[pool].free;
  auto found = free.find(bytes);
  if (!found) return std::nullopt;
  if (options_.expandable_segments) found = least_expandable(free, *found);
  const FreeBlocks::Entry entry = free.at(*found);
  const std::int64_t most = bytes < options_.max_split_bytes
                                ? options_.max_split_bytes
                                : bytes + options_.max_non_split_rounding_bytes;
  if (entry.bytes >= most) return std::nullopt;
  free.remove(*found);
  return entry.block;
}

/// A free block before unmapped pages counts as large as it can grow. Looks among blocks that hold
/// the request and follow each other in the order of growing less.
FreeBlocks::Position CachingAllocator::least_expandable(const FreeBlocks& free,
                                                        FreeBlocks::Position first) const {
  const auto grown = [&](FreeBlocks::Position at) {
    const Block& block = blocks_[free.at(at).block];
    return block.bytes + (is_in(block.next, State::kUnmapped) ? blocks_[block.next].bytes : 0);
  };
  for (auto next = free.after(first); next && grown(*next) < grown(first);
       next = free.after(first)) {
    first = *next;
  }
  return first;
}

std::optional<CachingAllocator::Index> CachingAllocator::new_block(Index pool, std::int64_t bytes) {
  return options_.expandable_segments ? grown_block(pool, bytes) : new_segment(pool, bytes);
}

std::optional<CachingAllocator::Index> CachingAllocator::new_segment(Index pool,
                                                                     std::int64_t bytes) {
  const std::int64_t size = segment_bytes(bytes);
  if (!fits(size)) return std::nullopt;
  const Index block = make_block({.address = next_address_, .bytes = size, .pool = pool});
  next_address_ += size;
  ++segments_;
  take_from_device(size);
  return block;
}

bool CachingAllocator::keeps_remainder(const Block& block, std::int64_t bytes) const {
  const std::int64_t remainder = block.bytes - bytes;
  if (pools_[block.pool].is_small || options_.expandable_segments) {
    return remainder >= kMinBlockSize;
  }
  return bytes < options_.max_split_bytes && remainder > kSmallSize;
}

BlockId CachingAllocator::give_out(Index block, std::int64_t bytes, std::int64_t requested) {
  if (keeps_remainder(blocks_[block], bytes)) list(split(block, bytes));
  Block& given = blocks_[block];
  given.state = State::kAllocated;
  given.requested = requested;
  current_.requested += requested;
  current_.allocated += given.bytes;
  current_.active += given.bytes;
  peak_.requested = std::max(peak_.requested, current_.requested);
  peak_.allocated = std::max(peak_.allocated, current_.allocated);
  peak_.active = std::max(peak_.active, current_.active);
  return BlockId{block};
}

void CachingAllocator::free(BlockId block) {
  request_free(block);
  complete_free(block);
}

void CachingAllocator::request_free(BlockId id) {
  const auto block = static_cast<Index>(id);
  PERFMODEL_CHECK(block < blocks_.size() && is_in(block, State::kAllocated));
  blocks_[block].state = State::kPending;
  current_.allocated -= blocks_[block].bytes;
}

void CachingAllocator::complete_free(BlockId id) {
  const auto block = static_cast<Index>(id);
  PERFMODEL_CHECK(block < blocks_.size() && is_in(block, State::kPending));
  current_.active -= blocks_[block].bytes;
  current_.requested -= blocks_[block].requested;
  blocks_[block].state = State::kFree;
  list_merged(block);
}

BlockPlace CachingAllocator::place(BlockId id) const {
  const Block& block = blocks_[static_cast<Index>(id)];
  return {.address = block.address, .bytes = block.bytes};
}

// Expandable segments.

std::optional<CachingAllocator::Index> CachingAllocator::grown_block(Index pool,
                                                                     std::int64_t bytes) {
  // Else no range of addresses is long enough.
  if (round_up(bytes, page_bytes(pools_[pool].is_small)) > options_.device_bytes) {
    return std::nullopt;
  }
  Index block = room_to_grow(pool, bytes);
  if (is_in(block, State::kUnmapped) && !map_pages(block, std::min(bytes, blocks_[block].bytes))) {
    return std::nullopt;
  }
  while (blocks_[block].bytes < bytes) {
    // Unmapped pages follow, which absorb the free block before them.
    const Index next = blocks_[block].next;
    const std::int64_t missing = bytes - blocks_[block].bytes;
    if (!map_pages(next, std::min(missing, blocks_[next].bytes))) return std::nullopt;
    block = next;
  }
  unlist(block);
  return block;
}

/// The first neighbours, free or unmapped, that together hold the bytes: at the lowest address if
/// some are unmapped, else in a new range of addresses.
CachingAllocator::Index CachingAllocator::room_to_grow(Index pool, std::int64_t bytes) {
  for (const Index unmapped : pools_[pool].unmapped) {
    const Index before = blocks_[unmapped].previous;
    const Index first = is_in(before, State::kFree) ? before : unmapped;
    if (has_room(first, bytes)) return first;
  }
  const std::int64_t page = page_bytes(pools_[pool].is_small);
  const std::int64_t range = round_up(options_.device_bytes + options_.device_bytes / 8, page);
  next_address_ = round_up(next_address_, page);
  const Index block = make_block(
      {.address = next_address_, .bytes = range, .pool = pool, .state = State::kUnmapped});
  next_address_ += range;
  ++segments_;
  list(block);
  return block;
}

bool CachingAllocator::has_room(Index first, std::int64_t bytes) const {
  std::int64_t room = 0;
  for (Index block = first; is_in(block, State::kFree) || is_in(block, State::kUnmapped);
       block = blocks_[block].next) {
    room += blocks_[block].bytes;
    if (room >= bytes) return true;
  }
  return false;
}

/// Maps the first pages of an unmapped block; false if the device has no room for them.
bool CachingAllocator::map_pages(Index block, std::int64_t bytes) {
  const std::int64_t mapped = round_up(bytes, page_bytes(pools_[blocks_[block].pool].is_small));
  if (!fits(mapped)) return false;
  unlist(block);
  if (mapped < blocks_[block].bytes) list(split(block, mapped));
  blocks_[block].state = State::kFree;
  list_merged(block);
  take_from_device(mapped);
  return true;
}

/// Unmaps the pages that are entirely in a free block.
void CachingAllocator::unmap_pages(Index block) {
  const std::int64_t page = page_bytes(pools_[blocks_[block].pool].is_small);
  const std::int64_t end = blocks_[block].address + blocks_[block].bytes;
  const std::int64_t first = round_up(blocks_[block].address, page), last = end / page * page;
  if (first >= last) return;
  unlist(block);
  if (first > blocks_[block].address) {
    const Index rest = split(block, first - blocks_[block].address);
    list(block);
    block = rest;
  }
  if (last < end) list(split(block, last - first));
  blocks_[block].state = State::kUnmapped;
  list_merged(block);
  return_to_device(last - first);
  if (blocks_[block].previous == kNone && blocks_[block].next == kNone) {  // the whole range
    unlist(block);
    drop_block(block);
    --segments_;
  }
}

// Giving memory back to the device.

void CachingAllocator::release_cached() {
  for (const Pool& pool : pools_) {
    for (const Index block : pool.free.blocks()) {
      const bool is_whole = blocks_[block].previous == kNone && blocks_[block].next == kNone;
      if (options_.expandable_segments) {
        unmap_pages(block);
      } else if (is_whole) {
        unlist(block);
        release_segment(block);
      }
    }
  }
}

/// Releases blocks of one pool that are not split: one that is large enough, else the largest ones
/// until they suffice. False if they do not.
bool CachingAllocator::release_oversize(Index pool, std::int64_t bytes) {
  if (options_.max_split_bytes == AllocatorOptions::kUnlimited || options_.expandable_segments) {
    return false;
  }
  FreeBlocks& free = pools_[pool].free;
  const std::int64_t wanted = std::max(bytes, options_.max_split_bytes);
  std::int64_t released = 0;
  while (released < wanted) {
    auto next = released == 0 ? free.find(wanted) : std::nullopt;
    if (!next) next = free.largest();
    if (!next || free.at(*next).bytes < options_.max_split_bytes) return false;
    const FreeBlocks::Entry entry = free.at(*next);
    free.remove(*next);
    release_segment(entry.block);
    released += entry.bytes;
  }
  return true;
}

void CachingAllocator::release_segment(Index block) {
  return_to_device(blocks_[block].bytes);
  drop_block(block);
  --segments_;
}

bool CachingAllocator::fits(std::int64_t bytes) const {
  return current_.reserved + bytes <= options_.device_bytes;
}

void CachingAllocator::take_from_device(std::int64_t bytes) {
  current_.reserved += bytes;
  peak_.reserved = std::max(peak_.reserved, current_.reserved);
  ++device_allocations_;
}

void CachingAllocator::return_to_device(std::int64_t bytes) {
  current_.reserved -= bytes;
  ++device_frees_;
}

Unexpected CachingAllocator::out_of_memory(std::int64_t bytes) const {
  const auto gib = [](std::int64_t size) { return static_cast<double>(size) / (1 << 30); };
  return decline(
      fmt::format("expected room for {:.4g} GiB on the device, found {:.4g} GiB, of which {:.4g} "
                  "GiB are in use and {:.4g} GiB are free in segments in use",
                  gib(bytes), gib(options_.device_bytes), gib(current_.active),
                  gib(current_.reserved - current_.active)));
}

// Blocks and the lists of their pools.

bool CachingAllocator::is_in(Index block, State state) const {
  return block != kNone && blocks_[block].state == state;
}

CachingAllocator::Index CachingAllocator::make_block(const Block& block) {
  if (unused_.empty()) {
    blocks_.push_back(block);
    return static_cast<Index>(blocks_.size() - 1);
  }
  const Index index = unused_.back();
  unused_.pop_back();
  blocks_[index] = block;
  return index;
}

void CachingAllocator::drop_block(Index block) { unused_.push_back(block); }

/// Cuts an unlisted block after its first bytes and returns the rest, a block like it.
CachingAllocator::Index CachingAllocator::split(Index block, std::int64_t bytes) {
  Block rest = blocks_[block];
  rest.address += bytes;
  rest.bytes -= bytes;
  rest.previous = block;
  const Index index = make_block(rest);
  if (rest.next != kNone) blocks_[rest.next].previous = index;
  blocks_[block].bytes = bytes;
  blocks_[block].next = index;
  return index;
}

void CachingAllocator::absorb(Index block, Index neighbour) {
  unlist(neighbour);
  Block& whole = blocks_[block];
  const Block& part = blocks_[neighbour];
  whole.bytes += part.bytes;
  if (whole.previous == neighbour) {
    whole.address = part.address;
    whole.previous = part.previous;
    if (whole.previous != kNone) blocks_[whole.previous].next = block;
  } else {
    whole.next = part.next;
    if (whole.next != kNone) blocks_[whole.next].previous = block;
  }
  drop_block(neighbour);
}

/// Lists a free or unmapped block together with its neighbours that are so, too.
void CachingAllocator::list_merged(Index block) {
  const State state = blocks_[block].state;
  if (is_in(blocks_[block].previous, state)) absorb(block, blocks_[block].previous);
  if (is_in(blocks_[block].next, state)) absorb(block, blocks_[block].next);
  list(block);
}

void CachingAllocator::list(Index index) {
  const Block& block = blocks_[index];
  Pool& pool = pools_[block.pool];
  if (block.state == State::kFree) {
    pool.free.add({.bytes = block.bytes, .address = block.address, .block = index});
    return;
  }
  const auto address = [&](Index other) { return blocks_[other].address; };
  pool.unmapped.insert(std::ranges::upper_bound(pool.unmapped, block.address, {}, address), index);
}

void CachingAllocator::unlist(Index index) {
  const Block& block = blocks_[index];
  Pool& pool = pools_[block.pool];
  if (block.state == State::kFree) {
    pool.free.remove(*pool.free.find(block.bytes, block.address));
  } else {
    std::erase(pool.unmapped, index);
  }
}

}  // namespace perfmodel
