#include "perfmodel/graph/string_pool.hpp"

namespace perfmodel {

StringPool::StringPool(const StringPool& other) {
  for (std::string_view text : other.texts_) intern(text);
}

StringPool& StringPool::operator=(const StringPool& other) {
  if (this != &other) *this = StringPool(other);
  return *this;
}

NameId StringPool::intern(std::string_view text) {
  if (auto known = ids_.find(text); known != ids_.end()) return known->second;
  const std::string_view stored = storage_.emplace_back(text);
  const auto id = static_cast<NameId>(texts_.size());
  texts_.push_back(stored);
  hashes_.push_back(hash_text(stored));
  ids_.emplace(stored, id);
  return id;
}

}  // namespace perfmodel
