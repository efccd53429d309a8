#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "plan_search_space.hpp"

namespace perfmodel::sharding::search {

struct Annealing {
  double hot = 0.01, cold = 1e-5;  ///< changes of the cost, relative to it, that are let pass
  std::uint64_t moves = 0;
  bool repair = false;  ///< memory may run over; ends when it does not
};

/// Callbacks of a running search.
struct SearchHooks {
  /// A plan that is better or of other options; the layout holds an older objective.
  std::function<void(const Layout&, double objective)> found;
  std::function<bool(std::uint64_t moves)> go_on;  ///< now and then; false: stop
};

/// Improves plans by random moves, most of them on slow ranks.
class LocalSearch {
 public:
  virtual ~LocalSearch() = default;
  /// Searches from `start` and reports plans whose objective is below `worth` to found() (`worth`
  /// changes as the caller learns). Returns the moves tried.
  virtual std::uint64_t run(const Layout& start, const Annealing& annealing, Random& random,
                            const double& worth, const SearchHooks& hooks) = 0;
};
std::unique_ptr<LocalSearch> make_local_search(const FlatSpace& space);

}  // namespace perfmodel::sharding::search
