// Times of nccl-tests in one node (A100, H100, B200, GB200, RTX PRO 6000). The constants of the
// topologies' `nccl` were fitted to the fp16 rows of this very table (of all-to-all to those of
// int8, too), so the limits here say that they are priced as they were fitted, not how well they
// predict. docs/collectives.md has the errors of sizes that were left out of the fit.
#include <cstdio>
#include <map>
#include <memory>

#include "accuracy_support.hpp"
#include "perfmodel/predictors/detail/collective_model.hpp"
#include "perfmodel/predictors/detail/collectives.hpp"
#include "tables/kernel_table.hpp"

namespace perfmodel {
namespace {

constexpr double kMib = 1 << 20;

struct Mean {
  double sum = 0;
  int rows = 0;
  void add(double percent) {
    sum += std::abs(percent);
    ++rows;
  }
  double percent() const { return rows ? sum / rows : 0; }
};

/// Of one GPU; `other` without all-reduce, in which dgx-a100 follows the curves of another table.
struct Errors {
  Mean below, from, other_below, other_from;
  void add(double bytes, bool all_reduce, double percent) {
    (bytes < kMib ? below : from).add(percent);
    if (!all_reduce) (bytes < kMib ? other_below : other_from).add(percent);
  }
};

KernelTable measured_rows() {
  const auto gpus = std::filesystem::path(PERFMODEL_SOURCE_DIR) / "data" / "gpus";
  return read_kernel_table(*accuracy::public_data() / "silicon" / "nccl.csv.gz",
                           {.gpu_folder = gpus, .needs_time = true})
      .value();
}

const KernelModel& model_of(const Gpu& gpu) {
  static std::map<std::string, std::unique_ptr<KernelModel>> models;
  std::unique_ptr<KernelModel>& model = models[gpu.name];
  if (!model) {
    model = make_collective_model(topology_for(gpu));
  }
  return *model;
}

TEST(NcclTimes, RowsThatTheConstantsWereFittedTo) {
  if (!accuracy::public_data()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  std::map<std::pair<std::string, DType>, Errors> groups;
  const KernelTable table = measured_rows();
  ASSERT_EQ(table.rows.size(), 1332U);
  for (const KernelRow& row : table.rows) {
    const Gpu& gpu = table.gpus[static_cast<std::size_t>(row.gpu)];
    const auto& shape = std::get<CollectiveShape>(row.work.shape);
    const Price price = model_of(gpu).price(row.work, gpu);
    EXPECT_TRUE(price.in_range) << "row " << row.id;
    groups[{gpu.name, row.work.dtype}].add(
        std::max(row.work.bytes_read.value, row.work.bytes_written.value),
        shape.kind == "all_reduce", accuracy::error_percent(price.time.count(), row.measured_us));
  }
  ASSERT_EQ(groups.size(), 10U);
  std::printf("mean |error| %%               < 1 MiB  >= 1 MiB, without all-reduce\n");
  for (const auto& [key, errors] : groups) {
    const auto& [name, dtype] = key;
    std::printf("%-20s %-6s %8.1f %9.1f %6.1f %6.1f\n", name.c_str(),
                std::string(to_string(dtype)).c_str(), errors.below.percent(),
                errors.from.percent(), errors.other_below.percent(), errors.other_from.percent());
    const bool curves = name == "a100-sxm-80gb";
    EXPECT_LE(errors.below.percent(), 20) << name;
    EXPECT_LE((curves ? errors.other_from : errors.from).percent(), 8) << name;
  }
}

}  // namespace
}  // namespace perfmodel
