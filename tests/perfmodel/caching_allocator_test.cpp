#include "memory/caching_allocator.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "memory/free_blocks.hpp"

namespace perfmodel {
namespace caching_allocator_test {

using ::testing::HasSubstr;

constexpr std::int64_t kKib = 1 << 10, kMib = 1 << 20;

BlockId made(CachingAllocator& allocator, std::int64_t bytes, int stream = 0) {
  const Result<BlockId> block = allocator.allocate(bytes, stream);
  EXPECT_TRUE(block) << to_string(block.error());
  return block ? *block : BlockId{};
}

std::int64_t bytes_of(std::int64_t request, const AllocatorOptions& options = {}) {
  CachingAllocator allocator(options);
  return allocator.place(made(allocator, request)).bytes;
}

std::int64_t segment_of(std::int64_t request) {
  CachingAllocator allocator;
  made(allocator, request);
  EXPECT_EQ(allocator.segments(), 1);
  return allocator.current().reserved;
}

TEST(CachingAllocator, RoundsToMultiplesOf512Bytes) {
  EXPECT_EQ(bytes_of(1), 512);
  EXPECT_EQ(bytes_of(512), 512);
  EXPECT_EQ(bytes_of(513), 1024);
  EXPECT_EQ(bytes_of(1'000'000), 1'000'448);  // 1954 x 512
}

TEST(CachingAllocator, RoundsToStepsBetweenPowersOfTwo) {
  // Steps of 1024 / 4 between 1024 and 2048 would be below 512 B: such sizes are not rounded so.
  EXPECT_EQ(bytes_of(1200, {.roundup_power2_divisions = 4}), 1536);  // 3 x 512
  EXPECT_EQ(bytes_of(2048, {.roundup_power2_divisions = 4}), 2048);
  EXPECT_EQ(bytes_of(2049, {.roundup_power2_divisions = 4}), 2560);              // 2048 + 2048 / 4
  EXPECT_EQ(bytes_of(5 * kKib + 1, {.roundup_power2_divisions = 4}), 6 * kKib);  // steps of 1 KiB
  EXPECT_EQ(bytes_of(5 * kMib, {.roundup_power2_divisions = 2}), 6 * kMib);      // steps of 2 MiB
}

TEST(CachingAllocator, SegmentsGoByTheSizeOfTheRequest) {
  EXPECT_EQ(segment_of(1), 2 * kMib);
  EXPECT_EQ(segment_of(kMib), 2 * kMib);
  EXPECT_EQ(segment_of(kMib + 1), 20 * kMib);
  EXPECT_EQ(segment_of(10 * kMib - 512), 20 * kMib);
  EXPECT_EQ(segment_of(10 * kMib), 10 * kMib);
  EXPECT_EQ(segment_of(10 * kMib + 1), 12 * kMib);
  EXPECT_EQ(segment_of(21 * kMib), 22 * kMib);
}

TEST(CachingAllocator, SmallPoolSplitsFrom512BytesOn) {
  CachingAllocator allocator;
  made(allocator, kMib);
  made(allocator, kMib - 512);  // 512 B are left
  made(allocator, 512);
  EXPECT_EQ(allocator.current().allocated, 2 * kMib);
  EXPECT_EQ(allocator.current().reserved, 2 * kMib);
}

TEST(CachingAllocator, LargePoolSplitsAboveOneMib) {
  CachingAllocator allocator;
  made(allocator, 9 * kMib);
  const BlockId last = made(allocator, 9 * kMib);  // in 11 MiB: 2 MiB are left
  EXPECT_EQ(allocator.place(last).bytes, 9 * kMib);
  made(allocator, 2 * kMib);
  EXPECT_EQ(allocator.current().reserved, 20 * kMib);

  CachingAllocator whole;
  made(whole, 9 * kMib);
  // Out of 11 MiB: 1 MiB would be left, which is not more than 1 MiB.
  EXPECT_EQ(whole.place(made(whole, 10 * kMib)).bytes, 11 * kMib);
  EXPECT_EQ(whole.current().requested, 19 * kMib);
  EXPECT_EQ(whole.current().allocated, 20 * kMib);
}

TEST(CachingAllocator, TakesTheSmallestBlockThatFits) {
  CachingAllocator allocator;
  std::vector<BlockId> blocks;  // one segment of 20 MiB: 3, 2, 4, 2, 9 MiB
  for (const std::int64_t mib : {3, 2, 4, 2, 9}) blocks.push_back(made(allocator, mib * kMib));
  EXPECT_EQ(allocator.current().reserved, 20 * kMib);
  for (const int freed : {0, 2}) allocator.free(blocks[static_cast<std::size_t>(freed)]);
  // Into 3 MiB, not 4; the 1 MiB more is not split off.
  EXPECT_EQ(allocator.place(made(allocator, 2 * kMib)), (BlockPlace{0, 3 * kMib}));
}

TEST(CachingAllocator, OfEqualBlocksTakesTheLowest) {
  CachingAllocator allocator;
  std::vector<BlockId> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(made(allocator, 5 * kMib));
  allocator.free(blocks[3]);
  allocator.free(blocks[1]);
  EXPECT_EQ(allocator.place(made(allocator, 5 * kMib)).address, 5 * kMib);
  EXPECT_EQ(allocator.place(made(allocator, 5 * kMib)).address, 15 * kMib);
}

TEST(CachingAllocator, FreedBlocksMergeWithFreeNeighbours) {
  CachingAllocator allocator;
  std::vector<BlockId> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(made(allocator, 5 * kMib));
  allocator.free(blocks[0]);
  allocator.free(blocks[2]);
  allocator.free(blocks[1]);  // 15 MiB in one piece
  EXPECT_EQ(allocator.place(made(allocator, 15 * kMib)), (BlockPlace{0, 15 * kMib}));
  EXPECT_EQ(allocator.segments(), 1);
}

TEST(CachingAllocator, NeighboursOfOtherSegmentsDoNotMerge) {
  CachingAllocator allocator;
  const BlockId a = made(allocator, 10 * kMib), b = made(allocator, 10 * kMib);
  allocator.free(a);
  allocator.free(b);
  made(allocator, 20 * kMib);
  EXPECT_EQ(allocator.current().reserved, 40 * kMib);
  EXPECT_EQ(allocator.segments(), 3);
}

TEST(CachingAllocator, AFragmentedPoolReservesMoreThanItHolds) {
  CachingAllocator allocator;
  std::vector<BlockId> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(made(allocator, 5 * kMib));  // two segments
  for (std::size_t i = 0; i < blocks.size(); i += 2) allocator.free(blocks[i]);
  made(allocator, 6 * kMib);  // 20 MiB are free, in pieces of 5 MiB
  EXPECT_EQ(allocator.current().allocated, 26 * kMib);
  EXPECT_EQ(allocator.current().reserved, 60 * kMib);
}

TEST(CachingAllocator, StreamsAndPoolsDoNotShare) {
  CachingAllocator allocator;
  allocator.free(made(allocator, 5 * kMib, 0));
  allocator.free(made(allocator, 5 * kMib, 1));
  EXPECT_EQ(allocator.current().reserved, 40 * kMib);
  made(allocator, 5 * kMib, 1);
  EXPECT_EQ(allocator.current().reserved, 40 * kMib);
  made(allocator, kKib, 1);  // 15 MiB are free in the large pool
  EXPECT_EQ(allocator.current().reserved, 42 * kMib);
  EXPECT_EQ(allocator.segments(), 3);
  EXPECT_EQ(allocator.device_allocations(), 3);
}

TEST(CachingAllocator, ABlockThatAnotherStreamUsesWaitsForIt) {
  CachingAllocator allocator;
  const BlockId block = made(allocator, 15 * kMib);
  allocator.request_free(block);
  EXPECT_EQ(allocator.current().allocated, 0);
  EXPECT_EQ(allocator.current().active, 16 * kMib);  // 1 MiB is not split off
  EXPECT_EQ(allocator.current().requested, 15 * kMib);
  made(allocator, 15 * kMib);
  EXPECT_EQ(allocator.current().reserved, 32 * kMib);
  allocator.complete_free(block);
  EXPECT_EQ(allocator.current().active, 16 * kMib);
  made(allocator, 15 * kMib);
  EXPECT_EQ(allocator.current().reserved, 32 * kMib);
}

TEST(CachingAllocator, PeaksAreEachFiguresOwn) {
  CachingAllocator allocator;
  allocator.free(made(allocator, 30 * kMib - 7));
  allocator.free(made(allocator, 5 * kMib));  // from the cached 30 MiB
  made(allocator, 31 * kMib);                 // a segment of 32 MiB, given out as a whole
  EXPECT_EQ(allocator.peak().requested, 31 * kMib);
  EXPECT_EQ(allocator.peak().allocated, 32 * kMib);
  EXPECT_EQ(allocator.peak().reserved, 62 * kMib);
  allocator.release_cached();
  EXPECT_EQ(allocator.current().reserved, 32 * kMib);
  EXPECT_EQ(allocator.peak().reserved, 62 * kMib);
  allocator.reset_peaks();
  EXPECT_EQ(allocator.peak().reserved, 32 * kMib);
}

TEST(CachingAllocator, GivesCachedSegmentsBackWhereTheDeviceIsFull) {
  CachingAllocator allocator({.device_bytes = 64 * kMib});
  const BlockId split = made(allocator, 15 * kMib, 1);  // 16 MiB
  allocator.free(made(allocator, 32 * kMib));
  const BlockId small = made(allocator, kKib);  // 50 MiB are reserved
  made(allocator, 20 * kMib, 1);                // needs the memory of stream 0
  EXPECT_EQ(allocator.current().reserved, (16 + 2 + 20) * kMib);
  EXPECT_EQ(allocator.device_frees(), 1);
  EXPECT_EQ(allocator.retries(), 1);

  // 26 MiB are left of 64 MiB, and the small segment has a block in use.
  const auto more = allocator.allocate(27 * kMib);
  ASSERT_FALSE(more);
  EXPECT_EQ(more.error().code, ErrorCode::kImpossible);
  // In use: 36 MiB and 1 KiB. 2 MiB - 1 KiB are free.
  EXPECT_EQ(more.error().message,
            "expected room for 0.02637 GiB on the device, found 0.0625 GiB, of which 0.03516 GiB "
            "are in use and 0.001952 GiB are free in segments in use");
  EXPECT_EQ(allocator.current().reserved, 38 * kMib);
  allocator.free(small);
  made(allocator, 27 * kMib);  // 28 MiB, in addition to 36 MiB
  EXPECT_EQ(allocator.current().reserved, 64 * kMib);
  allocator.free(split);
}

TEST(CachingAllocator, RefusesWhatNoDeviceHas) {
  CachingAllocator allocator;
  const auto much = allocator.allocate(std::int64_t{1} << 62);
  ASSERT_FALSE(much);
  EXPECT_THAT(much.error().message, HasSubstr("expected room for 4.295e+09 GiB"));
  EXPECT_EQ(allocator.current().reserved, 0);
  EXPECT_FALSE(CachingAllocator({.expandable_segments = true, .device_bytes = 0}).allocate(1));
}

TEST(CachingAllocator, BlocksAboveTheLargestSplitSizeAreKeptWhole) {
  const AllocatorOptions options{.max_split_bytes = 40 * kMib};
  CachingAllocator allocator(options);
  allocator.free(made(allocator, 60 * kMib));
  made(allocator, 5 * kMib);  // does not get of the 60 MiB
  EXPECT_EQ(allocator.current().reserved, 80 * kMib);
  // 40 MiB + 20 MiB is not more than the free block: it is left alone, too.
  allocator.free(made(allocator, 40 * kMib));
  EXPECT_EQ(allocator.current().reserved, 120 * kMib);
  EXPECT_EQ(allocator.place(made(allocator, 50 * kMib)).bytes, 60 * kMib);  // within 20 MiB
  EXPECT_EQ(allocator.current().reserved, 120 * kMib);
}

TEST(CachingAllocator, OversizeBlocksMakeRoomFirst) {
  CachingAllocator allocator({.max_split_bytes = 40 * kMib, .device_bytes = 200 * kMib});
  for (const std::int64_t mib : {40, 44, 100}) allocator.free(made(allocator, mib * kMib));
  made(allocator, 64 * kMib);  // from 184 MiB, 100 MiB go: one block that is large enough
  EXPECT_EQ(allocator.current().reserved, (40 + 44 + 64) * kMib);
  EXPECT_EQ(allocator.retries(), 0);
  made(allocator, 80 * kMib);  // none is: 44, then 40 MiB
  EXPECT_EQ(allocator.current().reserved, (64 + 80) * kMib);
  EXPECT_EQ(allocator.retries(), 0);
}

TEST(ExpandableSegments, GrowInPages) {
  CachingAllocator allocator({.expandable_segments = true});
  made(allocator, 512);
  EXPECT_EQ(allocator.current().reserved, 2 * kMib);
  const BlockId first = made(allocator, 30 * kMib);  // two pages of 20 MiB
  EXPECT_EQ(allocator.current().reserved, 42 * kMib);
  made(allocator, 15 * kMib);  // 10 MiB are free, 20 MiB more are mapped
  EXPECT_EQ(allocator.current().reserved, 62 * kMib);
  EXPECT_EQ(allocator.segments(), 2);
  EXPECT_EQ(allocator.device_allocations(), 3);
  allocator.free(first);
  EXPECT_EQ(allocator.place(made(allocator, 30 * kMib - kMib)).bytes, 29 * kMib);  // 1 MiB stays
  EXPECT_EQ(allocator.current().reserved, 62 * kMib);
}

TEST(ExpandableSegments, AFreeBlockAtTheEndGrows) {
  CachingAllocator allocator({.expandable_segments = true});
  std::vector<BlockId> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(made(allocator, 5 * kMib));
  for (int i = 4; i < 8; ++i) allocator.free(blocks[static_cast<std::size_t>(i)]);
  EXPECT_EQ(allocator.place(made(allocator, 25 * kMib)), (BlockPlace{20 * kMib, 25 * kMib}));
  EXPECT_EQ(allocator.current().reserved, 60 * kMib);  // with segments of their own: 40 + 26
}

TEST(ExpandableSegments, PagesWithoutABlockInUseGoBack) {
  CachingAllocator allocator({.expandable_segments = true, .device_bytes = 100 * kMib});
  const BlockId low = made(allocator, 50 * kMib);
  const BlockId high = made(allocator, 10 * kMib);  // at 50 MiB, page three
  allocator.free(low);
  EXPECT_EQ(allocator.current().reserved, 60 * kMib);
  made(allocator, 70 * kMib, 1);  // 80 MiB in pages; of the 60 MiB pages one and two can go
  EXPECT_EQ(allocator.current().reserved, (20 + 80) * kMib);
  EXPECT_EQ(allocator.place(high), (BlockPlace{50 * kMib, 10 * kMib}));
  EXPECT_FALSE(allocator.allocate(20 * kMib));
  // The 10 MiB at the end of page three are still mapped.
  EXPECT_EQ(allocator.place(made(allocator, 10 * kMib)), (BlockPlace{40 * kMib, 10 * kMib}));
}

TEST(FreeBlocks, KeepTheirOrderAcrossChunks) {
  FreeBlocks blocks;
  std::vector<FreeBlocks::Entry> entries;
  for (std::uint32_t i = 0; i < 1000; ++i)
    entries.push_back({.bytes = i / 4, .address = i, .block = i});
  auto shuffled = entries;
  std::shuffle(shuffled.begin(), shuffled.end(), std::mt19937(1));
  for (const auto& entry : shuffled) blocks.add(entry);
  auto position = blocks.find(0);
  for (const auto& entry : entries) {
    ASSERT_TRUE(position);
    EXPECT_EQ(blocks.at(*position).block, entry.block);
    position = blocks.after(*position);
  }
  EXPECT_FALSE(position);
  EXPECT_EQ(blocks.at(*blocks.find(100)).address, 400);
  EXPECT_EQ(blocks.at(*blocks.find(100, 402)).address, 402);
  EXPECT_FALSE(blocks.find(250));
  for (const auto& entry : shuffled) {
    if (entry.block != 7) blocks.remove(*blocks.find(entry.bytes, entry.address));
  }
  EXPECT_THAT(blocks.blocks(), ::testing::ElementsAre(7u));
  EXPECT_EQ(blocks.at(*blocks.largest()).block, 7u);
}

/// The same rules without links, lists and merging: ranges of addresses, which pages of them are
/// mapped, and what is in use. All else is looked up anew each time.
class PlainAllocator {
 public:
  explicit PlainAllocator(const AllocatorOptions& options) : options_(options) {}

