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
/// Adds a tree's leaves to the sums of `kBlock` rows: the same steps eight rows at a time, in two
/// thirds of the time.
__attribute__((target("avx2"))) void add_leaves(const TreeWalker::Node* nodes,
                                                const float* leaf_values, std::uint32_t depth,
                                                const float* x, std::size_t stride, float* sums) {
  static_assert(sizeof(TreeWalker::Node) == 8);  // threshold; then feature, left from the low end
  constexpr std::size_t kWidth = 8, kVectors = kBlock / kWidth;
  const auto* const thresholds = reinterpret_cast<const float*>(nodes);
  const auto* const links = reinterpret_cast<const int*>(nodes) + 1;
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i row_size = _mm256_set1_epi32(static_cast<int>(stride));
  const __m256i low_half = _mm256_set1_epi32(0xFFFF);
  __m256i at[kVectors], row[kVectors];
#pragma GCC unroll 8
  for (std::size_t i = 0; i < kVectors; ++i) {
    const __m256i first = _mm256_set1_epi32(static_cast<int>(i * kWidth));
    at[i] = _mm256_setzero_si256();
    row[i] = _mm256_mullo_epi32(_mm256_add_epi32(lane, first), row_size);
  }
  for (; depth > 0; --depth) {
#pragma GCC unroll 8
    for (std::size_t i = 0; i < kVectors; ++i) {
      const __m256 threshold = _mm256_i32gather_ps(thresholds, at[i], 8);
      const __m256i link = _mm256_i32gather_epi32(links, at[i], 8);
      const __m256i place = _mm256_add_epi32(row[i], _mm256_and_si256(link, low_half));
      const __m256 value = _mm256_i32gather_ps(x, place, 4);
      const __m256 right = _mm256_cmp_ps(value, threshold, _CMP_NLT_UQ);  // -1 where it is so
      at[i] = _mm256_sub_epi32(_mm256_srli_epi32(link, 16), _mm256_castps_si256(right));
    }
  }
#pragma GCC unroll 8
  for (std::size_t i = 0; i < kVectors; ++i) {
    float* const sum = sums + i * kWidth;
    const __m256 leaf = _mm256_i32gather_ps(leaf_values, at[i], 4);
    _mm256_storeu_ps(sum, _mm256_add_ps(_mm256_loadu_ps(sum), leaf));
  }
}

bool adds_leaves_of_blocks() {
  static const bool has_gathers = __builtin_cpu_supports("avx2");
  return has_gathers;
}
#else
void add_leaves(const TreeWalker::Node*, const float*, std::uint32_t, const float*, std::size_t,
                float*) {}
bool adds_leaves_of_blocks() { return false; }
#endif

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
  for (std::size_t begin = 0; begin < results.size(); begin += kBlock) {
    const std::span<float> block = results.subspan(begin, std::min(kBlock, results.size() - begin));
    const std::size_t whole = block.size() / kLanes * kLanes;
    std::fill(block.begin(), block.end(), base_);
    for (const Tree& tree : trees_) {  // several rows through one tree
      const Node* nodes = nodes_.data() + tree.root;
      const float* leaf_values = leaf_values_.data() + tree.root;
      if (block.size() == kBlock && adds_leaves_of_blocks()) {
        add_leaves(nodes, leaf_values, tree.depth, features.data() + begin * stride, stride,
                   block.data());
        continue;
      }
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
