#pragma once

#include "fields/result_field.hpp"
#include "predict/prediction_report.hpp"

namespace perfmodel {

/// The answer of `predict`, without the keys that every document begins with.
OrderedJson prediction_json(const PredictionReport& report);

}  // namespace perfmodel