  std::optional<std::int64_t> allocate(std::int64_t bytes, int stream) {
    const std::int64_t size = (bytes + 511) / 512 * 512;
    const bool is_small = size <= kMib;
    auto address = from_cache(size, is_small, stream);
    if (!address) address = from_device(size, is_small, stream);
    if (!address && free_oversize(size, is_small, stream)) {
      address = from_device(size, is_small, stream);
    }
    if (!address) {
      empty_cache();
      address = from_device(size, is_small, stream);
    }
    if (!address) return std::nullopt;
    Range& range = range_at(*address);
    const Piece room = piece_at(range, *address);
    const std::int64_t rest = room.bytes - size;
    const bool splits = is_small || options_.expandable_segments
                            ? rest >= 512
                            : size < options_.max_split_bytes && rest > kMib;
    range.used[*address] = splits ? size : room.bytes;
    allocated += range.used[*address];
    return address;
  }

  void free(std::int64_t address) {
    Range& range = range_at(address);
    allocated -= range.used.at(address);
    range.used.erase(address);
  }
  std::int64_t bytes_at(std::int64_t address) { return range_at(address).used.at(address); }
  std::int64_t reserved() const {
    std::int64_t sum = 0;
    for (const Range& range : ranges_) {
      sum += range.page * std::count(range.mapped.begin(), range.mapped.end(), true);
    }
    return sum;
  }
  std::int64_t segments() const { return static_cast<std::int64_t>(ranges_.size()); }

