#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "price/kernel_work.hpp"
#include "price/learned/learned_model.hpp"

/// Made-up kernels and models to price them with, for tests and benchmarks of speed.
namespace perfmodel::test_support {

/// Kernels as training steps of DLRMs and transformers have them, of sizes spread evenly over
/// powers of two, in random order.
inline std::vector<KernelWork> kernel_mix(std::size_t count, unsigned seed = 1) {
  std::mt19937_64 random(seed);
  const auto size = [&](double low_log2, double high_log2) {
    return static_cast<std::int64_t>(
        std::exp2(std::uniform_real_distribution<>(low_log2, high_log2)(random)));
  };
  const auto real = [&](double low_log2, double high_log2) {
    return static_cast<double>(size(low_log2, high_log2));
  };
  const auto coin = [&] { return random() % 2 == 0; };
  std::vector<KernelWork> result;
  result.reserve(count);
  while (result.size() < count) {
    const DType dtype = coin() ? DType::kFloat32 : DType::kFloat16;
    const bool matrix_units = dtype == DType::kFloat16;
    const RowPass pass = coin() ? RowPass::kForward : RowPass::kBackward;
    switch (random() % 8) {
      case 0:
        result.push_back(
            gemm_work({.m = size(4, 13), .n = size(4, 13), .k = size(4, 13)}, dtype, matrix_units));
        break;
      case 1:
        result.push_back(gemm_work({.batch = size(1, 9),
                                    .m = size(4, 11),
                                    .n = size(4, 11),
                                    .k = size(4, 11),
                                    .b_transposed = coin()},
                                   dtype, matrix_units));
        break;
      case 2:
      case 3:
        result.push_back(elementwise_work(real(8, 28), coin() ? 1 : 2, coin() ? 1 : 20, dtype));
        break;
      case 4:
        result.push_back(softmax_work(size(5, 17), size(4, 12), pass, dtype));
        break;
      case 5:
        result.push_back(layer_norm_work(size(5, 17), size(6, 13), pass, dtype));
        break;
      case 6:
        result.push_back(embedding_forward_work({.batch = size(6, 13),
                                                 .num_tables = size(0, 6),
                                                 .num_rows = real(6, 25),
                                                 .dim = real(3, 8),
                                                 .pooling_factor = real(0, 6)}));
        break;
      default:
        result.push_back(memcpy_work(
            real(8, 28), {.kind = static_cast<CopyKind>(random() % 3), .pageable = coin()}));
    }
  }
  return result;
}

/// Trees that are full up to `depth`, except for a few leaves higher up.
inline learned::TreeEnsemble made_trees(std::size_t trees, int depth, std::size_t columns,
                                        unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> threshold(-4, 16), leaf(-0.01F, 0.01F);
  learned::TreeEnsemble result{.base = leaf(random)};
  const std::function<void(int)> grow = [&](int levels) {
    const std::size_t here = result.nodes.size();
    result.nodes.emplace_back();
    if (levels == 0 || (levels < depth && random() % 16 == 0)) {
      result.nodes[here].value = leaf(random);
      return;
    }
    result.nodes[here].feature = static_cast<std::uint16_t>(random() % columns);
    result.nodes[here].value = threshold(random);
    grow(levels - 1);
    result.nodes[here].right = static_cast<std::uint16_t>(result.nodes.size() - here);
    grow(levels - 1);
  };
  for (std::size_t i = 0; i < trees; ++i) {
    result.roots.push_back(static_cast<std::uint32_t>(result.nodes.size()));
    grow(depth);
  }
  return result;
}

/// A model with that many trees for all chips and again for A100's.
inline learned::LearnedModel made_model(KernelFamily family, DType dtype, std::size_t trees,
                                        int depth, unsigned seed = 1) {
  const learned::FeatureSet& set = *learned::feature_set(family, dtype);
  learned::LearnedModel model;
  model.family = family;
  model.dtype = dtype;
  model.name =
      learned::interned(std::string(to_string(family)) + "-" + std::string(to_string(dtype)));
  for (const auto& spec : set.specs) model.feature_names.emplace_back(spec.name);
  model.common = made_trees(trees, depth, set.specs.size(), seed);
  model.chip = made_trees(trees, depth, set.specs.size() + 1, seed + 1);
  model.chips = {"ampere/108"};
  model.gpus = {"a100-sxm-40gb"};
  for (std::int8_t a = 1; a < 5; ++a) {
    for (std::int8_t b = 1; b < 5; ++b) model.common_cells.push_back({a, b, 3, 0});
  }
  model.chip_cells = {model.common_cells};
  model.chip_devices = {{6, 1, 18, 1, 6, 0}};
  for (std::size_t level = 0; level < kKnowledgeLevels; ++level) {
    for (int i = 0; i < learned::kDistances;
         ++i) {  // wider by level and distance; exact in four digits
      const double steps = 0.5 * static_cast<double>(kKnowledgeLevels - 1 - level) + i;
      model.intervals[level].any[static_cast<std::size_t>(i)] = {0.875 - 0.125 * steps,
                                                                 1.125 + 0.25 * steps, 1000};
    }
  }
  return model;
}

}  // namespace perfmodel::test_support
