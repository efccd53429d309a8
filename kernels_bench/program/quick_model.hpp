#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "../core/cases.hpp"
#include "perfmodel/predictors/gpu.hpp"

namespace kernels_bench {

/// Predicts a family's other points from its measured ones during the campaign.
///
/// log(time) = log(heuristic price) + r, r being the mean over the nearest measured points,
/// weighted by 1 / (0.25 + d)^2; d is the distance in octaves of the sizes, plus 3 for each kind
/// (op, type, layout) that differs. The uncertainty of log(time) is
///
///   sqrt(spread of r among the neighbours^2 + (0.08 d_nearest)^2)
///
/// A tool for choosing what to measure next; predictions come from `perfpredict train`.
class QuickModel {
 public:
  QuickModel(std::span<const Case> points, const perfmodel::Gpu& gpu);

  std::size_t size() const { return candidates_.size(); }
  double expected_us(std::size_t point) const;
  double uncertainty(std::size_t point) const;
  void add(std::size_t point, double time_us);

 private:
  static constexpr std::size_t kNeighbours = 5;
  struct Neighbour {
    float distance, residual;
  };
  struct Candidate {
    std::vector<float> sizes;  ///< log2, by column of the family's table
    std::vector<int> kinds;
    double heuristic_us = 0;
    std::array<Neighbour, kNeighbours> nearest{};
    std::size_t neighbours = 0;
  };

  static float distance(const Candidate& a, const Candidate& b);
  static double mean_residual(const Candidate& candidate);
  static void insert(Candidate& candidate, Neighbour neighbour);

  std::vector<Candidate> candidates_;
};

}  // namespace kernels_bench