  void empty_cache() {
    std::erase_if(ranges_, [&](Range& range) {
      if (!options_.expandable_segments && !range.used.empty()) return false;
      const bool was_mapped = is_mapped(range);
      for (std::size_t i = 0; i < range.mapped.size(); ++i) {
        const std::int64_t begin = range.begin + static_cast<std::int64_t>(i) * range.page;
        const bool is_used = std::ranges::any_of(range.used, [&](const auto& block) {
          return block.first < begin + range.page && block.first + block.second > begin;
        });
        if (!is_used) range.mapped[i] = false;
      }
      return was_mapped && !is_mapped(range);
    });
  }

  std::int64_t allocated = 0;

 private:
  struct Range {
    std::int64_t begin = 0, page = 0;
    std::vector<bool> mapped;
    bool is_small = false;
    int stream = 0;
    std::map<std::int64_t, std::int64_t> used;
    std::int64_t end() const { return begin + page * static_cast<std::int64_t>(mapped.size()); }
  };
  static bool is_mapped(const Range& range) {
    return std::ranges::find(range.mapped, true) != range.mapped.end();
  }
  enum class Kind { kUsed, kFree, kUnmapped };
  struct Piece {
    std::int64_t begin = 0, bytes = 0;
    Kind kind = Kind::kFree;
  };

