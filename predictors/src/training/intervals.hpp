#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "price/learned/learned_model.hpp"

/// Ranges of prices from rows that were kept out of the fit (docs/kernel_models.md, "Ranges").
namespace perfmodel::training {

/// A kept-out row above the launch floor.
struct KeptOutRow {
  std::string gpu, architecture, vendor;
  int distance = 0;        ///< class of its distance to the fitted range
  double ratio = 1;        ///< kernel time / price
  std::uint64_t unit = 0;  ///< equal for rows that are nearly one measurement
};
using KeptOutRows = std::vector<KeptOutRow>;

/// Intervals of measured boards: split-conformal, each board's own quantiles, or all boards'
/// together if a board has fewer than 20 rows at a distance.
learned::LevelIntervals board_intervals(const KeptOutRows& rows);

/// Intervals of GPUs that were left out: quantiles of all of them, each with the same weight, moved
/// apart until 88 % of the rows of each GPU are inside. An architecture of which two were left out
/// has its own if asked for, and so has a vendor among several: libraries of another one say little
/// of how far off a GPU's prices are. Outside of the fitted range the price is mostly the
/// heuristic's and rows are few: there the intervals of all levels count, without the last step.
learned::LevelIntervals left_out_intervals(const KeptOutRows& rows, const KeptOutRows& all_levels,
                                           bool by_architecture);

/// At each distance: a level without rows takes the next farther one that has some, and none is
/// narrower than a nearer one.
void complete(std::array<learned::LevelIntervals, kKnowledgeLevels>& levels);

/// Counts of all rows and of rows inside their intervals, own intervals first.
struct Share {
  std::size_t rows = 0, inside = 0;
  double value() const {
    return rows > 0 ? static_cast<double>(inside) / static_cast<double>(rows) : 0;
  }
  void add(const Share& other) { rows += other.rows, inside += other.inside; }
};
Share share_inside(const KeptOutRows& rows, const learned::LevelIntervals& level);

}  // namespace perfmodel::training
