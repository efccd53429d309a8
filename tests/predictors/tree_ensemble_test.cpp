#include "price/learned/tree_ensemble.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "training/booster.hpp"

namespace perfmodel {
namespace tree_ensemble_test {

using learned::TreeEnsemble;
using training::boost;
using training::boost_with_oracle;
using training::BoosterData;
using training::BoosterOptions;

constexpr std::size_t kColumns = 7;

/// Sizes in steps of a quarter, a column of kinds and one of small numbers: times with a bend, a
/// step, a product and noise.
BoosterData made_data(std::size_t rows) {
  BoosterData data{.columns = kColumns};
  std::mt19937 random(11);
  std::uniform_int_distribution<int> quarters(0, 63), kind(0, 3);
  std::normal_distribution<float> noise(0, 0.05F);
  for (std::size_t i = 0; i < rows; ++i) {
    std::vector<float> x(kColumns);
    for (float& value : x) value = static_cast<float>(quarters(random)) / 4;
    x[5] = static_cast<float>(kind(random));
    x[6] *= 1e-6F;
    data.labels.push_back(std::max(x[0], x[1]) / 8 + (x[2] < 5 ? 0.0F : 0.7F) + x[3] * x[4] / 100 +
                          0.2F * x[5] + noise(random));
    data.weights.push_back(0.5F + static_cast<float>(i % 3));
    data.features.insert(data.features.end(), x.begin(), x.end());
  }
  return data;
}

const BoosterOptions kOptions{.rounds = 60, .depth = 6, .eta = 0.2, .min_child_weight = 2};

/// Random rows, also beyond what was fitted; in every other one each value is a threshold of its
/// feature, or one of the threshold's neighbours.
std::vector<float> probes(std::size_t rows, const TreeEnsemble& trees) {
  std::vector<std::vector<float>> thresholds(kColumns);
  for (const auto& node : trees.nodes) {
    if (node.feature != TreeEnsemble::kLeaf) thresholds[node.feature].push_back(node.value);
  }
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::mt19937 random(5);
  std::uniform_real_distribution<float> value(-4, 24);
  std::vector<float> result;
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t column = 0; column < kColumns; ++column) {
      float x = value(random);
      const auto& known = thresholds[column];
      if (row % 2 == 1 && !known.empty()) {
        x = known[random() % known.size()];
        if (row % 6 == 3) x = std::nextafter(x, -kInfinity);
        if (row % 6 == 5) x = std::nextafter(x, kInfinity);
      }
      result.push_back(x);
    }
  }
  return result;
}

bool same_trees(const TreeEnsemble& a, const TreeEnsemble& b) {
  if (a.roots != b.roots || a.nodes.size() != b.nodes.size()) return false;
  for (std::size_t i = 0; i < a.nodes.size(); ++i) {
    const auto &x = a.nodes[i], &y = b.nodes[i];
    if (std::bit_cast<std::uint32_t>(x.value) != std::bit_cast<std::uint32_t>(y.value) ||
        x.feature != y.feature || x.right != y.right) {
      return false;
    }
  }
  return true;
}

TEST(TreeEnsemble, PredictsWhatXgboostPredictsToTheBit) {
  const BoosterData data = made_data(800);
  const auto trees = boost(data, kOptions);
  ASSERT_TRUE(trees.has_value()) << to_string(trees.error());
  constexpr std::size_t kRows = 2000;
  const std::vector<float> rows = probes(kRows, *trees);
  const auto oracle = boost_with_oracle(data, kOptions, rows);
  ASSERT_TRUE(oracle.has_value()) << to_string(oracle.error());
  ASSERT_TRUE(same_trees(*trees, oracle->trees));  // same input, same trees
  ASSERT_EQ(oracle->predictions.size(), kRows);
  EXPECT_EQ(trees->roots.size(), 60u);
  EXPECT_GT(trees->nodes.size(), 1000u);
  for (std::size_t row = 0; row < kRows; ++row) {
    const float ours = oracle->trees.predict(std::span(rows).subspan(row * kColumns, kColumns));
    ASSERT_EQ(std::bit_cast<std::uint32_t>(ours),
              std::bit_cast<std::uint32_t>(oracle->predictions[row]))
        << "row " << row << ": " << ours << " is not " << oracle->predictions[row];
  }
}

