#pragma once

#include <Eigen/Core>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/random_sample.hpp"
#include "perfmodel/result.hpp"

/// Chooses k of n rows to measure on a new device (few-shot calibration).
namespace perfmodel {

/// One row per candidate.
using FeatureRows = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

/// min(k, n) different rows that cover the features, ascending: of k-means clusters the row nearest
/// to each centre. Columns are standardised (mean 0, deviation 1; constant ones do not count), so
/// their units do not matter; features over several decades are better given as logarithms.
///
/// Centres: k-means++ seeding (Arthur and Vassilvitskii 2007) and up to 25 Lloyd iterations on at
/// most max(5000, 4 k) rows drawn by `seed`; then every row joins its nearest centre. If there are
/// fewer different rows than k, the rows farthest from their centres fill up.
///
/// O(rows k d) per iteration. Errors: features that are not finite.
Result<std::vector<std::size_t>> kmeans_sample(const Eigen::Ref<const FeatureRows>& features,
                                               std::size_t k, std::uint64_t seed);

}  // namespace perfmodel
