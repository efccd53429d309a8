#include "kernels/time_line.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace perfmodel {
namespace {

using Four = std::array<double, 4>;

constexpr double kHuber = 0.05;

double huber(double error) {
  const double size = std::abs(error);
  return size <= kHuber ? size * size / 2 : kHuber * (size - kHuber / 2);
}

Four shapes_at(const TimeLine& line, double bytes) {
  return {1, bytes / (bytes + line.simple_bytes), std::min(bytes / line.fill_bytes, 1.0), bytes};
}

/// Gaussian elimination of normal equations, whose diagonal is never 0.
Four solve(std::array<Four, 4> rows, Four right) {
  for (int i = 0; i < 4; ++i) {
    for (int r = 0; r < 4; ++r) {
      if (r == i || rows[i][i] == 0) continue;
      const double factor = rows[r][i] / rows[i][i];
      for (int c = i; c < 4; ++c) rows[r][c] -= factor * rows[i][c];
      right[r] -= factor * right[i];
    }
  }
  for (int i = 0; i < 4; ++i) right[i] /= rows[i][i];
  return right;
}

/// Least squares of relative errors with the weights; `used`: the shapes that may be there.
Four fit_shapes(const TimeLine& grid, std::span<const MeasuredSize> sizes,
                const std::vector<double>& weights, std::array<bool, 4> used) {
  std::array<Four, 4> rows{};
  Four right{};
  for (std::size_t k = 0; k < sizes.size(); ++k) {
    const Four shapes = shapes_at(grid, sizes[k].bytes);
    for (int i = 0; i < 4; ++i) {
      if (!used[i]) continue;
      right[i] += weights[k] * shapes[i] / sizes[k].us;
      for (int j = 0; j < 4; ++j) {
        if (used[j]) rows[i][j] += weights[k] * shapes[i] * shapes[j] / sizes[k].us / sizes[k].us;
      }
    }
  }
  for (int i = 0; i < 4; ++i) {
    rows[i][i] = used[i] ? rows[i][i] * (1 + 1e-9) : 1;  // sizes may not tell two shapes apart
  }
  return solve(rows, right);
}

double loss_of(const TimeLine& line, std::span<const MeasuredSize> sizes) {
  double loss = 0;
  for (const MeasuredSize& size : sizes) loss += huber(line.us(size.bytes) / size.us - 1);
  return loss;
}

/// The best line with these shapes on this grid point; nothing if a figure would be below 0.
std::optional<TimeLine> robust_line(TimeLine line, std::span<const MeasuredSize> sizes,
                                    std::array<bool, 4> used) {
  constexpr int kRounds = 4;
  std::vector<double> weights(sizes.size(), 1);
  for (int round = 0; round < kRounds; ++round) {
    const Four found = fit_shapes(line, sizes, weights, used);
    if (!std::ranges::all_of(found, [](double figure) { return figure >= 0; })) return std::nullopt;
    line.base = found[0], line.simple = found[1], line.fill = found[2], line.slope = found[3];
    for (std::size_t k = 0; k < sizes.size(); ++k) {
      const double error = std::abs(line.us(sizes[k].bytes) / sizes[k].us - 1);
      weights[k] = std::min(1.0, kHuber / std::max(error, 1e-12));
    }
  }
  return line;
}

}  // namespace

double TimeLine::us(double bytes) const {
  const Four shapes = shapes_at(*this, bytes);
  return base * shapes[0] + simple * shapes[1] + fill * shapes[2] + slope * shapes[3];
}

TimeLine fit_time_line(std::span<const MeasuredSize> sizes) {
  constexpr double kFirst = 4096, kLast = 1 << 30;
  TimeLine best;
  double least = std::numeric_limits<double>::infinity();
  for (double simple_bytes = kFirst; simple_bytes <= kLast; simple_bytes *= 2) {
    for (double fill_bytes = 16 * kFirst; fill_bytes <= kLast; fill_bytes *= 2) {
      for (const auto& [simple, fill] :
           {std::pair(true, true), {true, false}, {false, true}, {false, false}}) {
        const auto line = robust_line({.simple_bytes = simple_bytes, .fill_bytes = fill_bytes},
                                      sizes, {true, simple, fill, true});
        if (!line) continue;
        const double loss = loss_of(*line, sizes);
        if (loss < least * (1 - 1e-9)) best = *line, least = loss;
      }
    }
  }
  return best;
}

double bent_us(const TimeLine& line, std::span<const MeasuredSize> sizes, double bytes) {
  const auto ratio = [&](const MeasuredSize& size) { return size.us / line.us(size.bytes); };
  const auto next = std::ranges::lower_bound(sizes, bytes, {}, &MeasuredSize::bytes);
  if (next == sizes.begin()) return ratio(sizes.front()) * line.us(bytes);
  if (next == sizes.end()) return ratio(sizes.back()) * line.us(bytes);
  const MeasuredSize& before = *(next - 1);
  const double share = (bytes - before.bytes) / (next->bytes - before.bytes);
  return std::lerp(ratio(before), ratio(*next), share) * line.us(bytes);
}

double mean_error_percent(const TimeLine& line, std::span<const MeasuredSize> sizes) {
  double sum = 0;
  for (const MeasuredSize& size : sizes) sum += std::abs(line.us(size.bytes) / size.us - 1);
  return 100 * sum / static_cast<double>(std::max<std::size_t>(sizes.size(), 1));
}

std::optional<double> held_out_percent(std::span<const MeasuredSize> sizes, std::size_t stride) {
  if (sizes.size() / stride < 5) return std::nullopt;
  double sum = 0;
  for (std::size_t start = 0; start < stride; ++start) {
    std::vector<MeasuredSize> fitted, others;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      (i % stride == start ? fitted : others).push_back(sizes[i]);
    }
    const TimeLine line = fit_time_line(fitted);
    double errors = 0;
    for (const MeasuredSize& size : others) {
      errors += std::abs(bent_us(line, fitted, size.bytes) / size.us - 1);
    }
    sum += errors / static_cast<double>(others.size());
  }
  return 100 * sum / static_cast<double>(stride);
}

}  // namespace perfmodel
