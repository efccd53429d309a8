#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>

#include "tables/kernel_table.hpp"

namespace perfmodel::learned {
struct LearnedModel;
}

namespace perfmodel::training {

/// A measured kernel; borrows from its table.
struct Sample {
  const KernelRow* row = nullptr;
  const Gpu* gpu = nullptr;
  const std::string* op = nullptr;
  /// Another campaign measured more of this chip: its library's choices go into the chip's trees,
  /// this row only into those that all GPUs share.
  bool common_only = false;
  bool has_launch_cost = true;  ///< false: timed on the device alone
};

/// Settings for growing trees. `recipe_of` gives the recipe of the shipped models.
struct Recipe {
  int rounds = 250, chip_rounds = 250;
  int depth = 6;
  double eta = 0.08;
  double subsample = 0.7, columns = 0.7;
  double min_child_weight = 20;
  double lambda = 3;
  std::uint64_t seed = 1;
  bool has_chip_trees = true;
  /// The rows are one GPU's campaign, and the model is for that GPU: gaps between measured sizes
  /// count as fitted, and boards at their power limit are fitted as they are.
  bool one_gpu = false;
  bool monotone = false;  ///< prices that never fall as work grows, of the families that have a set
  double heuristic_power = 0.9;  ///< exponent of the heuristic's time in a monotone model
  /// Log ratios count as at most this far from 0: a few rows whose library chose a wrong kernel
  /// must not bend the trees.
  double most_log_ratio = std::numeric_limits<double>::infinity();
  /// Weight of a row at the campaign's launch floor, which only says "at most".
  double floor_weight = 0.05;
};

/// Convolutions need more and finer trees: libraries change between three algorithms. Experts need
/// fewer and coarser ones: a dozen layers were measured.
Recipe recipe_of(KernelFamily family);

/// For a planned campaign of one GPU: hundreds of rows, a percent of noise. One ensemble of many
/// small steps with small leaves; `common` and `chip` would be fitted on the same rows.
Recipe one_gpu_recipe();

/// For monotone models of boards that a planned campaign measured, of families that have a set.
/// Trees are shallow, since the heuristic's errors depend mostly on kinds. The better the
/// heuristic, the higher the power of its time; kept-out rows choose it (`train`).
Recipe monotone_recipe(double heuristic_power, int depth);
inline constexpr double kHeuristicPowers[] = {0.9, 0.7, 0.5};
inline constexpr int kMonotoneDepths[] = {3, 4};

/// Fits one model to samples of one family and dtype: launch costs of the campaign first, then
/// trees on log((time - dispatch) / heuristic). Rows at the campaign's floor only say "at most
/// floor - dispatch". Every GPU weighs the same. Intervals stay at 1 (see `calibrate`). `launches`:
/// the rows that launch costs are found in, if these are more than the ones to fit (small kernels).
Result<learned::LearnedModel> fit(std::span<const Sample> samples, const Recipe& recipe,
                                  std::span<const Sample> launches = {});

}  // namespace perfmodel::training
