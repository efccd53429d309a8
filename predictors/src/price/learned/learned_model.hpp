#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "features.hpp"
#include "perfmodel/predictors/kernel.hpp"
#include "tree_ensemble.hpp"

namespace perfmodel::learned {

/// GPUs with the same chip run the same kernels: boards of one chip differ in clocks, memory and
/// power only. Architecture and number of SMs name it: "ampere/108".
std::string chip_of(const Gpu& gpu);

/// A copy that lasts as long as the program, since prices keep names of models that may be gone.
std::string_view interned(std::string_view name);

/// Distinguishes products of fp32 tensors on units of lower precision (TF32) from products in fp32.
/// AMD's fp32 matrix units are exact: their products are fp32.
bool is_tf32(const KernelWork& work, const Gpu& gpu);

/// The arithmetic as it appears in names of files and models: "float32", "tf32", "bfloat16".
std::string_view arithmetic_name(DType dtype, bool tf32);

struct LearnedModel;
/// Name of its kernels: family and arithmetic, "gemm-bfloat16".
std::string kind_of(const LearnedModel& model);

struct Arithmetic {
  DType dtype = DType::kFloat32;
  bool tf32 = false;

  bool operator==(const Arithmetic&) const = default;
};
/// By such a name; nothing for another.
std::optional<Arithmetic> find_arithmetic(std::string_view name);

/// Copies and sets move bytes whatever they mean.
inline bool moves_bytes(KernelFamily family) {
  return family == KernelFamily::kCopy || family == KernelFamily::kSet;
}

/// Time that a campaign's timing adds to a kernel. A time between two events round one framework
/// call on an idle stream is
///
///   t = max(floor, dispatch + t_kernel)
///
/// floor [us]: the host's whole call; dispatch [us]: its part before the launch. Both belong to the
/// campaign, never to a kernel's price.
struct LaunchCost {
  std::string gpu, op;
  double floor_us = 0, dispatch_us = 0;

  double measured(double kernel_us) const { return std::max(floor_us, dispatch_us + kernel_us); }
};

/// Quantiles of measured / predicted that hold 90 % of kept-out rows (split-conformal).
struct Interval {
  double low = 1, high = 1;
  int rows = 0;
};

constexpr int kDistances = 3;
/// By distance from the fitted range: inside, up to one power of two outside, beyond.
using IntervalsByDistance = std::array<Interval, kDistances>;

/// Intervals of one level of knowledge: for any GPU, and for boards (level board), architectures
/// (level architecture) and vendors (other levels than board) with enough rows of their own.
struct LevelIntervals {
  struct Own {
    std::string of;
    IntervalsByDistance intervals;
  };
  IntervalsByDistance any;
  std::vector<Own> own;

  /// The intervals of the first name that has its own, else `any`.
  const IntervalsByDistance& of(std::initializer_list<std::string_view> names) const;
};

/// Correction from a few measured kernels of a new GPU (`perfpredict train --calibrate`): the mean
/// of a Gaussian process on their log(measured / predicted),
///
///   log ratio(x) = w . (1, intensity over balance, size) + sum_j a_j exp(-|x - x_j|^2 / 2)
///
/// over the measured kernels j; distances count along the axes of the fitted range, in powers of
/// two. Far from every measured kernel the linear terms are left.
struct Correction {
  static constexpr std::size_t kTerms = 3;
  struct Anchor {
    std::vector<double> at;  ///< x_j, one number per axis
    double weight = 0;       ///< a_j
  };
  std::string gpu;
  std::array<double, kTerms> weights{};
  std::vector<Anchor> anchors = {};
  int rows = 0;

