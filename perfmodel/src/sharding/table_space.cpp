#include "perfmodel/sharding/detail/table_space.hpp"

namespace perfmodel::sharding {

std::vector<TablePlacement> placements_of(const TableSpace& space, const FoundPlan& plan) {
  PERFMODEL_CHECK(plan.tables.size() == space.tables.size());
  std::size_t count = 0;
  for (const auto& unit : space.tables) count += unit.size();
  std::vector<TablePlacement> placements(count);
  for (std::size_t u = 0; u < plan.tables.size(); ++u) {
    const PlacedChoice& placed = plan.tables[u];
    const TableChoices& choices = space.space.choices[space.space.choices_of_table[u]];
    const PlacementOption& option = choices.options[placed.option];
    const TablePlacement placement{option.type,
                                   option.kernel,
                                   {placed.ranks.begin(), placed.ranks.end()},
                                   option.least_columns,
                                   option.settings};
    for (std::uint32_t table : space.tables[u]) placements[table] = placement;
  }
  return placements;
}

}  // namespace perfmodel::sharding
