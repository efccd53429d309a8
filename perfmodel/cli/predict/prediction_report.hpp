#pragma once

#include <optional>
#include <string>

#include "predict/prediction_report.hpp"

namespace perfmodel::cli {

/// "mlperf.json (built)".
std::string graph_title(const RankPrediction& rank);

/// "rank 3", or "2 x a100-sxm-80gb, half the pace".
std::string rank_title(const PredictionReport& report, std::size_t rank);

/// "mean 21.3 ms, 95 % of 1000 draws within 25.1 ms"; empty without stragglers.
std::string drawn_text(const PredictionReport& report);

/// Text for a screen of 40 lines: warnings, the step, its limit, and the first rows of the tables.
/// `top`: as many rows instead, however long that gets.
std::string short_prediction_text(const PredictionReport& report, std::optional<std::size_t> top,
                                  bool bold);

/// Everything, with at most `top` rows of the long tables.
std::string full_prediction_text(const PredictionReport& report, std::size_t top, bool bold);

/// Shares of the priced kernel time by the measurements behind the models, nearest first; empty if
/// no kernel was priced.
std::string basis_of_prices(const Prediction::Coverage& coverage);

}  // namespace perfmodel::cli
