#pragma once

#include <cstdint>
#include <functional>

#include "plan_search_space.hpp"

namespace perfmodel::sharding::search {

/// Small enough to be worth an enumeration?
bool is_small(const FlatSpace& space);

struct ExactOutcome {
  bool complete = false;  ///< all plans were looked at or ruled out
  bool improved = false;
  Layout best;
};

/// Branch and bound over tables, options and places. Ranks and hosts that nothing tells apart are
/// tried once, as are orders of tables that are alike. `best`: the plan to beat.
ExactOutcome enumerate(const FlatSpace& space, const Layout& best, std::uint64_t most_nodes,
                       const std::function<bool()>& go_on);

}  // namespace perfmodel::sharding::search
