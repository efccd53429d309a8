#include "intervals.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace perfmodel::training {
namespace {

using learned::Interval;
using learned::IntervalsByDistance;
using learned::LevelIntervals;

constexpr std::size_t kFewest = 20;         ///< rows that have quantiles of their own
constexpr std::size_t kFewestOutside = 50;  ///< the same of a GPU left out, beyond the fitted range
constexpr double kCorrelation = 0.2;        ///< between rows of one unit, estimate
constexpr double kTail = 0.05;              ///< share of rows below an interval, and above
/// Least share of each left-out GPU's rows that must be inside: the next GPU need not be like most.
constexpr double kLeastOfGpu = 0.88;
constexpr Interval kUnknown = {.low = 0.5, .high = 2, .rows = 0};

/// Ratios of rows, and how many units these are.
struct Ratios {
  std::vector<double> values;
  std::set<std::uint64_t> units;
};

/// The m rows of a unit say nearly the same: as many independent ones as their number over Kish's
/// design effect, 1 + (m - 1) correlation.
double independent_rows(const Ratios& ratios) {
  const auto rows = static_cast<double>(ratios.values.size());
  const double per_unit = rows / static_cast<double>(ratios.units.size());
  return rows / (1 + kCorrelation * (per_unit - 1));
}

/// Split-conformal: the quantiles between which 1 - 2 tail of further rows fall, ranks
/// ceil((n + 1) q) / n of n independent ones.
Interval quantiles(Ratios ratios) {
  std::vector<double>& values = ratios.values;
  std::ranges::sort(values);
  const auto rows = static_cast<double>(values.size());
  const double n = independent_rows(ratios);
  const double inside = std::min(1.0, (n + 1) * (1 - kTail) / n);
  const auto high = static_cast<std::size_t>(std::clamp(std::ceil(inside * rows), 1.0, rows)) - 1;
  return {.low = values[values.size() - 1 - high],
          .high = values[high],
          .rows = static_cast<int>(values.size())};
}

using RatiosByGpu = std::vector<std::vector<double>>;

/// The same of several GPUs that weigh alike.
Interval pooled_quantiles(const RatiosByGpu& by_gpu) {
  std::vector<std::pair<double, double>> weighted;  // ratio, weight
  for (const auto& values : by_gpu) {
    const double weight = 1 / static_cast<double>(values.size() * by_gpu.size());
    for (double value : values) weighted.emplace_back(value, weight);
  }
  std::ranges::sort(weighted);
  Interval interval{.low = weighted.back().first,
                    .high = weighted.back().first,
                    .rows = static_cast<int>(weighted.size())};
  double below = 0;
  bool has_low = false;
  for (const auto& [value, weight] : weighted) {
    below += weight;
    if (!has_low && below >= kTail) interval.low = value, has_low = true;
    if (below >= 1 - kTail) {
      interval.high = value;
      break;
    }
  }
  return interval;
}

/// Moves the ends apart until enough of one GPU's sorted rows are inside; first the end with more
/// rows outside.
void hold(Interval& interval, const std::vector<double>& sorted) {
  const auto low = std::ranges::lower_bound(sorted, interval.low);
  const auto high = std::ranges::upper_bound(sorted, interval.high);
  const auto below = static_cast<std::size_t>(low - sorted.begin());
  const auto above = static_cast<std::size_t>(sorted.end() - high);
  const auto allowed =
      static_cast<std::size_t>((1 - kLeastOfGpu) * static_cast<double>(sorted.size()));
  if (below + above <= allowed) return;
  const std::size_t may_below =
      std::min(below, std::max(allowed / 2, allowed - std::min(allowed, above)));
  const std::size_t may_above = std::min(above, allowed - may_below);
  interval.low = std::min(interval.low, sorted[may_below]);
  interval.high = std::max(interval.high, sorted[sorted.size() - 1 - may_above]);
}

void widen_to(Interval& interval, const Interval& other) {
  interval.low = std::min(interval.low, other.low);
  interval.high = std::max(interval.high, other.high);
}

using RatiosByDistance = std::array<Ratios, learned::kDistances>;

RatiosByDistance ratios_of(const KeptOutRows& rows) {
  RatiosByDistance ratios;
  for (const KeptOutRow& row : rows) {
    Ratios& at = ratios[row.distance];
    at.values.push_back(row.ratio);
    at.units.insert(row.unit);
  }
  return ratios;
}

/// A farther distance is never narrower than a nearer one that has rows.
void widen_farther(IntervalsByDistance& intervals) {
  for (std::size_t i = 1; i < intervals.size(); ++i) {
    if (intervals[i - 1].rows > 0) widen_to(intervals[i], intervals[i - 1]);
  }
}

/// A distance without intervals gets the intervals of `others`, else a factor of two.
IntervalsByDistance by_distance(
    const std::array<std::optional<Interval>, learned::kDistances>& given,
    const IntervalsByDistance* others) {
  IntervalsByDistance made;
  for (std::size_t i = 0; i < made.size(); ++i) {
    made[i] = given[i] ? *given[i] : others ? (*others)[i] : kUnknown;
    made[i].low = std::min(made[i].low, 1.0);
    made[i].high = std::max(made[i].high, 1.0);
  }
  widen_farther(made);
  return made;
}

IntervalsByDistance split_conformal(const KeptOutRows& rows, const IntervalsByDistance* others) {
  const RatiosByDistance ratios = ratios_of(rows);
  std::array<std::optional<Interval>, learned::kDistances> given;
  for (std::size_t i = 0; i < ratios.size(); ++i) {
    const bool is_enough = others ? independent_rows(ratios[i]) >= static_cast<double>(kFewest)
                                  : ratios[i].values.size() >= kFewest;
    if (is_enough) given[i] = quantiles(ratios[i]);
  }
  return by_distance(given, others);
}

std::map<std::string, KeptOutRows> split_by(const KeptOutRows& rows,
                                            std::string KeptOutRow::*name) {
  std::map<std::string, KeptOutRows> parts;
  for (const KeptOutRow& row : rows) parts[row.*name].push_back(row);
  return parts;
}

/// Ratios of the GPUs that have enough rows at a distance.
RatiosByGpu ratios_by_gpu(const KeptOutRows& rows, std::size_t distance) {
  RatiosByGpu by_gpu;
  for (const auto& [gpu, own] : split_by(rows, &KeptOutRow::gpu)) {
    Ratios ratios = std::move(ratios_of(own)[distance]);
    if (ratios.values.size() < (distance == 0 ? kFewest : kFewestOutside)) continue;
    std::ranges::sort(ratios.values);
    by_gpu.push_back(std::move(ratios.values));
  }
  return by_gpu;
}

IntervalsByDistance of_left_out_gpus(const KeptOutRows& rows, const KeptOutRows& all_levels,
                                     const IntervalsByDistance* others) {
  std::array<std::optional<Interval>, learned::kDistances> given;
  for (std::size_t i = 0; i < given.size(); ++i) {
    const RatiosByGpu by_gpu = ratios_by_gpu(i == 0 ? rows : all_levels, i);
    if (by_gpu.empty()) continue;
    given[i] = pooled_quantiles(by_gpu);
    for (const auto& sorted : by_gpu) {
      if (i == 0) hold(*given[i], sorted);
    }
  }
  return by_distance(given, others);
}

/// Adds intervals of the groups of which at least two GPUs were left out.
void add_own(const KeptOutRows& rows, const KeptOutRows& all_levels, std::string KeptOutRow::*group,
             LevelIntervals& level) {
  std::map<std::string, KeptOutRows> all = split_by(all_levels, group);
  for (const auto& [name, own] : split_by(rows, group)) {
    if (split_by(own, &KeptOutRow::gpu).size() < 2) continue;
    level.own.push_back({name, of_left_out_gpus(own, all[name], &level.any)});
  }
}

/// At one distance: no level is narrower than a nearer one that has rows.
void widen_farther_levels(std::array<LevelIntervals, kKnowledgeLevels>& levels,
                          std::size_t distance) {
  const LevelIntervals* nearer = nullptr;
  for (std::size_t i = levels.size(); i-- > 0;) {
    LevelIntervals& level = levels[i];
    if (nearer) {
      widen_to(level.any[distance], nearer->any[distance]);
      for (auto& own : level.own) {
        widen_to(own.intervals[distance], nearer->of({own.of})[distance]);
      }
    }
    if (level.any[distance].rows > 0) nearer = &level;
  }
}

void fill(IntervalsByDistance& intervals, const IntervalsByDistance& farther) {
  for (std::size_t i = 0; i < intervals.size(); ++i) {
    if (intervals[i].rows == 0 && farther[i].rows > 0) intervals[i] = farther[i];
  }
}

/// Distances without rows take the next farther level's intervals, by architecture or vendor if
/// that level has them so.
void fill(LevelIntervals& level, const LevelIntervals& farther) {
  for (const LevelIntervals::Own& entry : farther.own) {
    const bool has_own =
        std::ranges::find(level.own, entry.of, &LevelIntervals::Own::of) != level.own.end();
    if (!has_own) level.own.push_back({entry.of, level.any});
  }
  for (LevelIntervals::Own& own : level.own) fill(own.intervals, farther.of({own.of}));
  fill(level.any, farther.any);
}

}  // namespace

