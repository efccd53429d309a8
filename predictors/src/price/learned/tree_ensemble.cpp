#include "tree_ensemble.hpp"

#include <algorithm>
#include <array>
#include <limits>

namespace perfmodel::learned {
namespace {

constexpr std::size_t kLanes = 16;  ///< walks at once; measured: 16 gains on 8, 32 is slower

/// Place of the child.
std::uint32_t step(const TreeWalker::Node& node, const float* x) {
  return node.left + static_cast<std::uint32_t>(!(x[node.feature] < node.threshold));
}

const TreeEnsemble::Node* next(const TreeEnsemble::Node* node, const float* x) {
  return x[node->feature] < node->value ? node + 1 : node + node->right;
}

}  // namespace

std::span<const TreeEnsemble::Node> TreeEnsemble::nodes_of(std::size_t tree) const {
  const std::size_t end = tree + 1 < roots.size() ? roots[tree + 1] : nodes.size();
  return std::span(nodes).subspan(roots[tree], end - roots[tree]);
}

float TreeEnsemble::predict(std::span<const float> features) const {
  float sum = base;
  for (std::uint32_t root : roots) {
    const Node* node = &nodes[root];
    while (node->feature != kLeaf) node = next(node, features.data());
    sum += node->value;
  }
  return sum;
}

void TreeEnsemble::predict(std::span<const float> features, std::size_t stride,
                           std::span<float> results) const {
  TreeWalker(*this).predict(features, stride, results);
}

std::size_t TreeEnsemble::feature_count() const {
  std::size_t count = 0;
  for (const Node& node : nodes) {
    if (node.feature != kLeaf) count = std::max<std::size_t>(count, node.feature + 1U);
  }
  return count;
}

TreeWalker::TreeWalker(const TreeEnsemble& ensemble) : base_(ensemble.base) {
  nodes_.reserve(ensemble.nodes.size());
  leaf_values_.reserve(ensemble.nodes.size());
  trees_.reserve(ensemble.roots.size());
  for (std::size_t i = 0; i < ensemble.roots.size(); ++i) {
    const std::size_t begin = ensemble.roots[i];
    const std::size_t end =
        i + 1 < ensemble.roots.size() ? ensemble.roots[i + 1] : ensemble.nodes.size();
    add_tree(std::span(ensemble.nodes).subspan(begin, end - begin));
  }
}

void TreeWalker::add_tree(std::span<const TreeEnsemble::Node> source) {
  constexpr float kAllGoRight = -std::numeric_limits<float>::infinity();
  Tree tree{.root = static_cast<std::uint32_t>(nodes_.size())};
  // One level after the other; `level` has the places in the source.
  std::vector<std::uint32_t> level = {0}, next_level;
  std::uint32_t place = 0;
  for (;; ++tree.depth) {
    const std::size_t children = place + level.size();
    next_level.clear();
    for (std::uint32_t at : level) {
      const TreeEnsemble::Node& node = source[at];
      if (node.feature != TreeEnsemble::kLeaf) {
        nodes_.push_back(
            {node.value, node.feature, static_cast<std::uint16_t>(children + next_level.size())});
        leaf_values_.push_back(0);
        next_level.insert(next_level.end(), {at + 1, at + node.right});
      } else {
        // A lone root has nothing to its left: it stands there twice.
        if (place == 0) {
          nodes_.push_back({kAllGoRight, 0, 0});
          leaf_values_.push_back(node.value);
          ++place;
        }
        nodes_.push_back({kAllGoRight, 0, static_cast<std::uint16_t>(place - 1)});
        leaf_values_.push_back(node.value);
      }
      ++place;
    }
    if (next_level.empty()) break;
    level.swap(next_level);
  }
  trees_.push_back(tree);
}

float TreeWalker::predict(std::span<const float> features) const {
  const float* x = features.data();
  float sum = base_;
  std::size_t tree = 0;
  for (; tree + kLanes <= trees_.size(); tree += kLanes) {  // one row through several trees
    std::array<std::uint32_t, kLanes> root, at{};
    std::uint32_t depth = 0;
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      root[lane] = trees_[tree + lane].root;
      depth = std::max(depth, trees_[tree + lane].depth);
    }
    for (; depth > 0; --depth) {
      for (std::size_t lane = 0; lane < kLanes; ++lane) {
        at[lane] = step(nodes_[root[lane] + at[lane]], x);
      }
    }
    for (std::size_t lane = 0; lane < kLanes; ++lane) sum += leaf_values_[root[lane] + at[lane]];
  }
  for (; tree < trees_.size(); ++tree) {
    const std::uint32_t root = trees_[tree].root;
    std::uint32_t at = 0;
    for (std::uint32_t depth = trees_[tree].depth; depth > 0; --depth) {
      at = step(nodes_[root + at], x);
    }
    sum += leaf_values_[root + at];
  }
  return sum;
}

void TreeWalker::predict(std::span<const float> features, std::size_t stride,
                         std::span<float> results) const {
  constexpr std::size_t kBlock = 64;  // rows whose features stay in the first-level cache
  for (std::size_t begin = 0; begin < results.size(); begin += kBlock) {
    const std::span<float> block = results.subspan(begin, std::min(kBlock, results.size() - begin));
    const std::size_t whole = block.size() / kLanes * kLanes;
    std::fill(block.begin(), block.end(), base_);
    for (const Tree& tree : trees_) {  // several rows through one tree
      const Node* nodes = nodes_.data() + tree.root;
      const float* leaf_values = leaf_values_.data() + tree.root;
      for (std::size_t row = 0; row < whole; row += kLanes) {
        const float* x = features.data() + (begin + row) * stride;
        std::array<std::uint32_t, kLanes> at{};
        for (std::uint32_t depth = tree.depth; depth > 0; --depth) {
          for (std::size_t lane = 0; lane < kLanes; ++lane) {
            at[lane] = step(nodes[at[lane]], x + lane * stride);
          }
        }
        for (std::size_t lane = 0; lane < kLanes; ++lane) {
          block[row + lane] += leaf_values[at[lane]];
        }
      }
    }
    for (std::size_t row = whole; row < block.size(); ++row) {
      block[row] = predict(features.subspan((begin + row) * stride, stride));
    }
  }
}

}  // namespace perfmodel::learned
