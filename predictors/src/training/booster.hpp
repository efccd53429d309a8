#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "perfmodel/result.hpp"
#include "price/learned/tree_ensemble.hpp"

namespace perfmodel::training {

struct BoosterOptions {
  int rounds = 200;
  int depth = 6;
  double eta = 0.1;
  double subsample = 0.8;
  double columns = 0.8;  ///< share of the features that a tree sees
  double min_child_weight = 5;
  double lambda = 1;
  std::uint64_t seed = 1;
  std::vector<int> monotone;  ///< per feature; empty: none
};

/// Row-major features with a label and a weight per row.
struct BoosterData {
  std::size_t columns = 0;
  std::vector<float> features, labels, weights;
  std::size_t rows() const { return labels.size(); }
};

/// Gradient-boosted trees on squared error by XGBoost, one thread, deterministic for a seed. Labels
/// are centred by their weighted mean, which becomes the ensemble's base. `on_round(done)` is
/// called after every round; returning false stops.
Result<learned::TreeEnsemble> boost(const BoosterData& data, const BoosterOptions& options);

/// The same model inside XGBoost, for tests of our own tree walker: predictions of `rows`.
struct OracleResult {
  learned::TreeEnsemble trees;
  std::vector<float> predictions;
};
Result<OracleResult> boost_with_oracle(const BoosterData& data, const BoosterOptions& options,
                                       std::span<const float> rows);

}  // namespace perfmodel::training
