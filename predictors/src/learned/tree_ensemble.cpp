#include "tree_ensemble.hpp"

#include <algorithm>

namespace perfmodel::learned {
namespace {

const TreeEnsemble::Node* next(const TreeEnsemble::Node* node, const float* x) {
  return x[node->feature] < node->value ? node + 1 : node + node->right;
}

}  // namespace

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
  constexpr std::size_t kLanes = 8;
  std::fill(results.begin(), results.end(), base);
  std::size_t row = 0;
  for (; row + kLanes <= results.size(); row += kLanes) {
    const float* x = features.data() + row * stride;
    for (std::uint32_t root : roots) {
      const Node* node[kLanes];
      std::fill_n(node, kLanes, &nodes[root]);
      for (bool walking = true; walking;) {
        walking = false;
        for (std::size_t lane = 0; lane < kLanes; ++lane) {
          if (node[lane]->feature == kLeaf) continue;
          node[lane] = next(node[lane], x + lane * stride);
          walking = true;
        }
      }
      for (std::size_t lane = 0; lane < kLanes; ++lane) results[row + lane] += node[lane]->value;
    }
  }
  for (; row < results.size(); ++row) {
    results[row] = predict(features.subspan(row * stride, stride));
  }
}

std::size_t TreeEnsemble::feature_count() const {
  std::size_t count = 0;
  for (const Node& node : nodes) {
    if (node.feature != kLeaf) count = std::max<std::size_t>(count, node.feature + 1U);
  }
  return count;
}

}  // namespace perfmodel::learned
