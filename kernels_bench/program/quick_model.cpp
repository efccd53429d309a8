#include "quick_model.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <string>

#include "../core/case_cells.hpp"
#include "../core/case_work.hpp"
#include "perfmodel/predictors/kernel.hpp"

namespace kernels_bench {
namespace {

constexpr float kKindDistance = 3;
constexpr double kSlope = 0.08;      // the residual's growth per octave
constexpr double kNothingKnown = 1;  // uncertainty without any measured point

double weight(float distance) { return 1 / std::pow(0.25 + distance, 2); }

}  // namespace

QuickModel::QuickModel(std::span<const Case> points, const perfmodel::Gpu& gpu) {
  std::map<std::string, std::size_t, std::less<>> size_columns, kind_columns;
  std::map<std::string, int, std::less<>> kind_numbers;
  const auto slot = [](auto& columns, std::string_view name) {
    return columns.emplace(std::string(name), columns.size()).first->second;
  };
  for (const Case& point : points) {
    Candidate& candidate = candidates_.emplace_back();
    for (const Cell& cell : cells_of(point)) {
      if (cell.is_size) {
        const std::size_t at = slot(size_columns, cell.column);
        candidate.sizes.resize(std::max(candidate.sizes.size(), at + 1), 0);
        candidate.sizes[at] = std::log2(std::max(1.0F, std::strtof(cell.text.c_str(), nullptr)));
      } else {
        const std::size_t at = slot(kind_columns, cell.column);
        candidate.kinds.resize(std::max(candidate.kinds.size(), at + 1), -1);
        candidate.kinds[at] =
            kind_numbers.emplace(cell.text, static_cast<int>(kind_numbers.size())).first->second;
      }
    }
    const auto price = perfmodel::KernelModels::heuristic().price(work_of(point, gpu), gpu);
    candidate.heuristic_us = std::max(0.5, price.time.count());
  }
  for (Candidate& candidate : candidates_) {
    candidate.sizes.resize(size_columns.size(), 0);
    candidate.kinds.resize(kind_columns.size(), -1);
  }
}

float QuickModel::distance(const Candidate& a, const Candidate& b) {
  float square = 0;
  for (std::size_t i = 0; i < a.sizes.size(); ++i) {
    square += (a.sizes[i] - b.sizes[i]) * (a.sizes[i] - b.sizes[i]);
  }
  float kinds = 0;
  for (std::size_t i = 0; i < a.kinds.size(); ++i) kinds += a.kinds[i] != b.kinds[i] ? 1.0F : 0.0F;
  return std::sqrt(square) + kKindDistance * kinds;
}

double QuickModel::mean_residual(const Candidate& candidate) {
  double sum = 0, weights = 0;
  for (std::size_t i = 0; i < candidate.neighbours; ++i) {
    const double w = weight(candidate.nearest[i].distance);
    sum += w * candidate.nearest[i].residual;
    weights += w;
  }
  return weights > 0 ? sum / weights : 0;
}

double QuickModel::expected_us(std::size_t point) const {
  const Candidate& candidate = candidates_[point];
  return candidate.heuristic_us * std::exp(mean_residual(candidate));
}

double QuickModel::uncertainty(std::size_t point) const {
  const Candidate& candidate = candidates_[point];
  if (candidate.neighbours == 0) return kNothingKnown;
  const double mean = mean_residual(candidate);
  double squares = 0, weights = 0;
  for (std::size_t i = 0; i < candidate.neighbours; ++i) {
    const double w = weight(candidate.nearest[i].distance);
    squares += w * std::pow(candidate.nearest[i].residual - mean, 2);
    weights += w;
  }
  return std::hypot(std::sqrt(squares / weights), kSlope * candidate.nearest[0].distance);
}

void QuickModel::insert(Candidate& candidate, Neighbour neighbour) {
  const auto by_distance = [](const Neighbour& a, const Neighbour& b) {
    return a.distance < b.distance;
  };
  auto& nearest = candidate.nearest;
  if (candidate.neighbours == kNeighbours) {
    if (!by_distance(neighbour, nearest.back())) return;
    nearest.back() = neighbour;
  } else {
    nearest[candidate.neighbours++] = neighbour;
  }
  for (std::size_t i = candidate.neighbours - 1; i > 0 && by_distance(nearest[i], nearest[i - 1]);
       --i) {
    std::swap(nearest[i], nearest[i - 1]);
  }
}

void QuickModel::add(std::size_t point, double time_us) {
  const Candidate& measured = candidates_[point];
  const auto residual = static_cast<float>(std::log(time_us / measured.heuristic_us));
  for (Candidate& candidate : candidates_) {
    insert(candidate, {distance(measured, candidate), residual});
  }
}

}  // namespace kernels_bench
