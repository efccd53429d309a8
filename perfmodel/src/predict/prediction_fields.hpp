#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fields/field.hpp"
#include "predict/prediction_question.hpp"

namespace perfmodel {

using PredictionField = Field<PredictionQuestion, bool, std::int64_t, std::vector<double>,
                              std::vector<std::string>, PredictionQuestion::Iterations>;
using UnlikeRanksField = Field<UnlikeRanks, std::uint64_t, std::vector<double>>;

/// The fields of a question that only `predict` has, in the order of its help.
std::span<const PredictionField> prediction_fields();
std::span<const UnlikeRanksField> unlike_ranks_fields();

/// Checks what a `PredictionQuestion` and the `AskOptions` of a `Predictor` say alike: `stages`,
/// `world`, `strategy` and `delay_allreduce`. Gives the name of the wrong field and what was
/// expected.
struct FieldProblem {
  std::string_view field;
  std::string message;
};
std::optional<FieldProblem> problem_of_ranks(std::int64_t world, std::int64_t stages,
                                             std::optional<ParallelStrategy> strategy,
                                             bool delay_allreduce);

/// Why a question has no answer.
struct QuestionProblem {
  std::string flag;     ///< "--world"
  std::string message;  ///< empty: the flag is missing
};
std::optional<QuestionProblem> problem_of(const PredictionQuestion& question);

}  // namespace perfmodel
