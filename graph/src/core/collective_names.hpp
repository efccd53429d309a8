#pragma once

#include <cstdint>
#include <vector>

#include "perfmodel/graph/detail/event_names.hpp"
#include "perfmodel/graph/detail/string_pool.hpp"

namespace perfmodel {

/// is_collective_kernel of the names of a pool, each looked at once: a trace repeats a few hundred
/// names a million times.
class CollectiveNames {
 public:
  explicit CollectiveNames(const StringPool& names) : names_(names), known_(names.size(), -1) {}

  bool operator()(NameId name) {
    auto& known = known_[name];
    if (known < 0) known = is_collective_kernel(names_.text(name)) ? 1 : 0;
    return known == 1;
  }

 private:
  const StringPool& names_;
  std::vector<std::int8_t> known_;  // below 0: not asked for
};

}  // namespace perfmodel
