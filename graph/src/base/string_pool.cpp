#include "perfmodel/graph/detail/string_pool.hpp"

#include <algorithm>

#include "perfmodel/detail/check.hpp"

namespace perfmodel {
namespace {

constexpr std::size_t kFirstBlock = 1024, kLargestBlock = std::size_t{1} << 20;

}  // namespace

StringPool::StringPool(const StringPool& other) {
  for (std::string_view text : other.texts_) intern(text);
}

StringPool& StringPool::operator=(const StringPool& other) {
  if (this != &other) *this = StringPool(other);
  return *this;
}

NameId StringPool::intern(std::string_view text) {
  if (auto known = ids_.find(text); known != ids_.end()) return known->second;
  const std::string_view stored = store(text);
  const auto id = static_cast<NameId>(texts_.size());
  texts_.push_back(stored);
  hashes_.push_back(hash_text(stored));
  ids_.emplace(stored, id);
  return id;
}

void StringPool::replace(NameId id, std::string_view text) {
  PERFMODEL_CHECK(id != 0 && id < texts_.size() && !ids_.contains(text));
  const std::string_view old = texts_[id], stored = store(text);
  ids_.erase(old);
  ids_.emplace(stored, id);
  texts_[id] = stored;
  hashes_[id] = hash_text(stored);
  std::fill_n(const_cast<char*>(old.data()), old.size(), '\0');  // the block is not const
}

std::string_view StringPool::store(std::string_view text) {
  if (text.size() > free_bytes_) {
    const std::size_t grown =
        std::min(kLargestBlock, kFirstBlock << std::min<std::size_t>(blocks_.size(), 10));
    const std::size_t size = std::max(grown, text.size());
    blocks_.push_back(std::make_unique_for_overwrite<char[]>(size));
    free_ = blocks_.back().get();
    free_bytes_ = size;
  }
  const std::string_view stored(free_, text.size());
  std::ranges::copy(text, free_);
  free_ += text.size();
  free_bytes_ -= text.size();
  return stored;
}

}  // namespace perfmodel
