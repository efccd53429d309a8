#include "perfmodel/sharding/detail/shortfall.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace perfmodel::sharding {

Shortfall find_shortfall(const PlanSpace& space) {
  Shortfall found;
  const auto all = [&](std::int64_t cap) {
    constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
    return cap > kMost / space.world ? kMost : cap * space.world;
  };
  found.hbm_bytes = all(space.hbm_cap);
  found.ddr_bytes = all(space.ddr_cap);
  for (std::size_t t = 0; t < space.choices_of_table.size(); ++t) {
    const TableChoices& choices = space.choices[space.choices_of_table[t]];
    std::int64_t least_hbm = std::numeric_limits<std::int64_t>::max(), least_ddr = least_hbm;
    Shortfall::Table table{static_cast<std::uint32_t>(t), least_hbm, least_ddr};
    bool fits = false;
    for (const PlacementOption& option : choices.options) {
      std::int64_t hbm = 0, ddr = 0, hbm_max = 0, ddr_max = 0;
      for (const PlacementOption::Run& run : option.shards) {
        hbm += run.count * run.demand.hbm_bytes;
        ddr += run.count * run.demand.ddr_bytes;
        hbm_max = std::max(hbm_max, run.demand.hbm_bytes);
        ddr_max = std::max(ddr_max, run.demand.ddr_bytes);
      }
      least_hbm = std::min(least_hbm, hbm);
      least_ddr = std::min(least_ddr, ddr);
      fits = fits || (hbm_max <= space.hbm_cap && ddr_max <= space.ddr_cap);
      // The option that lacks least: the others lack host memory, if HBM suffices.
      const std::pair lacking(std::max<std::int64_t>(0, hbm_max - space.hbm_cap),
                              std::max<std::int64_t>(0, ddr_max - space.ddr_cap));
      const std::pair lacked(std::max<std::int64_t>(0, table.shard_hbm_bytes - space.hbm_cap),
                             std::max<std::int64_t>(0, table.shard_ddr_bytes - space.ddr_cap));
      if (&option == choices.options.data() || lacking < lacked) {
        table.shard_hbm_bytes = hbm_max;
        table.shard_ddr_bytes = ddr_max;
      }
    }
    if (choices.options.empty()) continue;
    found.least_hbm_bytes += least_hbm;
    found.least_ddr_bytes += least_ddr;
    if (!fits) found.tables.push_back(table);
  }
  return found;
}

}  // namespace perfmodel::sharding
