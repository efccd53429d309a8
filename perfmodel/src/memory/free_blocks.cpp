#include "memory/free_blocks.hpp"

#include <algorithm>
#include <iterator>

namespace perfmodel {
namespace {

constexpr std::size_t kChunkEntries = 128;

std::vector<FreeBlocks::Entry> empty_chunk() {
  std::vector<FreeBlocks::Entry> chunk;
  chunk.reserve(kChunkEntries);
  return chunk;
}

}  // namespace

FreeBlocks::FreeBlocks() { chunks_.push_back(empty_chunk()); }

/// The first chunk that ends at or after the key; the last one if none does.
std::size_t FreeBlocks::chunk_for(const Entry& key) const {
  const auto last = std::prev(chunks_.end());
  const auto found =
      std::partition_point(chunks_.begin(), last, [&](const auto& c) { return c.back() < key; });
  return static_cast<std::size_t>(found - chunks_.begin());
}

std::optional<FreeBlocks::Position> FreeBlocks::find(std::int64_t bytes,
                                                     std::int64_t address) const {
  const Entry key{.bytes = bytes, .address = address};
  const std::size_t index = chunk_for(key);
  const auto& chunk = chunks_[index];
  const auto found = std::lower_bound(chunk.begin(), chunk.end(), key);
  if (found == chunk.end()) return std::nullopt;  // all chunks end before the key
  return Position{index, static_cast<std::size_t>(found - chunk.begin())};
}

std::optional<FreeBlocks::Position> FreeBlocks::after(Position position) const {
  if (++position.place < chunks_[position.chunk].size()) return position;
  if (++position.chunk < chunks_.size()) return Position{position.chunk, 0};
  return std::nullopt;
}

std::optional<FreeBlocks::Position> FreeBlocks::largest() const {
  if (chunks_.back().empty()) return std::nullopt;
  return Position{chunks_.size() - 1, chunks_.back().size() - 1};
}

std::vector<std::uint32_t> FreeBlocks::blocks() const {
  std::vector<std::uint32_t> all;
  for (const auto& chunk : chunks_) {
    for (const Entry& entry : chunk) all.push_back(entry.block);
  }
  return all;
}

void FreeBlocks::split(std::size_t index) {
  auto upper = empty_chunk();
  auto& lower = chunks_[index];
  const auto middle = lower.begin() + kChunkEntries / 2;
  upper.assign(middle, lower.end());
  lower.erase(middle, lower.end());
  chunks_.insert(chunks_.begin() + static_cast<std::ptrdiff_t>(index) + 1, std::move(upper));
}

void FreeBlocks::add(const Entry& entry) {
  std::size_t index = chunk_for(entry);
  if (chunks_[index].size() == kChunkEntries) {
    split(index);
    index = chunk_for(entry);
  }
  auto& chunk = chunks_[index];
  chunk.insert(std::upper_bound(chunk.begin(), chunk.end(), entry), entry);
}

void FreeBlocks::remove(Position position) {
  auto& chunk = chunks_[position.chunk];
  chunk.erase(chunk.begin() + static_cast<std::ptrdiff_t>(position.place));
  if (chunk.empty() && chunks_.size() > 1) {
    chunks_.erase(chunks_.begin() + static_cast<std::ptrdiff_t>(position.chunk));
  }
}

}  // namespace perfmodel
