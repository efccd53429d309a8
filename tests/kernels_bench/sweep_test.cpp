#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "../scratch.hpp"
#include "kernels_bench/core/case_cells.hpp"
#include "kernels_bench/core/case_work.hpp"
#include "kernels_bench/families/family.hpp"
#include "tables/kernel_table.hpp"

namespace kernels_bench {
namespace sweep_test {

template <class T>
const T& as(const Case& point) {
  return std::get<T>(point);
}

class EveryFamily : public ::testing::TestWithParam<const char*> {
 protected:
  const Family& family() const { return *find_family(GetParam()); }
};

TEST_P(EveryFamily, PointsAreDifferentAndWithinLimits) {
  const Limits limits;
  std::set<std::string> names;
  for (const Case& point : sweep(family(), 1500, 1, limits)) {
    EXPECT_TRUE(names.insert(name_of(point)).second) << name_of(point);
    EXPECT_TRUE(within(point, limits)) << name_of(point);
    EXPECT_GE(footprint_bytes(point), 0);
  }
  const bool is_grid = family().name == "peaks" || family().name == "hashed";
  EXPECT_GT(names.size(), is_grid ? 200U : 1499U);
}

TEST_P(EveryFamily, LongerSweepBeginsWithTheShorterOne) {
  const auto few = sweep(family(), 50, 7, {}), many = sweep(family(), 200, 7, {});
  ASSERT_LE(few.size(), many.size());
  for (std::size_t i = 0; i < few.size(); ++i) EXPECT_EQ(name_of(few[i]), name_of(many[i]));
}

TEST_P(EveryFamily, SmallGpuGetsSmallerPoints) {
  Limits limits;
  limits.bytes = 1e9;
  for (const Case& point : sweep(family(), 300, 1, limits)) {
    EXPECT_LE(footprint_bytes(point), 1e9) << name_of(point);
  }
}

// As small as tests on a device draw them: fixed shapes that never fit must not be drawn for ever.
TEST_P(EveryFamily, TinyLimitsEnd) {
  const Limits limits = {.flop = 2e9, .bytes = 5e7, .traffic = 2e8};
  for (const Case& point : sweep(family(), 60, 1, limits)) {
    EXPECT_LE(footprint_bytes(point), limits.bytes) << name_of(point);
  }
}

TEST_P(EveryFamily, EveryCellHasItsColumn) {
  for (const Case& point : sweep(family(), 300, 1, {})) {
    for (const Cell& cell : cells_of(point)) {
      EXPECT_THAT(family().columns, ::testing::Contains(cell.column)) << name_of(point);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sweep, EveryFamily,
                         ::testing::Values("peaks", "gemm", "bmm", "embedding", "memory", "vector",
                                           "convolution", "hashed"));

TEST(Sweep, AnotherSeedDrawsOtherPoints) {
  const Family& family = *find_family("vector");
  const auto one = sweep(family, 100, 1, {}), two = sweep(family, 100, 2, {});
  std::size_t equal = 0;
  for (std::size_t i = 0; i < one.size(); ++i)
    equal += name_of(one[i]) == name_of(two[i]) ? 1U : 0U;
  EXPECT_LT(equal, 5U);
}

TEST(Sweep, GemmIsLogUniformWithOddAndAlignedSizes) {
  std::map<int, int> octaves;
  int odd = 0, aligned = 0, random = 0;
  for (const Case& point : sweep(*find_family("gemm"), 4000, 1, {})) {
    const auto& c = as<GemmCase>(point);
    ++octaves[static_cast<int>(std::log2(static_cast<double>(c.n)))];
    odd += c.n % 2 != 0;
    aligned += c.n % 8 == 0;
    ++random;
  }
  for (int octave = 4; octave < 14; ++octave) EXPECT_GT(octaves[octave], random / 40) << octave;
  EXPECT_GT(odd, random / 10);
  EXPECT_GT(aligned, random / 3);
}

TEST(Sweep, GemmHoldsTheLayersOfDlrms) {
  // Bottom MLP 13-512-256-128 of DLRM_MLPerf at batch 2048: forward with bias, fp32.
  const auto points = sweep(*find_family("gemm"), 12000, 1, {});
  const auto is_layer = [](const Case& point) {
    const auto& c = as<GemmCase>(point);
    return c.m == 2048 && c.n == 512 && c.k == 13 && c.bias && c.b_transposed &&
           c.dtype == DType::kFloat32;
  };
  EXPECT_TRUE(std::ranges::any_of(points, is_layer));
  EXPECT_EQ(points.size(), 12000U);
}

TEST(Sweep, EmbeddingHasEveryKind) {
  std::set<std::string> kinds;
  for (const Case& point : sweep(*find_family("embedding"), 1000, 1, {})) {
    const auto& c = as<EmbeddingCase>(point);
    std::string kind;
    for (const Cell& cell : cells_of(point)) {
      if (!cell.is_size) kind += cell.text + " ";
    }
    kinds.insert(kind);
    EXPECT_EQ(c.dim % 4, 0);
    EXPECT_GE(c.rows, 1000);
  }
  EXPECT_EQ(kinds.size(), 3U * 2 * 5);  // forward, SGD, Adagrad; fp32, fp16; five skews
}

TEST(Sweep, CampaignHasTheRowsOfThePlan) {
  std::map<std::string, std::size_t> points;
  for (const Family* family : families()) points[std::string(family->name)] = family->points;
  EXPECT_EQ(points["peaks"], sweep(*find_family("peaks"), 1000, 1, {}).size());
  EXPECT_EQ(points["gemm"], 12000U);
  EXPECT_EQ(points["bmm"], 6000U);
  EXPECT_EQ(points["embedding"], 6000U);
  EXPECT_EQ(points["memory"], 2500U);
  EXPECT_EQ(points["vector"], 6000U);
}

TEST(CaseCells, LayoutIsThatOfColumnMajorLibraries) {
  const GemmCase linear{.m = 8, .n = 4, .k = 2, .b_transposed = true, .bias = true};
  EXPECT_EQ(name_of(linear), "linear fp32 m=8 n=4 k=2 layout=tn");
  const GemmCase weight_gradient{.m = 8, .n = 4, .k = 2, .a_transposed = true};
  EXPECT_EQ(name_of(weight_gradient), "gemm fp32 m=8 n=4 k=2 layout=nt");
}

TEST(CaseWork, CountsFlopAndMemory) {
  static const perfmodel::Gpu gpu;
  const GemmCase gemm{.m = 8, .n = 4, .k = 2};
  EXPECT_EQ(work_of(gemm, gpu).flop.value, 2 * 8 * 4 * 2);
  EXPECT_EQ(footprint_bytes(gemm), 4 * (16 + 8 + 32));
  // 2 tables of 1000 x 16 rows, 3 bags of 5 lookups each, 8-byte indices, fp32 output.
  const EmbeddingCase bags{.tables = 2, .rows = 1000, .batch = 3, .pooling = 5, .dim = 16};
  EXPECT_EQ(footprint_bytes(bags), 2 * 1000 * 16 * 4 + 2 * 3 * 5 * 8 + 2 * 3 * 16 * 4);
  EXPECT_FALSE(moves_or_computes(PeakCase{.kind = PeakCase::Kind::kLaunch}));
}

template <class Words>
std::string join(const Words& words, std::string_view comma) {
  return fmt::format("{}", fmt::join(words, comma));
}

/// The points of a sweep as `kernels_bench plan -o` writes them.
std::filesystem::path write_points(const Family& family, const std::vector<Case>& points) {
  const auto file = perfmodel::test_support::scratch() / fmt::format("points_{}.csv", family.name);
  std::ofstream output(file);
  output << join(family.columns, ",") << '\n';
  for (const Case& point : points) {
    std::vector<std::string> row(family.columns.size());
    for (const Cell& cell : cells_of(point)) {
      row[static_cast<std::size_t>(std::ranges::find(family.columns, cell.column) -
                                   family.columns.begin())] = cell.text;
    }
    output << join(row, ",") << '\n';
  }
  return file;
}

// The reader of tables sees the same work as was measured.
TEST_P(EveryFamily, TablesReadBackAsTheSameWork) {
  if (family().name == "peaks") return;  // fixed costs and peaks are no kernels of models
  const std::filesystem::path folder = PERFMODEL_SOURCE_DIR "/data/gpus";
  const auto gpu = perfmodel::find_gpu("h100-sxm-80gb", folder);
  ASSERT_TRUE(gpu);
  const auto points = sweep(family(), 500, 1, {});
  const auto table = perfmodel::read_kernel_table(write_points(family(), points),
                                                  {.gpu_folder = folder, .dtype = "fp32"});
  ASSERT_TRUE(table) << to_string(table.error());
  ASSERT_EQ(table->rows.size(), points.size());
  for (std::size_t i = 0; i < points.size(); ++i) {
    const perfmodel::KernelWork read = perfmodel::for_gpu(table->rows[i].work, *gpu);
    const perfmodel::KernelWork ours = work_of(points[i], *gpu);
    const auto& models = perfmodel::KernelModels::heuristic();
    EXPECT_EQ(read.family, ours.family) << name_of(points[i]);
    EXPECT_EQ(read.dtype, ours.dtype) << name_of(points[i]);
    EXPECT_EQ(read.matrix_units, ours.matrix_units) << name_of(points[i]);
    EXPECT_EQ(read.flop.value, ours.flop.value) << name_of(points[i]);
    EXPECT_EQ(read.bytes_read.value, ours.bytes_read.value) << name_of(points[i]);
    EXPECT_EQ(read.bytes_written.value, ours.bytes_written.value) << name_of(points[i]);
    EXPECT_EQ(read.shape.index(), ours.shape.index()) << name_of(points[i]);
    EXPECT_EQ(models.price(read, *gpu).time, models.price(ours, *gpu).time) << name_of(points[i]);
  }
}

}  // namespace sweep_test
}  // namespace kernels_bench
