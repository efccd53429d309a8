#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "layout/layout_table.hpp"
#include "perfmodel/sweep/detail/team.hpp"

namespace perfmodel {

/// `rank_layouts` with `keep` layouts, by all ranks of a team if there is one. Errors: its own, no
/// layout that fits.
Result<LayoutRanking> search_layouts(const LayoutPricer& pricer, const LayoutJob& job,
                                     std::int64_t gpus, const LayoutSpace& space, std::size_t keep,
                                     const LayoutRunHooks& hooks, sweep::Team* team = nullptr);

/// The best layout at one value.
struct LayoutSweepRow {
  std::string value, error;  ///< the error: why there is no layout, or not the best
  std::optional<RankedLayout> best;
  std::int64_t gpus = 0;
  bool complete = true;  ///< else the search was stopped, and `best` is the best until then
};

/// The best layout at each value of one input: world, gpu, global-batch, sequence, topology, host.
/// A value at which nothing is possible is a row with its reason. Errors: values that the axis
/// cannot take, nothing possible at any value.
Result<std::vector<LayoutSweepRow>> sweep_layouts(const Predictor& predictor,
                                                  const LayoutInputs& inputs,
                                                  const std::string& axis,
                                                  const std::vector<std::string>& values,
                                                  const LayoutRunHooks& hooks);

}  // namespace perfmodel
