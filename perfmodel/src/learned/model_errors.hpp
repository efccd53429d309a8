#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/accuracy.hpp"
#include "fields/result_field.hpp"
#include "tables/kernel_table.hpp"
#include "training/train.hpp"

/// Errors of a model file on measured kernels.
namespace perfmodel::training {

extern const ResultFields<ErrorSummary> kErrorSummaryFields;

/// Errors of the rows of one GPU or op, or of all; of times as measured.
struct ModelErrors {
  std::string name;
  ErrorSummary learned;
  double heuristic_mape = 0, roofline_mape = 0;
};
extern const ResultFields<ModelErrors> kModelErrorFields;

/// Errors of rows that a fit kept out.
struct KeptOut {
  std::string name;
  ErrorSummary errors;
  double coverage = 0;  ///< share of the rows above the launch floor that lie in low..high
};
KeptOut kept_out(const std::string& name, const Validation& validation);
extern const ResultFields<KeptOut> kKeptOutFields;

struct JudgedModel {
  std::string model;  ///< name of its file
  ModelErrors all;
  std::vector<ModelErrors> by_device, by_op;  ///< by name
  double coverage = 0;  ///< share of the rows above the launch floor that lie in low..high
  std::size_t coverage_rows = 0;
  std::size_t unknown_rows = 0;  ///< their families are not in the model file
  std::size_t unseen_rows = 0;   ///< their GPUs were not measured for the model
};

/// Judges a model file on the rows of all tables. Errors: from `read_kernel_table` and
/// `evaluate`.
Result<JudgedModel> judge_model(const std::vector<std::string>& tables,
                                const KernelTableOptions& reading,
                                const std::filesystem::path& model, const EvalOptions& options);

/// The members of a document of `eval`.
OrderedJson judged_model_json(const JudgedModel& judged);

/// "12.3 %"
std::string share_text(double share);

}  // namespace perfmodel::training
