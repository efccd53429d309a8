#include "tree_ensemble.hpp"

#include <algorithm>
#include <array>
#include <limits>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace perfmodel::learned {
namespace {

constexpr std::size_t kBlock = 64;  ///< rows whose features stay in the first-level cache
constexpr std::size_t kLanes = 16;  ///< walks at once; measured: 16 gains on 8, 32 is slower

/// Place of the child.
std::uint32_t step(const TreeWalker::Node& node, const float* x) {
  return node.left + static_cast<std::uint32_t>(!(x[node.feature] < node.threshold));
}

#if defined(__x86_64__)
using Node = TreeWalker::Node;

constexpr std::size_t kWidth = 8;

/// The values at which `kVectors` times `kWidth` rows arrive from a node after so many steps. All
/// paths are compared and the values selected from the leaves upwards: three gathers per step take
/// more than twice as long. `columns`: the rows' values of a feature, `kBlock` apart from the next
/// feature's.
template <int kSteps, std::size_t kVectors>
[[gnu::target("avx2"), gnu::always_inline]] inline void select_leaves(const Node* nodes,
                                                                      const float* leaf_values,
                                                                      std::uint32_t place,
                                                                      const float* columns,
                                                                      __m256 (&values)[kVectors]) {
  if constexpr (kSteps == 0) {
    for (__m256& value : values) value = _mm256_broadcast_ss(leaf_values + place);
  } else {
    const Node& node = nodes[place];
    __m256 right[kVectors];
    select_leaves<kSteps - 1>(nodes, leaf_values, node.left, columns, values);
    select_leaves<kSteps - 1>(nodes, leaf_values, node.left + 1U, columns, right);
    const __m256 threshold = _mm256_broadcast_ss(&node.threshold);
    const float* const x = columns + node.feature * kBlock;
    for (std::size_t i = 0; i < kVectors; ++i) {
      const __m256 is_left = _mm256_cmp_ps(threshold, _mm256_loadu_ps(x + kWidth * i), _CMP_GT_OQ);
      values[i] = _mm256_blendv_ps(right[i], values[i], is_left);
    }
  }
}

template <int kSteps, std::size_t kVectors>
[[gnu::target("avx2")]] void add_leaves(const Node* nodes, const float* leaf_values,
                                        const float* columns, float* sums) {
  __m256 values[kVectors];
  select_leaves<kSteps>(nodes, leaf_values, 0, columns, values);
  for (std::size_t i = 0; i < kVectors; ++i) {
    float* const sum = sums + kWidth * i;
    _mm256_storeu_ps(sum, _mm256_add_ps(_mm256_loadu_ps(sum), values[i]));
  }
}

template <int kSteps>
void add_leaves(const Node* nodes, const float* leaf_values, std::size_t rows, const float* columns,
                float* sums) {
  if (rows <= kWidth) return add_leaves<kSteps, 1>(nodes, leaf_values, columns, sums);
  if (rows <= 2 * kWidth) return add_leaves<kSteps, 2>(nodes, leaf_values, columns, sums);
  if (rows <= 3 * kWidth) return add_leaves<kSteps, 3>(nodes, leaf_values, columns, sums);
  if (rows <= 4 * kWidth) return add_leaves<kSteps, 4>(nodes, leaf_values, columns, sums);
  if (rows <= 6 * kWidth) return add_leaves<kSteps, 6>(nodes, leaf_values, columns, sums);
  add_leaves<kSteps, kBlock / kWidth>(nodes, leaf_values, columns, sums);
}

/// Adds a tree's leaves to the sums of some rows, and to further ones up to a whole block. Steps
/// beyond its depth stay on a leaf.
void add_leaves(const Node* nodes, const float* leaf_values, std::uint32_t depth, std::size_t rows,
                const float* columns, float* sums) {
  if (depth <= 3) return add_leaves<3>(nodes, leaf_values, rows, columns, sums);
  if (depth <= 4) return add_leaves<4>(nodes, leaf_values, rows, columns, sums);
  add_leaves<6>(nodes, leaf_values, rows, columns, sums);
}

/// Whether that is faster than walking through trees of up to this depth.
bool selects_leaves(std::uint32_t depth, std::size_t rows) {
  static const bool has_vectors = __builtin_cpu_supports("avx2");
  return has_vectors && (depth <= 4 ? rows >= 4 : depth <= 6 && rows >= 12);
}
#else
void add_leaves(const TreeWalker::Node*, const float*, std::uint32_t, std::size_t, const float*,
                float*) {}
bool selects_leaves(std::uint32_t, std::size_t) { return false; }
#endif

/// From rows of `stride` values to columns of `kBlock`.
void transpose(std::span<const float> rows, std::size_t stride, std::vector<float>& columns) {
  columns.resize(stride * kBlock);
  for (std::size_t row = 0; row * stride < rows.size(); ++row) {
    for (std::size_t i = 0; i < stride; ++i) columns[i * kBlock + row] = rows[row * stride + i];
  }
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
  std::vector<std::uint32_t> order;
  for (std::size_t i = 0; i < ensemble.roots.size(); ++i) {
    const std::size_t begin = ensemble.roots[i];
    const std::size_t end =
        i + 1 < ensemble.roots.size() ? ensemble.roots[i + 1] : ensemble.nodes.size();
    add_tree(std::span(ensemble.nodes).subspan(begin, end - begin), order);
  }
}

void TreeWalker::add_tree(std::span<const TreeEnsemble::Node> source,
                          std::vector<std::uint32_t>& order) {
  constexpr float kAllGoRight = -std::numeric_limits<float>::infinity();
  Tree tree{.root = static_cast<std::uint32_t>(nodes_.size())};
  if (source.size() == 1) {  // A lone root has nothing to its left: it is stored twice.
    nodes_.resize(nodes_.size() + 2, {kAllGoRight, 0, 0});
    leaf_values_.resize(nodes_.size(), source[0].value);
    trees_.push_back(tree);
    return;
  }
  nodes_.resize(nodes_.size() + source.size(), {kAllGoRight, 0, 0});
  leaf_values_.resize(nodes_.size(), 0);
  Node* const nodes = nodes_.data() + tree.root;
  // The places in the source, level by level; `known` nodes have one so far.
  order.resize(source.size());
  order[0] = 0;
  std::uint32_t known = 1;
  for (std::uint32_t place = 0, level_end = 1; place < known; ++place) {
    if (place == level_end) {
      ++tree.depth;
      level_end = known;
    }
    const std::uint32_t at = order[place];
    const TreeEnsemble::Node& node = source[at];
    if (node.feature == TreeEnsemble::kLeaf) {
      nodes[place].left = static_cast<std::uint16_t>(place - 1);
      leaf_values_[tree.root + place] = node.value;
      continue;
    }
    nodes[place] = {node.value, node.feature, static_cast<std::uint16_t>(known)};
    order[known++] = at + 1;
    order[known++] = at + node.right;
  }
  depth_ = std::max(depth_, tree.depth);
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
  std::vector<float> columns;
  for (std::size_t begin = 0; begin < results.size(); begin += kBlock) {
    const std::span<float> block = results.subspan(begin, std::min(kBlock, results.size() - begin));
    const auto rows = features.subspan(begin * stride, block.size() * stride);
    if (selects_leaves(depth_, block.size())) {
      transpose(rows, stride, columns);
      select(columns, block);
    } else {
      walk(rows, stride, block);
    }
  }
}

void TreeWalker::select(std::span<const float> columns, std::span<float> results) const {
  std::array<float, kBlock> sums;
  sums.fill(base_);
  for (const Tree& tree : trees_) {
    add_leaves(nodes_.data() + tree.root, leaf_values_.data() + tree.root, tree.depth,
               results.size(), columns.data(), sums.data());
  }
  std::copy_n(sums.begin(), results.size(), results.begin());
}

void TreeWalker::walk(std::span<const float> features, std::size_t stride,
                      std::span<float> results) const {
  const std::size_t whole = results.size() / kLanes * kLanes;
  std::fill(results.begin(), results.end(), base_);
  for (const Tree& tree : trees_) {  // several rows through one tree
    const Node* nodes = nodes_.data() + tree.root;
    const float* leaf_values = leaf_values_.data() + tree.root;
    for (std::size_t row = 0; row < whole; row += kLanes) {
      const float* x = features.data() + row * stride;
      std::array<std::uint32_t, kLanes> at{};
      for (std::uint32_t depth = tree.depth; depth > 0; --depth) {
        for (std::size_t lane = 0; lane < kLanes; ++lane) {
          at[lane] = step(nodes[at[lane]], x + lane * stride);
        }
      }
      for (std::size_t lane = 0; lane < kLanes; ++lane) {
        results[row + lane] += leaf_values[at[lane]];
      }
    }
  }
  for (std::size_t row = whole; row < results.size(); ++row) {
    results[row] = predict(features.subspan(row * stride, stride));
  }
}

}  // namespace perfmodel::learned
