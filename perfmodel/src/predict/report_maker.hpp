#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "perfmodel/choose_overheads.hpp"
#include "perfmodel/detail/choose_kernel_models.hpp"
#include "perfmodel/predictors/topology.hpp"
#include "predict/prediction_question.hpp"
#include "predict/prediction_report.hpp"
#include "rewrites/rewrite_input.hpp"

namespace perfmodel {

/// Begins and ends the report of a question, whatever kind of ranks its job has.
class ReportMaker {
 protected:
  explicit ReportMaker(const PredictionQuestion& question) : question_(question) {
    report_.rewrites = rewrite_names(question.rewrites);
  }

  /// Kernel models and the topology that the question names, for so many ranks. `gpu`: a topology
  /// that is not built with it gets a warning. Errors: unknown names, a topology that is too small.
  Result<void> choose_models(std::int64_t ranks, const Gpu* gpu = nullptr);

  /// A rank of the report, still without its prediction.
  RankPrediction rank_of(const std::string& graph_file, ExecutionGraph graph,
                         const ChosenOverheads& host, double host_scale) const;

  /// Counts samples and work once the ranks are predicted. Errors: a model file that cannot be
  /// read.
  Result<void> finish(const PredictionQuestion::Iterations& iterations = {});

  bool communicates() const;
  std::string without_names(std::string text) const;
  void warn(std::string warning);  ///< once; of an empty text nothing

  const PredictionQuestion& question_;
  PredictionReport report_;
  ChosenKernelModels chosen_;
  std::optional<Topology> topology_;  ///< topology in the question
};

/// `report_prediction` of a job whose ranks differ.
Result<PredictionReport> report_mixed_job(const PredictionQuestion& question,
                                          const QuestionReaders& read);

}  // namespace perfmodel
