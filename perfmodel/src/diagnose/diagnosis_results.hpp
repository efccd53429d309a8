#pragma once

#include <string>

#include "fields/result_field.hpp"
#include "perfmodel/diagnosis.hpp"

namespace perfmodel {

/// "step at batch 64: 412 ms, predicted 253 ms (223 ms to 281 ms): above".
std::string figure_words(const CheckedFigure& figure);

/// Names the next measurement, and its value by each of the first two causes.
std::string next_words(const RunDiagnosis& diagnosis);

/// The verdict in a sentence.
std::string verdict_words(const RunDiagnosis& diagnosis);

/// All of a diagnosis but the head of a document.
OrderedJson diagnosis_json(const RunDiagnosis& diagnosis);

extern const ResultFields<CauseFinding> kCauseFields;

}  // namespace perfmodel
