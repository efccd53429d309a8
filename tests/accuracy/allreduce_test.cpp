// Measured NCCL all-reduce tables (A100 with NVSwitch, V100 with NVLink mesh): the curves in
// data/topologies were fitted to the even rows, the odd ones judge.
#include <cstdio>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "accuracy_support.hpp"
#include "perfmodel/predictors/detail/collectives.hpp"

namespace perfmodel {
namespace allreduce_test {

struct Row {
  std::string gpu;
  int ranks = 0;
  double bytes = 0, us = 0;
};

/// Least squares on relative error: t = alpha + beta bytes.
std::pair<double, double> fit_line(const std::vector<Row>& rows) {
  double a = 0, b = 0, c = 0, x = 0, y = 0;  // normal equations
  for (const Row& row : rows) {
    const double one = 1 / row.us, size = row.bytes / row.us;
    a += one * one;
    b += one * size;
    c += size * size;
    x += one;
    y += size;
  }
  const double determinant = a * c - b * b;
  return {(c * x - b * y) / determinant, (a * y - b * x) / determinant};
}

TEST(AllReduce, OddRowsOfTheMeasuredTables) {
  const auto folder = accuracy::public_data();
  if (!folder) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  const auto file = *folder / "distributed" / "nccl_allreduce_single_node.json";
  if (!std::filesystem::exists(file)) GTEST_SKIP() << file << " does not exist";
  std::ifstream stream(file);
  const auto json = nlohmann::json::parse(stream);
  const auto& list = json.at("cases").at("rows");
  std::map<std::pair<std::string, int>, std::pair<std::vector<Row>, std::vector<Row>>> groups;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const Row row{list[i][0], list[i][1], list[i][2], list[i][4]};
    auto& [fitted, judged] = groups[{row.gpu, row.ranks}];
    (i % 2 == 0 ? fitted : judged).push_back(row);
  }
  struct Sum {
    double ours = 0, nccl = 0, line = 0, worst = 0;
    int count = 0;
    void print(const std::string& what) const {
      std::printf("%-7s %4d %8.2f %7.2f | %8.2f %8.2f\n", what.c_str(), count, ours / count, worst,
                  nccl / count, line / count);
    }
  };
  std::map<std::string, Sum> by_gpu;
  Sum all;
  std::printf("MAPE %% rows     ours   worst |     nccl  alpha+beta\n");
  for (const auto& [key, rows] : groups) {
    const auto& [name, ranks] = key;
    const auto topology =
        TopologyCatalog::builtin().find(name == "a100" ? "dgx-a100" : "dgx1-v100");
    ASSERT_TRUE(topology.has_value());
    const auto tuning = NcclTuning::make(nccl_tuning_input(*topology, {.ranks = ranks}, true));
    ASSERT_TRUE(tuning.has_value());
    const auto [alpha, beta] = fit_line(rows.first);
    Sum group;
    for (const Row& row : rows.second) {
      const auto result = collective_time(*topology, {.bytes = {row.bytes}, .ranks = ranks});
      ASSERT_TRUE(result.has_value());
      EXPECT_TRUE(result->in_range);
      const double error = std::abs(accuracy::error_percent(result->time.count(), row.us));
      const double nccl = tuning->time(tuning->best({row.bytes}), {row.bytes}).count();
      for (Sum* sum : {&group, &by_gpu[name], &all}) {
        ++sum->count;
        sum->ours += error;
        sum->worst = std::max(sum->worst, error);
        sum->nccl += std::abs(accuracy::error_percent(nccl, row.us));
        sum->line += std::abs(accuracy::error_percent(alpha + beta * row.bytes, row.us));
      }
    }
    group.print(name + " x" + std::to_string(ranks));
    EXPECT_LE(group.ours / group.count, 5) << name << " x" << ranks;
  }
  for (const auto& [name, sum] : by_gpu) {
    sum.print(name);
    EXPECT_LE(sum.ours / sum.count, 5) << name;
    EXPECT_LT(sum.ours, sum.nccl) << name;
    EXPECT_LT(sum.ours, sum.line) << name;
  }
  all.print("all");
}

}  // namespace allreduce_test
}  // namespace perfmodel