TEST(TreeEnsemble, ManyRowsAreOneRowAfterTheOther) {
  const auto trees = boost(made_data(500), kOptions);
  ASSERT_TRUE(trees.has_value());
  const std::vector<float> rows = probes(2000, *trees);
  for (const std::size_t count : {0U, 1U, 15U, 16U, 17U, 64U, 2000U}) {
    std::vector<float> results(count);
    trees->predict(rows, kColumns, results);
    for (std::size_t row = 0; row < count; ++row) {
      ASSERT_EQ(results[row], trees->predict(std::span(rows).subspan(row * kColumns, kColumns)));
    }
  }
}

TEST(TreeEnsemble, TheBaseIsTheWeightedMeanAndLeavesAreAddedToIt) {
  BoosterData data{.columns = 1, .features = {0, 1}, .labels = {1, 4}, .weights = {2, 1}};
  // One leaf per tree, no split: two rows weigh less than a child must.
  const auto trees = boost(data, {.rounds = 1, .min_child_weight = 100});
  ASSERT_TRUE(trees.has_value());
  EXPECT_FLOAT_EQ(trees->base, 2);
  EXPECT_EQ(trees->feature_count(), 0u);
  TreeEnsemble made{.base = 0.25F};
  made.nodes = {
      {.value = 3, .feature = 2, .right = 2}, {.value = 1}, {.value = 10}, {.value = 0.5F}};
  made.roots = {0, 3};
  EXPECT_EQ(made.feature_count(), 3u);
  EXPECT_EQ(made.predict(std::vector<float>{0, 0, 2.5F}), 1.75F);
  EXPECT_EQ(made.predict(std::vector<float>{0, 0, 3}), 10.75F);  // on the threshold: right
}

TEST(Booster, FollowsTheDataAndItsSeed) {
  const BoosterData data = made_data(800);
  const auto trees = boost(data, kOptions);
  BoosterOptions other = kOptions;
  other.seed = 2;
  const auto others = boost(data, other);
  ASSERT_TRUE(trees.has_value() && others.has_value());
  EXPECT_FALSE(same_trees(*trees, *others));
  double error = 0;
  for (std::size_t row = 0; row < data.rows(); ++row) {
    const std::span x = std::span(data.features).subspan(row * kColumns, kColumns);
    error += std::abs(static_cast<double>(trees->predict(x) - data.labels[row]));
  }
  EXPECT_LT(error / static_cast<double>(data.rows()), 0.1);  // labels spread over 3, noise 0.05
}

TEST(Booster, MonotoneFeaturesAreKept) {
  BoosterData data = made_data(800);
  BoosterOptions options = kOptions;
  options.monotone = {1, 0, 0, -1, 0, 0, 0};
  const auto trees = boost(data, options);
  ASSERT_TRUE(trees.has_value()) << to_string(trees.error());
  const std::vector<float> rows = probes(50, *trees);
  for (std::size_t row = 0; row < 50; ++row) {
    std::vector<float> up(rows.begin() + static_cast<std::ptrdiff_t>(row * kColumns),
                          rows.begin() + static_cast<std::ptrdiff_t>((row + 1) * kColumns));
    std::vector<float> down = up;
    float last_up = -1e9F, last_down = 1e9F;
    for (float x = -1; x < 18; x += 0.25F) {
      up[0] = x;
      down[3] = x;
      EXPECT_GE(trees->predict(up), last_up - 1e-4F);
      EXPECT_LE(trees->predict(down), last_down + 1e-4F);
      last_up = trees->predict(up);
      last_down = trees->predict(down);
    }
  }
}

}  // namespace tree_ensemble_test
}  // namespace perfmodel
