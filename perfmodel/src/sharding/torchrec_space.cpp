#include "torchrec_space.hpp"

#include <fmt/format.h>

#include "fill_table_space.hpp"

namespace perfmodel::sharding {
namespace {

std::vector<ShardingType> types_of(const ShardedTable& table) {
  if (!table.rules.types.empty()) return table.rules.types;
  return {ShardingType::kDataParallel, ShardingType::kTableWise,    ShardingType::kColumnWise,
          ShardingType::kRowWise,      ShardingType::kTableRowWise, ShardingType::kTableColumnWise};
}

std::vector<ComputeKernel> kernels_of(const ShardedTable& table) {
  if (!table.rules.kernels.empty()) return table.rules.kernels;
  return {ComputeKernel::kDense, ComputeKernel::kFused};
}

ShardDemand demand_of(const TorchrecCost& cost) {
  ShardDemand demand;
  demand.loads[0] = cost.total_ms();
  demand.hbm_bytes = cost.hbm_bytes;
  demand.ddr_bytes = cost.ddr_bytes;
  return demand;
}

class Options {
 public:
  Options(std::span<const ShardedTable> tables, const TorchrecTopology& topology,
          const TorchrecSettings& settings, const TorchrecSpaceOptions& options)
      : tables_(tables), topology_(topology), settings_(settings), options_(options) {}

  Result<std::vector<PlacementOption>> of(std::uint32_t index, bool together) const {
    const ShardedTable& table = tables_[index];
    std::vector<PlacementOption> made;
    const std::vector<ShardingType> types =
        together ? std::vector<ShardingType>{ShardingType::kTableWise} : types_of(table);
    for (ShardingType type : types) {
      for (ComputeKernel kernel : kernels_of(table)) {
        if ((type == ShardingType::kDataParallel) != (kernel == ComputeKernel::kDense)) continue;
        PERFMODEL_TRY_TO(add(table, type, kernel, 0, made));
        if (!cuts_columns(type)) continue;
        for (std::int64_t columns : options_.least_columns) {
          PERFMODEL_TRY_TO(add(table, type, kernel, columns, made));
        }
      }
    }
    if (made.empty()) {
      return decline(
          fmt::format("table {}: expected types and kernels that go together (dense: "
                      "data_parallel, others: all other types), found none",
                      table.name));
    }
    return made;
  }

 private:
  Result<void> add(const ShardedTable& table, ShardingType type, ComputeKernel kernel,
                   std::int64_t least_columns, std::vector<PlacementOption>& made) const {
    ShardedTable cut = table;
    if (least_columns > 0) cut.least_columns = least_columns;
    PERFMODEL_TRY(costs, torchrec_costs(cut, type, kernel, topology_, settings_));
    PlacementOption option{type, kernel, least_columns, {}};
    for (std::size_t i = 0; i < costs->size(); ++i) {
      const bool same = i > 0 && (*costs)[i].size == (*costs)[i - 1].size;
      if (same) {
        ++option.shards.back().count;
      } else {
        option.shards.push_back({1, demand_of((*costs)[i])});
      }
    }
    made.push_back(std::move(option));
    return {};
  }

  std::span<const ShardedTable> tables_;
  const TorchrecTopology& topology_;
  const TorchrecSettings& settings_;
  const TorchrecSpaceOptions& options_;
};

}  // namespace

Result<TableSpace> make_torchrec_space(std::span<const ShardedTable> tables,
                                       const TorchrecTopology& topology,
                                       const TorchrecSettings& settings,
                                       const TorchrecSpaceOptions& options) {
  if (options.hbm_cap < 1) {
    return decline(fmt::format("expected memory for tables, found {} bytes", options.hbm_cap));
  }
  TableSpace made;
  made.space.world = topology.world;
  made.space.local_world = topology.local_world;
  made.space.hbm_cap = options.hbm_cap;
  made.space.ddr_cap = topology.ddr_cap;
  const Options all(tables, topology, settings, options);
  const auto options_of = [&](std::uint32_t table, bool together) {
    return all.of(table, together);
  };
  PERFMODEL_TRY_TO(fill_table_space(tables, options_of, made));
  return made;
}

}  // namespace perfmodel::sharding
