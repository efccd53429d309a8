#include "sampling.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

namespace perfmodel {
namespace {

using Eigen::Index;
using Random = std::mt19937_64;

constexpr std::size_t kRowsForCentres = 5000;
constexpr std::size_t kRowsPerCentre = 4;
constexpr int kIterations = 25;
constexpr Index kBlock = 256;  // rows per matrix product, which then stays in the cache

// As in random_sample.cpp: alike on every machine.
double share(Random& random) { return static_cast<double>(random() >> 11) * 0x1p-53; }

FeatureRows standardised(const Eigen::Ref<const FeatureRows>& features) {
  FeatureRows rows = features;
  for (Index column = 0; column < rows.cols(); ++column) {
    auto values = rows.col(column).array();
    const double largest = values.abs().maxCoeff();
    if (largest > 0) values /= largest;  // squares stay finite
    values -= values.mean();
    const double deviation = std::sqrt(values.square().mean());
    // Equal values leave rounding of their mean.
    if (deviation > 1e-12) {
      values /= deviation;
    } else {
      values.setZero();
    }
  }
  return rows;
}

/// Up to k centres: fewer if there are fewer different rows.
FeatureRows seeded_centres(const FeatureRows& rows, Index k, Random& random) {
  FeatureRows centres(k, rows.cols());
  Index chosen = static_cast<Index>(random_below(random, static_cast<std::size_t>(rows.rows())));
  centres.row(0) = rows.row(chosen);
  Eigen::VectorXd distance = (rows.rowwise() - centres.row(0)).rowwise().squaredNorm();
  for (Index centre = 1; centre < k; ++centre) {
    const double sum = distance.sum();
    if (!(sum > 0)) {
      centres.conservativeResize(centre, Eigen::NoChange);
      break;
    }
    double target = share(random) * sum;
    for (Index row = 0; row < rows.rows(); ++row) {
      if (distance[row] == 0) continue;
      chosen = row;
      target -= distance[row];
      if (target < 0) break;
    }
    centres.row(centre) = rows.row(chosen);
    distance =
        distance.cwiseMin((rows.rowwise() - centres.row(centre)).rowwise().squaredNorm().eval());
  }
  return centres;
}

/// The nearest centre of each row: |x - c|^2 - |x|^2 = |c|^2 - 2 x c.
std::vector<Index> nearest_centres(const FeatureRows& rows, const FeatureRows& centres) {
  const Eigen::RowVectorXd squares = centres.rowwise().squaredNorm().transpose();
  std::vector<Index> nearest(rows.rows());
  FeatureRows score;
  for (Index begin = 0; begin < rows.rows(); begin += kBlock) {
    const Index count = std::min(kBlock, rows.rows() - begin);
    score.noalias() = rows.middleRows(begin, count) * centres.transpose();
    score = (-2 * score).rowwise() + squares;
    for (Index row = 0; row < count; ++row) {
      score.row(row).minCoeff(&nearest[begin + row]);
    }
  }
  return nearest;
}

FeatureRows kmeans_centres(const FeatureRows& rows, Index k, Random& random) {
  FeatureRows centres = seeded_centres(rows, k, random);
  std::vector<Index> nearest;
  for (int iteration = 0; iteration < kIterations; ++iteration) {
    std::vector<Index> next = nearest_centres(rows, centres);
    if (next == nearest) break;
    nearest = std::move(next);
    FeatureRows sums = FeatureRows::Zero(centres.rows(), centres.cols());
    Eigen::VectorXd counts = Eigen::VectorXd::Zero(centres.rows());
    for (Index row = 0; row < rows.rows(); ++row) {
      const Index centre = nearest[row];
      sums.row(centre) += rows.row(row);
      counts[centre] += 1;
    }
    for (Index centre = 0; centre < centres.rows(); ++centre) {
      // A centre that lost its rows stays where it is.
      if (counts[centre] > 0) centres.row(centre) = sums.row(centre) / counts[centre];
    }
  }
  return centres;
}

}  // namespace

Result<std::vector<std::size_t>> kmeans_sample(const Eigen::Ref<const FeatureRows>& features,
                                               std::size_t k, std::uint64_t seed) {
  for (Index row = 0; row < features.rows(); ++row) {
    if (features.row(row).allFinite()) continue;
    return decline(fmt::format("row {}: expected finite features, found one that is not", row));
  }
  const auto n = static_cast<std::size_t>(features.rows());
  std::vector<std::size_t> chosen;
  if (k >= n) {
    chosen.resize(n);
    std::iota(chosen.begin(), chosen.end(), std::size_t{0});
    return chosen;
  }
  if (k == 0) return chosen;

  const FeatureRows rows = standardised(features);
  std::vector<std::size_t> subset =
      random_sample(n, std::max(kRowsForCentres, kRowsPerCentre * k), seed);
  std::sort(subset.begin(), subset.end());
  FeatureRows fitted(static_cast<Index>(subset.size()), rows.cols());
  for (std::size_t i = 0; i < subset.size(); ++i) {
    fitted.row(static_cast<Index>(i)) = rows.row(static_cast<Index>(subset[i]));
  }
  Random random(seed);
  const FeatureRows centres = kmeans_centres(fitted, static_cast<Index>(k), random);

  const std::vector<Index> nearest = nearest_centres(rows, centres);
  std::vector<double> distance(n);
  std::vector<std::size_t> best(centres.rows(), n);  // n: no row
  for (std::size_t row = 0; row < n; ++row) {
    distance[row] = (rows.row(static_cast<Index>(row)) - centres.row(nearest[row])).squaredNorm();
    std::size_t& holder = best[nearest[row]];
    if (holder == n || distance[row] < distance[holder]) holder = row;
  }
  std::vector<bool> taken(n, false);
  for (std::size_t row : best) {
    if (row == n) continue;
    taken[row] = true;
    chosen.push_back(row);
  }
  if (chosen.size() < k) {
    std::vector<std::size_t> rest;
    for (std::size_t row = 0; row < n; ++row) {
      if (!taken[row]) rest.push_back(row);
    }
    std::stable_sort(rest.begin(), rest.end(),
                     [&](std::size_t a, std::size_t b) { return distance[a] > distance[b]; });
    rest.resize(k - chosen.size());
    chosen.insert(chosen.end(), rest.begin(), rest.end());
  }
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

}  // namespace perfmodel