  /// Neighbours of one kind as one piece, except those in use.
  static std::vector<Piece> pieces(const Range& range) {
    std::vector<Piece> all;
    for (std::int64_t at = range.begin; at < range.end();) {
      if (const auto used = range.used.find(at); used != range.used.end()) {
        all.push_back({at, used->second, Kind::kUsed});
        at += used->second;
        continue;
      }
      const auto next = range.used.upper_bound(at);
      const auto page = static_cast<std::size_t>((at - range.begin) / range.page);
      const std::int64_t page_end = range.begin + static_cast<std::int64_t>(page + 1) * range.page;
      const std::int64_t end =
          next == range.used.end() ? page_end : std::min(page_end, next->first);
      const Kind kind = range.mapped[page] ? Kind::kFree : Kind::kUnmapped;
      if (!all.empty() && all.back().kind == kind) {
        all.back().bytes += end - at;
      } else {
        all.push_back({at, end - at, kind});
      }
      at = end;
    }
    return all;
  }
  Range& range_at(std::int64_t address) {
    return *std::ranges::find_if(
        ranges_, [&](const Range& r) { return r.begin <= address && address < r.end(); });
  }
  static Piece piece_at(const Range& range, std::int64_t address) {
    const auto all = pieces(range);
    return *std::ranges::find(all, address, &Piece::begin);
  }

