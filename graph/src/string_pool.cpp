#include "perfmodel/graph/string_pool.hpp"

namespace perfmodel {

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
