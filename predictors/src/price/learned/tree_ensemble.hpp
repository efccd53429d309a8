#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace perfmodel::learned {

/// Regression trees as boosting makes them. All nodes lie in one array; the left child of a node is
/// the next one. Prediction: `base` plus one leaf of every tree, summed in tree order in float,
/// equal to XGBoost's to the bit.
class TreeEnsemble {
 public:
  struct Node {
    float value = 0;  ///< threshold of a split (left: x < value), or the leaf's value
    std::uint16_t feature = kLeaf;
    std::uint16_t right = 0;  ///< distance from this node to its right child
  };
  static constexpr std::uint16_t kLeaf = 0xFFFF;

  float base = 0;
  std::vector<Node> nodes;
  std::vector<std::uint32_t> roots;

  std::span<const Node> nodes_of(std::size_t tree) const;

  /// One row; `features` has at least `feature_count()` finite values.
  float predict(std::span<const float> features) const;

  /// Rows side by side: `features` is row-major with `stride` values per row; one result per row.
  /// To the bit what one row after the other gives (see TreeWalker).
  void predict(std::span<const float> features, std::size_t stride, std::span<float> results) const;

  std::size_t feature_count() const;
};

/// The same trees laid out for speed; a walker that is kept saves the layout per call. Results
/// equal the ensemble's to the bit.
///
/// The two children of a node are adjacent, so that a step is a comparison and an addition,
/// without a branch. Leaves lead to themselves: every walk takes as many steps as its tree is deep,
/// and several walks run interleaved, which hides the latency of their loads.
class TreeWalker {
 public:
  explicit TreeWalker(const TreeEnsemble& ensemble);

  bool empty() const { return trees_.empty(); }
  float predict(std::span<const float> features) const;
  void predict(std::span<const float> features, std::size_t stride, std::span<float> results) const;

  struct Node {
    float threshold = 0;
    std::uint16_t feature = 0;
    std::uint16_t left = 0;  ///< place in the tree; the right child is the next one
  };

 private:
  struct Tree {
    std::uint32_t root = 0;  ///< place of its first node
    std::uint32_t depth = 0;
  };
  /// `order`: memory of the call.
  void add_tree(std::span<const TreeEnsemble::Node> source, std::vector<std::uint32_t>& order);
  /// The answers of up to a block of rows, by vectors; `depth_` must allow it.
  void select(std::span<const float> columns, std::span<float> results) const;
  /// The same for trees of any depth.
  void walk(std::span<const float> features, std::size_t stride, std::span<float> results) const;

  float base_;
  std::uint32_t depth_ = 0;         ///< the deepest tree's
  std::vector<Node> nodes_;         ///< level by level, tree by tree
  std::vector<float> leaf_values_;  ///< by place of the leaf
  std::vector<Tree> trees_;
};

}  // namespace perfmodel::learned