  struct Cached {
    std::int64_t bytes, begin, grown;
  };
  std::vector<Cached> cached(bool is_small, int stream) const {
    std::vector<Cached> all;
    for (const Range& range : ranges_) {
      if (range.is_small != is_small || range.stream != stream) continue;
      const auto parts = pieces(range);
      for (std::size_t i = 0; i < parts.size(); ++i) {
        if (parts[i].kind != Kind::kFree) continue;
        const bool grows = i + 1 < parts.size() && parts[i + 1].kind == Kind::kUnmapped;
        all.push_back(
            {parts[i].bytes, parts[i].begin, parts[i].bytes + (grows ? parts[i + 1].bytes : 0)});
      }
    }
    std::ranges::sort(all, [](const Cached& a, const Cached& b) {
      return a.bytes != b.bytes ? a.bytes < b.bytes : a.begin < b.begin;
    });
    return all;
  }

  std::optional<std::int64_t> from_cache(std::int64_t size, bool is_small, int stream) const {
    auto all = cached(is_small, stream);
    std::erase_if(all, [&](const Cached& c) { return c.bytes < size; });
    if (all.empty()) return std::nullopt;
    std::size_t best = 0;
    while (options_.expandable_segments && best + 1 < all.size() &&
           all[best + 1].grown < all[best].grown) {
      ++best;
    }
    const std::int64_t bytes = all[best].bytes, most = options_.max_split_bytes;
    if (size < most && bytes >= most) return std::nullopt;
    if (size >= most && bytes >= size + options_.max_non_split_rounding_bytes) return std::nullopt;
    return all[best].begin;
  }

