#pragma once

#include <array>
#include <cstddef>
#include <string_view>
#include <vector>

#include "perfmodel/predictors/kernel.hpp"

namespace perfmodel::learned {

inline constexpr std::size_t kMaxFeatures = 48;
inline constexpr std::size_t kMaxAxes = 7;
/// The last ones of every family describe the device alone.
inline constexpr std::size_t kDeviceFeatures = 6;
using FeatureRow = std::array<float, kMaxFeatures>;

struct FeatureSpec {
  std::string_view name;
  /// Axis of the fitted range: the sizes that a sweep chooses. Tails and alignments, which repeat,
  /// and figures that follow from sizes and device are no axes.
  bool is_axis = false;
  /// The axis counts kinds (a filter's height), not powers of two: another kind is far away.
  bool is_kind = false;
  /// 1: a size, with which the time may only grow (`monotone_set`).
  int monotone = 0;
  /// Trees do not see it: where few values were measured, it would name them instead of a size.
  bool is_range_only = false;
};

/// Dimensionless description of a kernel on a GPU, per family. Sizes count in powers of two,
/// relative to the GPU's: work per SM, waves, working set over L2, intensity over
/// machine balance; rates of the device per SM and clock. Names are part of model files.
struct FeatureSet {
  std::vector<FeatureSpec> specs;
  /// False if the work lacks the shape that the family's features need.
  bool (*fill)(const KernelWork& work, const Gpu& gpu, const Price& baseline, FeatureRow& row);
};

/// Null for families without learned models. Products of 8 and 4 bits have a set of their own.
const FeatureSet* feature_set(KernelFamily family, DType dtype = DType::kFloat32);

/// The set of models whose prices never fall as work grows: sizes, which are marked, and kinds,
/// which no size changes (pass, alignment, order of images, device). Null for families without one.
const FeatureSet* monotone_set(KernelFamily family, DType dtype = DType::kFloat32);

}  // namespace perfmodel::learned
