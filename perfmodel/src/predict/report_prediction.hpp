#pragma once

#include "perfmodel/result.hpp"
#include "predict/prediction_question.hpp"
#include "predict/prediction_report.hpp"

namespace perfmodel {

/// Predicts the ranks of a job, with everything that a report on it needs.
///
/// A trace brings its own host and the times of kernels that have no model. Alike ranks of a job
/// whose ranks differ are one entry of the report, with their number.
///
/// Errors: unknown names, errors of the readers and of predict_job. For unlike ranks: traces in the
/// place of graphs, lists of another length than the job has ranks, errors of predict_mixed_job.
Result<PredictionReport> report_prediction(const PredictionQuestion& question,
                                           const QuestionReaders& read);

}  // namespace perfmodel