  std::optional<std::int64_t> from_device(std::int64_t size, bool is_small, int stream) {
    const std::int64_t page = is_small ? 2 * kMib : 20 * kMib;
    if (options_.expandable_segments) return from_pages(size, page, is_small, stream);
    const std::int64_t bytes = is_small           ? 2 * kMib
                               : size < 10 * kMib ? 20 * kMib
                                                  : (size + 2 * kMib - 1) / (2 * kMib) * 2 * kMib;
    if (reserved() + bytes > options_.device_bytes) return std::nullopt;
    ranges_.push_back({next_, bytes, {true}, is_small, stream, {}});
    next_ += bytes;
    return ranges_.back().begin;
  }

  std::optional<std::int64_t> from_pages(std::int64_t size, std::int64_t page, bool is_small,
                                         int stream) {
    if ((size + page - 1) / page * page > options_.device_bytes) return std::nullopt;
    for (Range& range : ranges_) {
      if (range.is_small != is_small || range.stream != stream) continue;
      const auto parts = pieces(range);
      for (std::size_t i = 0; i < parts.size(); ++i) {
        if (parts[i].kind != Kind::kUnmapped) continue;
        const std::size_t first = i > 0 && parts[i - 1].kind == Kind::kFree ? i - 1 : i;
        std::int64_t room = 0;
        for (std::size_t k = first; k < parts.size() && parts[k].kind != Kind::kUsed; ++k) {
          room += parts[k].bytes;
        }
        if (room >= size) return mapped_at(range, parts[first].begin, size);
      }
    }
    const std::int64_t most = options_.device_bytes + options_.device_bytes / 8;
    next_ = (next_ + page - 1) / page * page;
    ranges_.push_back({next_,
                       page,
                       std::vector<bool>(static_cast<std::size_t>((most + page - 1) / page)),
                       is_small,
                       stream,
                       {}});
    next_ = ranges_.back().end();
    return mapped_at(ranges_.back(), ranges_.back().begin, size);
  }

