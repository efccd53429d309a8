#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/accuracy.hpp"
#include "fit.hpp"

/// Options of a fit, and its report.
namespace perfmodel::training {

/// Which rows are fitted.
enum class RowChoice {
  kAll,
  kTrain,  ///< all except NeuSight's `llm` shapes
  /// NeuSight's own fitting set: `paper_train` = 1; of a GPU and op that has no such row, all rows.
  kPaper,
};

struct TrainOptions {
  std::optional<Recipe> recipe;  ///< else `recipe_of` the family, or `one_gpu_recipe`
  std::uint64_t seed = 1;        ///< for splits, and for trees without a recipe
  RowChoice rows = RowChoice::kAll;
  std::optional<KernelFamily> family;  ///< only this one
  bool validate = true;                ///< without, intervals are as wide as a factor of two
  bool leaves_gpus_out = true;         ///< else a factor of two for GPUs not measured
  bool tries_grid = false;             ///< rounds and depth by grouped validation first
  std::string card = "{}";  ///< JSON object: data, licence, command; error tables are added
  std::function<void(const std::string& what, int done, int total)> progress;
};

/// Predictions of kept-out rows; times as measured, launch cost included.
struct Validation {
  std::vector<double> measured_us, predicted_us;
  std::vector<std::string> gpus, ops;  ///< per row
  double coverage = 0;                 ///< share of rows above the launch floor inside low..high
  std::size_t coverage_rows = 0;

  ErrorSummary errors() const { return summary_of(measured_us, predicted_us); }
};

/// One GPU whose rows nothing was fitted on, rows above the launch floor, kernel times.
struct LeftOut {
  std::string gpu;
  Knowledge level = Knowledge::kNone;  ///< how near the remaining GPUs were
  ErrorSummary learned, heuristic, roofline;
  /// Best constant times another GPU's time of the same kernel, fitted on the very rows: best and
  /// mean over the other GPUs. Without kernels in common: no rows.
  ErrorSummary best_ratio;
  std::string best_ratio_gpu;
  std::map<std::string, double> ratio_mapes = {};  ///< by other GPU with kernels in common
  ErrorSummary scaled_roofline;  ///< the roofline times the best constant for the very rows
  double mean_ratio_mape = 0;
  double coverage = 0;  ///< inside the ranges that the other GPUs give
};

/// Counts one GPU's kept-out rows above the launch floor inside low..high.
struct RangeCheck {
  Knowledge level = Knowledge::kNone;
  std::string gpu;
  std::size_t rows = 0;
  double inside = 0;  ///< by the shipped intervals; for boards, by other kept-out rows'
  /// By intervals from other GPUs only; nothing if no other GPU was left out.
  std::optional<double> by_others;
};

struct ModelReport {
  std::string name;
  std::string file = {};  ///< `train_folder`: its name in the folder
  std::size_t rows = 0, fitted_rows = 0, gpus = 0;
  bool is_resumed = false;  ///< taken from a run that was cut off; its errors are in the card
  Recipe recipe;
  Validation random;   ///< 20 % of the rows; of one GPU's few rows all, a fifth at a time
  Validation grouped;  ///< 20 % of the shapes, on all GPUs
  std::vector<LeftOut> left_out;  ///< each GPU alone; empty for one GPU
  /// The same with all boards of its chip left out, or of its architecture, where that is more.
  std::vector<LeftOut> farther_left_out;
  std::vector<RangeCheck> ranges;  ///< nearest level first, then by GPU
};

}  // namespace perfmodel::training
