// Plans as tables for other programs.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "perfmodel/detail/output_file.hpp"
#include "sharding/plan_export.hpp"
#include "sharding_cases.hpp"
#include "sharding_files.hpp"

namespace perfmodel::sharding {
namespace sharding_plan_export_test {

using Type = ShardingType;
using Kernel = ComputeKernel;

const FileFolder& folder() {
  static const FileFolder kFolder("sharding_plan_export");
  return kFolder;
}

TEST(PlanCsv, HasARowPerShard) {
  const std::vector<ShardedTable> tables = {table_of("dp", 5, 8), table_of("a,\"b\"", 9, 16),
                                            table_of("grid", 7, 256), table_of("split", 10, 16),
                                            table_of("few", 1, 4)};
  const std::vector<TablePlacement> placements = {
      {.type = Type::kDataParallel, .kernel = Kernel::kDense},
      {.ranks = {3}},
      {.type = Type::kGrid, .kernel = Kernel::kFusedUvm, .ranks = {2, 3, 0, 1}},
      {.type = Type::kRowSplit, .ranks = {3, 0, 1}},
      {.type = Type::kRowWise}};
  EXPECT_EQ(plan_csv(tables, placements, 4, 2).value(),
            "table,type,kernel,rank,rows,columns,row_offset,column_offset\n"
            "dp,data_parallel,dense,0,5,8,0,0\n"
            "dp,data_parallel,dense,1,5,8,0,0\n"
            "dp,data_parallel,dense,2,5,8,0,0\n"
            "dp,data_parallel,dense,3,5,8,0,0\n"
            "\"a,\"\"b\"\"\",table_wise,fused,3,9,16,0,0\n"
            "grid,grid_shard,fused_uvm,2,4,128,0,0\n"
            "grid,grid_shard,fused_uvm,3,3,128,4,0\n"
            "grid,grid_shard,fused_uvm,0,4,128,0,128\n"
            "grid,grid_shard,fused_uvm,1,3,128,4,128\n"
            "split,row_split,fused,3,4,16,,0\n"
            "split,row_split,fused,0,3,16,,0\n"
            "split,row_split,fused,1,3,16,,0\n"
            "few,row_wise,fused,0,1,4,0,0\n");
  const auto file = folder().file("plan.csv");
  ASSERT_TRUE(write_file(file, plan_csv(tables, placements, 4, 2).value()));
  EXPECT_EQ(text_of(file), plan_csv(tables, placements, 4, 2).value());
}

TEST(PlanCsv, RefusesWhatLiesNowhere) {
  const auto message = [](const TablePlacement& placement) {
    return plan_csv(std::vector{table_of("t", 9, 4)}, std::vector{placement}, 4, 2).error().message;
  };
  EXPECT_EQ(message({.type = Type::kRowSplit}), "table t: expected ranks for its rows, found none");
  EXPECT_EQ(message({.type = Type::kRowSplit, .ranks = {4}}),
            "table t: expected ranks from 0 to 3, found 4");
  EXPECT_EQ(message({.ranks = {0, 1}}), "table t: expected a rank per shard, 1 in all, found 2");
  EXPECT_EQ(plan_csv(std::vector{table_of("t", 9, 4)}, {}, 4, 2).error().message,
            "expected placements of 1 tables, found 0");
}

}  // namespace sharding_plan_export_test
}  // namespace perfmodel::sharding