  /// Maps piece by piece; what is mapped when the device is full stays so.
  std::optional<std::int64_t> mapped_at(Range& range, std::int64_t begin, std::int64_t size) {
    const auto page_of = [&](std::int64_t at) {
      return static_cast<std::size_t>((at - range.begin) / range.page);
    };
    for (const Piece& piece : pieces(range)) {
      if (piece.kind != Kind::kUnmapped || piece.begin < begin || piece.begin >= begin + size)
        continue;
      const std::size_t first = page_of(piece.begin);
      const std::size_t last = page_of(std::min(begin + size, piece.begin + piece.bytes) - 1);
      const auto bytes = static_cast<std::int64_t>(last - first + 1) * range.page;
      if (reserved() + bytes > options_.device_bytes) return std::nullopt;
      for (std::size_t i = first; i <= last; ++i) range.mapped[i] = true;
    }
    return begin;
  }

  bool free_oversize(std::int64_t size, bool is_small, int stream) {
    if (options_.max_split_bytes == AllocatorOptions::kUnlimited || options_.expandable_segments) {
      return false;
    }
    const std::int64_t wanted = std::max(size, options_.max_split_bytes);
    auto all = cached(is_small, stream);
    std::erase_if(all, [&](const Cached& c) { return c.bytes < options_.max_split_bytes; });
    const auto one = std::ranges::find_if(all, [&](const Cached& c) { return c.bytes >= wanted; });
    std::int64_t released = 0;
    const auto release = [&](const Cached& c) {
      released += c.bytes;
      std::erase_if(ranges_, [&](const Range& r) { return r.begin == c.begin; });
    };
    if (one != all.end()) {
      release(*one);
    } else {
      for (auto it = all.rbegin(); it != all.rend() && released < wanted; ++it) release(*it);
    }
    return released >= wanted;
  }

