#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace perfmodel::learned {

/// Regression trees as boosting makes them. All nodes lie in one array; the left child of a node is
/// the next one. Prediction: `base` plus one leaf of every tree, summed in tree order in float, which
/// is what XGBoost does to the bit.
class TreeEnsemble {
 public:
  struct Node {
    float value = 0;          ///< threshold of a split (left: x < value), or the leaf's value
    std::uint16_t feature = kLeaf;
    std::uint16_t right = 0;  ///< distance from this node to its right child
  };
  static constexpr std::uint16_t kLeaf = 0xFFFF;

  float base = 0;
  std::vector<Node> nodes;
  std::vector<std::uint32_t> roots;

  /// One row; `features` has at least `feature_count()` finite values.
  float predict(std::span<const float> features) const;

  /// Rows side by side: `features` is row-major with `stride` values per row; one result per row.
  /// Several walks run interleaved, which hides the latency of their loads.
  void predict(std::span<const float> features, std::size_t stride, std::span<float> results) const;

  std::size_t feature_count() const;
};

}  // namespace perfmodel::learned
