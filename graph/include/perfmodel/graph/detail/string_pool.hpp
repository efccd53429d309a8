#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace perfmodel {

/// Index of an interned name; equal names of one pool have equal ids.
using NameId = std::uint32_t;

/// FNV-1a, 64 bit: the same name has the same hash in every file and on every machine.
constexpr std::uint64_t hash_text(std::string_view text,
                                  std::uint64_t seed = 0xcbf29ce484222325ULL) {
  for (char c : text) seed = (seed ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return seed;
}

/// Order-dependent mix of a further value into a hash.
constexpr std::uint64_t hash_mix(std::uint64_t seed, std::uint64_t value) {
  std::uint64_t x = (seed ^ value) * 0x9e3779b97f4a7c15ULL;
  return x ^ (x >> 29);
}

/// Names kept once; traces repeat a few hundred names a million times.
class StringPool {
 public:
  /// Approximate memory of a name in addition to its text.
  static constexpr std::uint64_t kBytesPerName = 64;

  StringPool() { intern(""); }
  StringPool(const StringPool& other);  // the views must point into the copy's own storage
  StringPool& operator=(const StringPool& other);
  // A pool that was moved from may be destroyed or assigned to, nothing else.
  StringPool(StringPool&&) noexcept = default;
  StringPool& operator=(StringPool&&) noexcept = default;

  NameId intern(std::string_view text);

  /// Gives name `id` another text, which no name of the pool may have yet. The storage of the old
  /// one is overwritten. Not for id 0.
  void replace(NameId id, std::string_view text);

  std::string_view text(NameId id) const { return texts_[id]; }
  std::uint64_t hash(NameId id) const { return hashes_[id]; }
  std::size_t size() const { return texts_.size(); }

 private:
  std::string_view store(std::string_view text);

  // Stable addresses under the views. (No deque: moving one allocates, so it may fail.)
  std::vector<std::unique_ptr<char[]>> blocks_;
  char* free_ = nullptr;  // in the last block
  std::size_t free_bytes_ = 0;
  std::vector<std::string_view> texts_;
  std::vector<std::uint64_t> hashes_;
  std::unordered_map<std::string_view, NameId> ids_;
};

}  // namespace perfmodel