  AllocatorOptions options_;
  std::vector<Range> ranges_;  // by address
  std::int64_t next_ = 0;
};

TEST(CachingAllocator, AgreesWithPlainRules) {
  struct Case {
    const char* label;
    AllocatorOptions options;
  };
  const Case cases[] = {
      {"default", {}},
      {"full", {.device_bytes = 140 * kMib}},
      {"split", {.max_split_bytes = 24 * kMib, .device_bytes = 140 * kMib}},
      {"expandable", {.expandable_segments = true, .device_bytes = 1000 * kMib}},
      {"expandable and full", {.expandable_segments = true, .device_bytes = 130 * kMib}},
      {"expandable and split",
       {.max_split_bytes = 24 * kMib, .expandable_segments = true, .device_bytes = 140 * kMib}},
  };
  for (const Case& c : cases) {
    AllocatorOptions options = c.options;
    CachingAllocator fast(options);
    PlainAllocator plain(options);
    struct Live {
      BlockId block;
      std::int64_t address;
    };
    std::vector<Live> live;
    std::mt19937 random(7);
    int refused = 0;
    for (int i = 0; i < 6000; ++i) {
      // Sizes from 1 B to 64 MiB, each power of two as likely; 40 blocks on average.
      if (live.empty() || random() % 80 >= live.size()) {
        const std::int64_t bytes =
            1 + static_cast<std::int64_t>(random() % (1u << (random() % 27)));
        const int stream = random() % 8 == 0 ? 1 : 0;
        const auto block = fast.allocate(bytes, stream);
        const auto address = plain.allocate(bytes, stream);
        ASSERT_EQ(block.has_value(), address.has_value()) << c.label << " " << i;
        refused += !block;
        if (block) {
          ASSERT_EQ(fast.place(*block), (BlockPlace{*address, plain.bytes_at(*address)}))
              << c.label << " " << i;
          live.push_back({*block, *address});
        }
      } else {
        std::swap(live[random() % live.size()], live.back());
        fast.free(live.back().block);
        plain.free(live.back().address);
        live.pop_back();
      }
      if (i % 1500 == 1499) {
        fast.release_cached();
        plain.empty_cache();
      }
      ASSERT_EQ(fast.current().reserved, plain.reserved()) << c.label << " " << i;
      ASSERT_EQ(fast.current().allocated, plain.allocated) << c.label << " " << i;
      ASSERT_EQ(fast.segments(), plain.segments()) << c.label << " " << i;
    }
    const bool is_tight = options.device_bytes < 200 * kMib;
    EXPECT_EQ(refused > 0, is_tight) << c.label;
    EXPECT_EQ(fast.retries() > refused, is_tight) << c.label;  // some requests were met then
    for (const Live& block : live) fast.free(block.block);
    fast.release_cached();
    EXPECT_EQ(fast.current().reserved, 0) << c.label;
    EXPECT_EQ(fast.current().requested, 0) << c.label;
  }
}

struct Recorded {
  std::int64_t address = 0, bytes = 0;  // below 0: freed
};

std::vector<Recorded> recorded_on_gpu(const std::filesystem::path& trace) {
  std::string text;
  const gzFile file = gzopen(trace.c_str(), "rb");
  std::vector<char> part(1 << 20);
  for (int got = 1; file && got > 0; text.append(part.data(), static_cast<std::size_t>(got))) {
    got = std::max(0, gzread(file, part.data(), static_cast<unsigned>(part.size())));
  }
  if (file) gzclose(file);
  std::map<std::int64_t, Recorded> by_index;
  const auto events = nlohmann::json::parse(text).at("traceEvents");
  for (const auto& event : events) {
    if (event.at("name") != "[memory]" || event.at("args").at("Device Type") != 1) continue;
    const auto& args = event.at("args");
    by_index[args.at("Ev Idx")] = {args.at("Addr"), args.at("Bytes")};
  }
  std::vector<Recorded> all;
  for (const auto& [index, recorded] : by_index) all.push_back(recorded);
  return all;
}

/// Small blocks of PyTorch 2.6 on an H100: those that the allocator picks begin where the recorded
/// ones do. Memory that is in use all the time is taken to be before the first block of each
/// segment.
TEST(CachingAllocator, PlacesSmallBlocksWhereADeviceDid) {
  const char* data = std::getenv("PERFMODEL_PUBLIC_DATA");
  if (!data || !*data) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  const auto recorded = recorded_on_gpu(std::filesystem::path(data) / "traces" /
                                        "bert_small_infer_h100_torch26_kineto.json.gz");
  std::map<std::int64_t, std::int64_t> used;  // per segment of 2 MiB: bytes before its first block
  for (const auto& [address, bytes] : recorded) {
    if (bytes <= 0 || bytes > kMib) continue;
    const auto [segment, is_new] = used.emplace(address / (2 * kMib), address % (2 * kMib));
    segment->second = std::min(segment->second, address % (2 * kMib));
  }

  CachingAllocator allocator;
  std::vector<BlockId> free;
  std::map<std::int64_t, std::int64_t> begins;  // begins of segments, here
  const auto fill = [&](std::int64_t bytes, std::vector<BlockId>& blocks) {
    for (; bytes > 0; bytes -= std::min(bytes, kMib)) {
      blocks.push_back(made(allocator, std::min(bytes, kMib)));
    }
  };
  for (const auto& [segment, bytes] : used) {
    std::vector<BlockId> kept;
    begins[segment] = allocator.current().reserved;
    fill(bytes, kept);
    fill(2 * kMib - bytes, free);
  }
  for (const BlockId block : free) allocator.free(block);

  std::map<std::int64_t, BlockId> live;
  int compared = 0;
  for (const auto& [address, bytes] : recorded) {
    if (std::abs(bytes) > kMib) continue;
    if (bytes > 0) {
      const BlockId block = live[address] = made(allocator, bytes);
      const std::int64_t expected = begins.at(address / (2 * kMib)) + address % (2 * kMib);
      ASSERT_EQ(allocator.place(block), (BlockPlace{expected, bytes}));
      ++compared;
    } else if (const auto found = live.find(address); found != live.end()) {
      allocator.free(found->second);
      live.erase(found);
    }
  }
  EXPECT_EQ(compared, 108);
  EXPECT_EQ(allocator.segments(),
            static_cast<std::int64_t>(used.size()));  // as recorded: no new one
}

}  // namespace caching_allocator_test
}  // namespace perfmodel
