// TorchRec's plans: what is read and says how large its tables are can be written again.
#include "fuzz.hpp"
#include "sharding/torchrec_plan_file.hpp"

using namespace perfmodel;
using namespace perfmodel::sharding;

namespace {

std::vector<ShardedTable> tables_of(const NamedPlan& plan) {
  std::vector<ShardedTable> tables;
  for (const NamedPlan::Table& table : plan.tables) {
    tables.push_back(
        {.name = table.name, .rows = table.rows.value_or(1), .dim = table.dim.value_or(1)});
  }
  return tables;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::int64_t kMostRanks = 4096;
  const auto plan = read_torchrec_plan(fuzz::file_with(fuzz::text_of(data, size)));
  if (!plan) {
    fuzz::check_error(plan.error());
    return 0;
  }
  if (!plan->world || *plan->world > kMostRanks) return 0;
  const std::vector<ShardedTable> tables = tables_of(*plan);
  std::vector<TablePlacement> placements;
  std::vector<std::string> modules;
  for (const NamedPlan::Table& table : plan->tables) {
    placements.push_back(table.placement);
    modules.push_back(table.module);
  }
  const std::int64_t local_world = plan->local_world.value_or(*plan->world);
  const auto text = torchrec_plan_text(tables, placements, *plan->world, local_world, modules);
  if (!text) {
    fuzz::check_error(text.error());
    return 0;
  }
  const auto again = read_torchrec_plan(fuzz::file_with(*text));
  PERFMODEL_CHECK(again.has_value());
  PERFMODEL_CHECK(again->tables.size() == plan->tables.size());
  return 0;
}