  static std::array<double, kTerms> terms(const FeatureSet& set, const FeatureRow& row);
  static std::vector<double> axes(const FeatureSet& set, const FeatureRow& row);
  /// exp(-|x - y|^2 / 2)
  static double likeness(const std::vector<double>& x, const std::vector<double>& y);
  double log_ratio(const FeatureSet& set, const FeatureRow& row) const;
};

/// log(time / heuristic time) of one family in one arithmetic:
///
///   t = t_heuristic exp(s(d) [common(x) + chip(x, chip)])
///
/// common: trees over dimensionless features x, fitted on all GPUs alike. chip: trees over the same
/// features and the chip's number, fitted on the rest that `common` left, for measured chips;
/// others of their architecture use the most similar chip, both times `sibling_trust`, and the rest
/// use common alone times `unseen_trust`. Boards that were not measured have the device features of
/// the board that stands in for them (`chip_devices`). d: distance of x to the fitted range, in
/// powers of two; s(d) = 1 / (1 + d^2) leads back to the heuristic.
///
/// A monotone model never falls as work grows, if the heuristic does not:
///
///   t = t_heuristic exp(s (common(x) - (1 - p) log(min(max(t_heuristic, low), high))))
///
/// low, high [us]: the heuristic's times of the fitted rows. Between them t grows as the heuristic
/// to the power p, which leaves trees room to grow; beyond them as the heuristic itself. Sizes in x
/// (`monotone_set`) are constrained to grow, kinds are free, and s is below 1 only for unmeasured
/// kinds.
struct LearnedModel {
  std::string name;             ///< "gemm-learned"
  std::string_view price_name;  ///< the same, interned: `Price::model`; empty: made at each price
  KernelFamily family = KernelFamily::kGemm;
  DType dtype = DType::kFloat32;
  bool tf32 = false;  ///< then `dtype` is the tensors'
  struct Monotone {
    double power = 0.9;              ///< exponent of the heuristic's time
    double low_us = 1, high_us = 1;  ///< the heuristic's shortest and longest fitted time
  };
  std::optional<Monotone> monotone;  ///< nothing: free trees
  std::vector<std::string> feature_names;
  TreeEnsemble common, chip;
  std::vector<std::string> chips;  ///< number = place
  std::vector<std::string> gpus;   ///< boards that were measured
  /// Vendors of these boards: other vendors' libraries share nothing with the measured ones, so
  /// only the heuristic prices there. Empty: any vendor.
  std::vector<std::string> vendors;
  /// The fitted range: boxes of two powers of two along each axis of the family's features that
  /// held enough rows; coordinates in such steps. Marginal ranges would accept "k large" and "n
  /// large" together although no sweep had both.
  using Cell = std::array<std::int8_t, kMaxAxes>;
  static constexpr float kCellWidth = 2;
  static constexpr float kOtherKind = 2;  ///< distance of another kind
  using Cells = std::vector<Cell>;
  Cells common_cells;             ///< cells of the rows that `common` was fitted on
  std::vector<Cells> chip_cells;  ///< by chip
  const Cells& cells_of(int chip_number) const {
    return chip_number < 0 ? common_cells : chip_cells[static_cast<std::size_t>(chip_number)];
  }
  /// By chip: features of the device, of the first board with it that was measured. Trees see them
  /// in place of an unmeasured board's, for between boards they know nothing.
  std::vector<std::array<float, kDeviceFeatures>> chip_devices;
  std::array<LevelIntervals, kKnowledgeLevels> intervals;  ///< by `Knowledge`
  std::vector<LaunchCost> launch_costs;
  std::vector<Correction> corrections;
  /// Share of common(x) that counts for chips that were not measured, with another one of the
  /// architecture measured and without: what fits GPUs and architectures left out best. Nothing
  /// counts on another architecture where only one was measured.
  double sibling_trust = 0.5, unseen_trust = 0.5;
  std::string card;  ///< JSON text: data, licence, split, errors, seeds, command

  bool covers(Arithmetic of, const Gpu& gpu) const { return is_of(of) && knows_vendor(gpu); }
  bool is_of(Arithmetic of) const { return moves_bytes(family) || of == Arithmetic{dtype, tf32}; }
  /// Whether the kernel's family and arithmetic are the model's.
  bool is_of(const KernelWork& work, const Gpu& gpu) const {
    return work.family == family && is_of(Arithmetic{work.dtype, is_tf32(work, gpu)});
  }
  bool knows_vendor(const Gpu& gpu) const {
    return vendors.empty() || std::ranges::find(vendors, gpu.vendor) != vendors.end() ||
           std::ranges::find(corrections, gpu.name, &Correction::gpu) != corrections.end();
  }
  const FeatureSet& features() const {
    return *(monotone ? monotone_set(family, dtype) : feature_set(family, dtype));
  }
  int chip_index(const Gpu& gpu) const;  ///< -1: not measured
  /// Of the architecture that with the most similar number of SMs; -1 without any.
  int nearest_chip(const Gpu& gpu) const;
  Knowledge knowledge(const Gpu& gpu) const;

  /// The model's parts for one GPU, looked up once for many kernels.
  struct ForGpu {
    Knowledge knowledge = Knowledge::kNone;
    int chip = -1;       ///< -1: not measured
    int tree_chip = -1;  ///< or the one most like it of the architecture, -1 without any
    double trust = 1;    ///< share of common(x) that counts
    const IntervalsByDistance* intervals = nullptr;  ///< points into the model
  };
  ForGpu for_gpu(const Gpu& gpu) const;
  /// Completes a row's features: the chip's number, and its device where the board is another one.
  void add_chip(const ForGpu& known, FeatureRow& row) const;

  /// Distance of a row to the nearest box, along its farthest axis; 0 inside.
  float distance(const FeatureRow& row, int chip_number) const;
  /// Whether kernels of its kinds were measured, of any sizes.
  bool has_kinds_of(const FeatureRow& row, int chip_number) const;
  static Cell cell_of(const FeatureSet& set, const FeatureRow& row);
  static double trust(float distance);
  /// The part of log(time / heuristic time) in a monotone model that no tree has; else 0.
  double log_damping(double heuristic_us) const;

  /// From the heuristic's price of the same work. Nothing where the features need another shape.
  /// `distance_class`, if not null, gets the index into the intervals.
  bool refine(const KernelWork& work, const Gpu& gpu, Price& price,
              int* distance_class = nullptr) const;
  static int class_of(float distance) { return distance <= 0 ? 0 : distance <= 1 ? 1 : 2; }
  /// Launch cost of a measured GPU and op; null if no campaign timed them.
  const LaunchCost* launch_cost(std::string_view gpu, std::string_view op) const;
  /// The rest of `refine`, from the sums of both ensembles (`chip_sum` 0 where the chip was not
  /// measured): several rows may be walked through the trees together.
  int apply(float common_sum, float chip_sum, const ForGpu& known, const FeatureRow& row,
            const Gpu& gpu, Price& price) const;
};

}  // namespace perfmodel::learned
