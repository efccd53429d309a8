#pragma once

#include <vector>

#include "perfmodel/predictors/kernel.hpp"

/// How many rows each of a layer's experts gets.
namespace perfmodel {

/// Experts with as many rows each.
struct LoadClass {
  double experts = 0;  ///< how many; may be broken, an expectation
  double rows = 0;     ///< per expert; at least 1
};

struct ExpertLoad {
  std::vector<LoadClass> classes;  ///< touched experts only
  double touched = 0;              ///< experts with at least one row
};

/// Loads of a layer's E experts, which share R = tokens x topk rows:
///
/// balanced: floor(R / E) rows each, some one more. Random: a token picks an expert with
/// probability topk / E, so that (1 - topk / E)^tokens of them get none; the others' rows spread
/// like a normal law with the variance of their mean. Power law: loads drawn as
/// ai-dynamo/aiconfigurator's collector does (recalled, not re-read; the times of its rows agree),
/// from the density x^-a between 1 and 0.8 tokens (0.01 and 2 where R <= E), scaled to R. Classes
/// are quantiles; a class with less than one row counts as experts touched with that probability.
ExpertLoad expert_load(const ExpertsShape& shape);

/// The largest load is `imbalance` times the mean; the other experts share the rest evenly.
ExpertLoad grouped_load(const GroupedGemmShape& shape);

}  // namespace perfmodel
