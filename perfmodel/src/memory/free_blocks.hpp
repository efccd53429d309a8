#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace perfmodel {

/// The free blocks of one pool in the order in which the allocator looks for room: by size, then by
/// address.
///
/// A sorted list in chunks of at most 128: finding one is two binary searches, adding or removing
/// one moves entries of one chunk. Memory is asked for only when a chunk is full.
class FreeBlocks {
 public:
  struct Entry {
    std::int64_t bytes = 0, address = 0;
    std::uint32_t block = 0;

    friend bool operator<(const Entry& a, const Entry& b) {  ///< addresses differ
      return a.bytes != b.bytes ? a.bytes < b.bytes : a.address < b.address;
    }
  };
  /// Place of an entry, valid until something is added or removed.
  struct Position {
    std::size_t chunk = 0, place = 0;
  };

  FreeBlocks();

  const Entry& at(Position position) const { return chunks_[position.chunk][position.place]; }

  /// The first entry of these bytes at or after this address, or of more bytes.
  std::optional<Position> find(std::int64_t bytes, std::int64_t address = 0) const;
  std::optional<Position> after(Position position) const;
  std::optional<Position> largest() const;
  std::vector<std::uint32_t> blocks() const;

  void add(const Entry& entry);
  void remove(Position position);

 private:
  std::size_t chunk_for(const Entry& key) const;
  void split(std::size_t index);

  std::vector<std::vector<Entry>> chunks_;  // at least one; only the first may be empty
};

}  // namespace perfmodel
