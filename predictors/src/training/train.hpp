#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/accuracy.hpp"
#include "fit.hpp"
#include "tables/kernel_table.hpp"

/// Fitting and judging kernel models as a user does it. Everything here is deterministic: same
/// tables, same options, same bytes.
namespace perfmodel::training {

/// Which rows are fitted.
enum class RowChoice {
  kAll,
  kTrain,  ///< all but NeuSight's `llm` shapes
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

struct TrainReport {
  std::vector<ModelReport> models;
  struct Skipped {
    std::string name;  ///< "gemm-bfloat16"
    std::size_t rows = 0;
    std::string reason;
  };
  std::vector<Skipped> skipped;                       ///< by `train_folder`
  std::map<std::string, std::size_t> other_families;  ///< measured rows that no model exists for
  std::size_t warm_rows = 0;                          ///< `l2_warm` = 1: never fitted
};

/// Names of the families that models exist for.
std::vector<std::string> learned_families();

/// Fits one model per family and dtype in the tables and writes them to `file` (whole or not at
/// all). With several models each finished one is kept next to `file`
/// (`FILE.<fingerprint>.partial`) until all are done: a run that was cut off goes on where it
/// stopped if rows and options are the same. Errors: no row with a time, no family that models
/// exist for.
Result<TrainReport> train(std::span<const KernelTable> tables, const TrainOptions& options,
                          const std::filesystem::path& file);

/// One file per family and arithmetic, `FAMILY-DTYPE.json` in an existing folder:
/// `LearnedModels::open` reads them as a folder's models, or as one GPU's in a folder named after
/// it. Families without enough rows (50) are skipped. Files are written after the last fit, each
/// whole or not at all. Errors: no family with enough rows.
Result<TrainReport> train_folder(std::span<const KernelTable> tables, const TrainOptions& options,
                                 const std::filesystem::path& folder);

/// Few measured kernels of one new GPU: adds a correction for it to the models of `base`.
Result<std::size_t> calibrate(const KernelTable& few, const std::filesystem::path& base,
                              const std::filesystem::path& file);

/// Error on a left-out GPU against the number of its kernels that were measured, by random and by
/// k-means choice: mean over `seeds`, lowest and highest. Counts that leave no kernel to judge have
/// no point; an error if none has one.
struct FewShotPointError {
  int points = 0;
  double mean = 0, low = 0, high = 0;
};
struct FewShotCurve {
  std::string gpu, sampling;
  std::vector<FewShotPointError> points;
};
Result<std::vector<FewShotCurve>> few_shot(std::span<const KernelTable> tables,
                                           const TrainOptions& options, const std::string& gpu,
                                           std::span<const int> counts, int seeds);

/// A model file judged on a table; rows of families that it does not know are counted.
struct EvalReport {
  Validation rows;
  std::vector<double> heuristic_us, roofline_us;  ///< per row, kernel times
  std::size_t unknown_rows = 0;
  std::size_t unseen_rows = 0;  ///< rows of GPUs that were not measured for the model
};
struct EvalOptions {
  bool only_llm = false, only_train = false;
  double min_us = 0;
};
Result<EvalReport> evaluate(const KernelTable& table, const std::filesystem::path& model,
                            const EvalOptions& options);

}  // namespace perfmodel::training
