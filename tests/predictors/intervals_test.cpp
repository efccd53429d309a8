#include "training/intervals.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace perfmodel::training {
namespace intervals_test {

using learned::LevelIntervals;

LevelIntervals left_out(const KeptOutRows& rows, bool by_architecture = false) {
  return left_out_intervals(rows, rows, by_architecture);
}

/// 100 rows of a GPU whose kernels take 0.01 to 1 of `slowest` times their price.
KeptOutRows rows_of(const std::string& gpu, const std::string& architecture, double slowest,
                    int distance = 0, int count = 100) {
  KeptOutRows rows;
  for (int i = 1; i <= count; ++i) {
    rows.push_back({.gpu = gpu,
                    .architecture = architecture,
                    .distance = distance,
                    .ratio = slowest * i / count,
                    .unit = static_cast<std::uint64_t>(i)});
  }
  return rows;
}

KeptOutRows operator+(KeptOutRows a, const KeptOutRows& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST(Intervals, BoardsHaveTheirOwnQuantiles) {
  const LevelIntervals level = board_intervals(rows_of("a", "x", 2) + rows_of("b", "x", 4));
  // Ranks floor(101 x 0.05) and ceil(101 x 0.95) of 100.
  EXPECT_DOUBLE_EQ(level.of({"a"})[0].low, 2 * 0.05);
  EXPECT_DOUBLE_EQ(level.of({"a"})[0].high, 2 * 0.96);
  EXPECT_DOUBLE_EQ(level.of({"b"})[0].high, 4 * 0.96);
  EXPECT_EQ(level.of({"b"})[0].rows, 100);
  EXPECT_GT(level.any[0].high, 2);  // both together
  EXPECT_LT(level.any[0].high, 4 * 0.96);
}

TEST(Intervals, FewRowsOfABoardTakeThoseOfAllBoards) {
  const LevelIntervals level = board_intervals(rows_of("a", "x", 2) + rows_of("b", "x", 4, 0, 19));
  EXPECT_EQ(level.of({"b"})[0].high, level.any[0].high);
  EXPECT_EQ(level.of({"unknown"})[0].high, level.any[0].high);
}

TEST(Intervals, FartherDistancesAreNeverNarrower) {
  const LevelIntervals level = board_intervals(rows_of("a", "x", 8, 0) + rows_of("a", "x", 2, 1));
  EXPECT_DOUBLE_EQ(level.any[1].high, 8 * 0.96);
  EXPECT_DOUBLE_EQ(level.any[2].high, 8 * 0.96);  // nothing there: a factor of two would be less
  EXPECT_DOUBLE_EQ(level.any[2].low, std::min(0.5, level.any[1].low));
}

TEST(Intervals, ADistanceWithoutRowsWidensNoOther) {
  const LevelIntervals level = board_intervals(rows_of("a", "x", 1.1, 1));
  EXPECT_EQ(level.any[0].rows, 0);
  EXPECT_DOUBLE_EQ(level.any[0].high, 2);
  EXPECT_DOUBLE_EQ(level.any[1].high, 1.1 * 0.96);
}

TEST(Intervals, RowsOfOneSweepAreNearlyOneMeasurement) {
  KeptOutRows rows = rows_of("a", "x", 2);
  for (KeptOutRow& row : rows) row.unit %= 25;
  // Four rows each: they count as 100 / 1.6 rows, so 63.5 0.95 / 62.5 of them lie inside an end.
  EXPECT_DOUBLE_EQ(board_intervals(rows).any[0].high, 2 * 0.97);
  EXPECT_DOUBLE_EQ(board_intervals(rows).any[0].low, 2 * 0.04);
}

TEST(Intervals, GpusLeftOutWeighAlikeWhateverTheirRows) {
  const LevelIntervals level =
      left_out(rows_of("a", "x", 2, 0, 1000) + rows_of("b", "x", 2) + rows_of("c", "x", 2));
  EXPECT_NEAR(level.any[0].low, 2 * 0.05, 0.021);
  EXPECT_NEAR(level.any[0].high, 2 * 0.95, 0.021);
  EXPECT_EQ(level.any[0].rows, 1200);
}

TEST(Intervals, NoGpuLeftOutIsFarOutside) {
  // One of 20 GPUs takes three times as long: too few rows for the quantiles of all.
  KeptOutRows rows;
  for (int i = 0; i < 20; ++i) rows = rows + rows_of("gpu" + std::to_string(i), "x", i ? 2 : 6);
  const LevelIntervals level = left_out(rows);
  // Below lie the first rows of all; of its 12 rows outside the rest lie above.
  EXPECT_NEAR(level.any[0].high, 6 * 0.9, 0.121);
  EXPECT_GE(share_inside(rows_of("gpu0", "x", 6), level).value(), 0.88);
  EXPECT_TRUE(level.own.empty());
}

TEST(Intervals, OutsideOfTheFittedRangeAllLevelsCount) {
  const KeptOutRows level = rows_of("a", "x", 2) + rows_of("a", "x", 1, 1);
  const KeptOutRows all = level + rows_of("b", "y", 10, 1, 400) + rows_of("c", "y", 99);
  const LevelIntervals intervals = left_out_intervals(level, all, false);
  EXPECT_NEAR(intervals.any[0].high, 2 * 0.95, 0.021);
  EXPECT_NEAR(intervals.any[1].high, 10 * 0.9, 0.03);  // a and b weigh alike
}

TEST(Intervals, AnArchitectureHasItsOwn) {
  const LevelIntervals level =
      left_out(rows_of("a", "x", 2) + rows_of("b", "x", 3) + rows_of("c", "y", 6), true);
  ASSERT_EQ(level.own.size(), 1u);  // one GPU alone says nothing of its sibling
  EXPECT_LT(level.of({"x"})[0].high, 3);
  EXPECT_EQ(level.of({"y"})[0].high, level.any[0].high);
  EXPECT_GT(level.any[0].high, 4);
}

/// As `rows_of`, of a vendor.
KeptOutRows rows_by(const std::string& vendor, const std::string& gpu, double slowest) {
  KeptOutRows rows = rows_of(gpu, gpu, slowest);
  for (KeptOutRow& row : rows) row.vendor = vendor;
  return rows;
}

TEST(Intervals, AVendorHasItsOwnWhereNothingElseIsKnown) {
  const KeptOutRows rows = rows_by("v", "a", 2) + rows_by("v", "b", 2) + rows_by("w", "c", 9);
  const LevelIntervals level = left_out(rows);
  EXPECT_NEAR(level.of({"unknown", "unknown", "v"})[0].high, 2 * 0.95, 0.021);
  EXPECT_EQ(level.of({"w"})[0].high, level.any[0].high);  // one GPU alone
  EXPECT_EQ(share_inside(rows_by("v", "d", 2), level).inside,
            share_inside(rows_by("v", "a", 2), level).inside);
}

TEST(Intervals, ALevelWithRowsAtOneDistanceTakesTheOthersFromTheNextFartherOne) {
  std::array<LevelIntervals, kKnowledgeLevels> levels;
  levels[static_cast<std::size_t>(Knowledge::kBoard)] = board_intervals(rows_of("a", "x", 1.1));
  levels[static_cast<std::size_t>(Knowledge::kChip)] = left_out(rows_of("a", "x", 4, 2));
  levels[static_cast<std::size_t>(Knowledge::kArchitecture)] =
      left_out(rows_of("a", "x", 1.2) + rows_of("b", "x", 1.2) + rows_of("c", "y", 3), true);
  complete(levels);
  const LevelIntervals& chip = levels[static_cast<std::size_t>(Knowledge::kChip)];
  const LevelIntervals& architecture = levels[static_cast<std::size_t>(Knowledge::kArchitecture)];
  EXPECT_NEAR(chip.of({"x"})[0].high, 1.2 * 0.95, 0.013);  // not the two of a guess
  EXPECT_EQ(architecture.of({"x"})[0].high, chip.of({"x"})[0].high);
  EXPECT_GT(chip.of({"y"})[0].high, 2);
  EXPECT_NEAR(chip.of({"x"})[2].high, 4 * 0.95, 0.041);
}

TEST(Intervals, LevelsWithoutRowsTakeTheNextFartherOne) {
  std::array<LevelIntervals, kKnowledgeLevels> levels;
  levels[static_cast<std::size_t>(Knowledge::kBoard)] = board_intervals(rows_of("a", "x", 2));
  levels[static_cast<std::size_t>(Knowledge::kNone)] = left_out(rows_of("a", "x", 5));
  complete(levels);
  for (const Knowledge level : {Knowledge::kChip, Knowledge::kArchitecture, Knowledge::kNone}) {
    EXPECT_NEAR(levels[static_cast<std::size_t>(level)].any[0].high, 5 * 0.95, 0.051);
  }
}

TEST(Intervals, WithoutTwoBoardsOfAChipItsArchitecturesRangeCounts) {
  std::array<LevelIntervals, kKnowledgeLevels> levels;
  levels[static_cast<std::size_t>(Knowledge::kArchitecture)] = left_out(
      rows_of("a", "x", 2) + rows_of("b", "x", 2) + rows_of("c", "y", 9) + rows_of("d", "y", 9),
      true);
  complete(levels);
  const LevelIntervals& chip = levels[static_cast<std::size_t>(Knowledge::kChip)];
  EXPECT_NEAR(chip.of({"x"})[0].high, 2 * 0.95, 0.021);
  EXPECT_GT(chip.of({"y"})[0].high, 8);
  EXPECT_GT(chip.of({"z"})[0].high, 7);
}

TEST(Intervals, AFartherLevelIsNeverNarrower) {
  std::array<LevelIntervals, kKnowledgeLevels> levels;
  levels[static_cast<std::size_t>(Knowledge::kBoard)] = board_intervals(rows_of("a", "x", 5));
  levels[static_cast<std::size_t>(Knowledge::kNone)] = left_out(rows_of("a", "x", 2));
  complete(levels);
  EXPECT_DOUBLE_EQ(levels[static_cast<std::size_t>(Knowledge::kNone)].any[0].high, 5 * 0.96);
}

TEST(Intervals, SharesCountRowsByTheirOwnIntervals) {
  const KeptOutRows rows = rows_of("a", "x", 2) + rows_of("b", "x", 4);
  const Share share = share_inside(rows, board_intervals(rows));
  EXPECT_EQ(share.rows, 200u);
  EXPECT_EQ(share.inside, 184u);  // ranks 5 to 96 of each
}

}  // namespace intervals_test
}  // namespace perfmodel::training
