#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tables/kernel_table.hpp"
#include "train_options.hpp"

/// Fitting and judging kernel models as a user does it. Everything here is deterministic: same
/// tables, same options, same bytes.
namespace perfmodel::training {

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

/// Mean absolute errors of the rows of a GPU that did not correct a model.
struct JudgedCalibration {
  std::string gpu, model;
  std::size_t used = 0, others = 0;
  double before = 0, after = 0;
};
struct Calibration {
  std::size_t used = 0;               ///< rows of the corrections that were kept
  std::vector<std::string> left_out;  ///< "MODEL on GPU", whose correction does not help
  std::vector<JudgedCalibration> judged;
};
/// Measured kernels of new GPUs: adds a correction for each to the models of `base` and writes
/// them to `file`. With `points` above 0, k-means chooses so many rows of each model and GPU, and
/// the others judge; what a launch costs is found from all rows. A correction by which a row that
/// is left out of it comes out no better is not kept. Errors: no row of the models' families; no
/// row left to judge.
Result<Calibration> calibrate(const KernelTable& few, const std::filesystem::path& base,
                              const std::filesystem::path& file, std::size_t points = 0);

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