LevelIntervals board_intervals(const KeptOutRows& rows) {
  LevelIntervals level{.any = split_conformal(rows, nullptr), .own = {}};
  for (const auto& [gpu, own] : split_by(rows, &KeptOutRow::gpu)) {
    level.own.push_back({gpu, split_conformal(own, &level.any)});
  }
  return level;
}

LevelIntervals left_out_intervals(const KeptOutRows& rows, const KeptOutRows& all_levels,
                                  bool by_architecture) {
  LevelIntervals level{.any = of_left_out_gpus(rows, all_levels, nullptr), .own = {}};
  if (by_architecture) add_own(rows, all_levels, &KeptOutRow::architecture, level);
  if (split_by(rows, &KeptOutRow::vendor).size() > 1) {
    add_own(rows, all_levels, &KeptOutRow::vendor, level);
  }
  return level;
}

void complete(std::array<LevelIntervals, kKnowledgeLevels>& levels) {
  for (std::size_t distance = 0; distance < learned::kDistances; ++distance) {
    widen_farther_levels(levels, distance);
  }
  constexpr auto kBoard = static_cast<std::size_t>(Knowledge::kBoard);
  for (std::size_t i = 1; i < kBoard; ++i) fill(levels[i], levels[i - 1]);
  for (LevelIntervals& level : levels) {
    widen_farther(level.any);
    for (LevelIntervals::Own& own : level.own) widen_farther(own.intervals);
  }
}

Share share_inside(const KeptOutRows& rows, const LevelIntervals& level) {
  Share share{.rows = rows.size()};
  for (const KeptOutRow& row : rows) {
    const Interval& interval = level.of({row.gpu, row.architecture, row.vendor})[row.distance];
    share.inside += row.ratio >= interval.low && row.ratio <= interval.high;
  }
  return share;
}

}  // namespace perfmodel::training
