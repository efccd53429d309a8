#include "left_out.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>

namespace perfmodel::training {

using learned::LearnedModel;

namespace {

/// The strongest simple rival: another GPU's measured time of the same kernel times one constant.
void add_ratio_baseline(LeftOut& left, const Samples& own, const Samples& others) {
  std::map<std::string, std::map<std::uint64_t, double>> times;
  for (const Sample& sample : others) {
    times[sample.gpu->name][shape_key(sample)] = sample.row->measured_us;
  }
  double sum = 0;
  int count = 0;
  for (const auto& [gpu, by_shape] : times) {
    std::vector<double> x, measured;
    for (const Sample& sample : own) {
      const auto at = by_shape.find(shape_key(sample));
      if (at == by_shape.end()) continue;
      x.push_back(at->second);
      measured.push_back(sample.row->measured_us);
    }
    constexpr std::size_t kFewest = 20;
    if (x.size() < kFewest) continue;
    const auto ratio = best_constant_ratio(x, measured);
    if (!ratio) continue;
    for (double& value : x) value *= *ratio;
    const ErrorSummary summary = summary_of(measured, x);
    sum += summary.mape;
    ++count;
    left.ratio_mapes[gpu] = summary.mape;
    if (left.best_ratio.rows == 0 || summary.mape < left.best_ratio.mape) {
      left.best_ratio = summary;
      left.best_ratio_gpu = gpu;
    }
  }
  left.mean_ratio_mape = count ? sum / count : 0;
}

/// The share of a GPU's rows that is inside the intervals that the other GPUs give.
double coverage_by_others(const LearnedModel& model, const LeftOutRows& left_out, Knowledge level,
                          const std::string& gpu, const KeptOutRows& own) {
  const auto others = [&](const KeptOutRows& rows) {
    KeptOutRows kept;
    std::ranges::copy_if(rows, std::back_inserter(kept),
                         [&](const KeptOutRow& row) { return row.gpu != gpu; });
    return kept;
  };
  std::array<learned::LevelIntervals, kKnowledgeLevels> levels;
  constexpr auto kBoard = static_cast<std::size_t>(Knowledge::kBoard);
  levels[kBoard] = model.intervals[kBoard];
  learned::LevelIntervals& intervals = levels[static_cast<std::size_t>(level)];
  intervals = left_out_intervals(others(left_out.at(level)), others(all_rows(left_out)),
                                 level == Knowledge::kArchitecture);
  complete(levels);
  return share_inside(own, intervals).value();
}

}  // namespace

std::map<std::string, Share> cross_shares(const KeptOutRows& rows, const KeptOutRows& calibrating) {
  constexpr std::uint64_t kParts = 5;
  std::map<std::string, Share> shares;
  for (std::uint64_t part = 0; part < kParts; ++part) {
    const auto is_own = [&](const KeptOutRow& row) { return mix(row.unit) % kParts == part; };
    KeptOutRows others;
    std::ranges::remove_copy_if(calibrating, std::back_inserter(others), is_own);
    const learned::LevelIntervals intervals = board_intervals(others);
    for (const KeptOutRow& row : rows) {
      if (is_own(row)) shares[row.gpu].add(share_inside({row}, intervals));
    }
  }
  return shares;
}

LeftOut left_out_of(const std::string& gpu, const Samples& own, const Samples& others,
                    const std::vector<Outcome>& outcomes) {
  LeftOut left{.gpu = gpu};
  std::vector<double> measured, learned, heuristic, roofline;
  Samples above;
  for (std::size_t i = 0; i < own.size(); ++i) {
    if (!outcomes[i].above_floor) continue;
    above.push_back(own[i]);
    const KernelWork& work = own[i].row->work;
    measured.push_back(outcomes[i].kernel_us);
    learned.push_back(outcomes[i].price.time.count());
    heuristic.push_back(KernelModels::heuristic().price(work, *own[i].gpu).time.count());
    roofline.push_back(KernelModels::roofline().price(work, *own[i].gpu).time.count());
  }
  left.learned = summary_of(measured, learned);
  left.heuristic = summary_of(measured, heuristic);
  left.roofline = summary_of(measured, roofline);
  if (const auto constant = best_constant_ratio(roofline, measured)) {
    for (double& us : roofline) us *= *constant;
    left.scaled_roofline = summary_of(measured, roofline);
  }
  add_ratio_baseline(left, above, others);
  return left;
}

learned::LevelIntervals& intervals_of(LearnedModel& model, Knowledge level) {
  return model.intervals[static_cast<std::size_t>(level)];
}

void complete_ranges(LearnedModel& model) {
  for (learned::LevelIntervals& level : model.intervals) {
    for (learned::Interval& interval : level.any) {
      if (interval.rows == 0 && interval.low == 1 && interval.high == 1) {
        interval = {.low = 0.5, .high = 2, .rows = 0};
      }
    }
  }
  complete(model.intervals);
}

void set_coverage(Validation& kept, const KeptOutRows& rows, const KeptOutRows& all) {
  Share share;
  for (const auto& [gpu, own] : cross_shares(rows, all)) share.add(own);
  kept.coverage = share.value();
  kept.coverage_rows = share.rows;
}

bool has_one_architecture(const Gpus& gpus) {
  return std::ranges::all_of(gpus, [&](const auto& entry) {
    return entry.second->architecture.name == gpus.begin()->second->architecture.name;
  });
}

std::set<LeftOutSet> left_out_sets(const Gpus& gpus, const TrainOptions& options) {
  std::set<LeftOutSet> sets;
  if (gpus.size() < 2 || !options.leaves_gpus_out) return sets;
  for (const auto& [name, gpu] : gpus) {
    LeftOutSet board{{name}, Knowledge::kChip}, chip{{}, Knowledge::kArchitecture},
        architecture{{}, Knowledge::kNone};
    for (const auto& [other_name, other] : gpus) {
      if (learned::chip_of(*other) == learned::chip_of(*gpu)) chip.boards.insert(other_name);
      if (other->architecture.name == gpu->architecture.name) {
        architecture.boards.insert(other_name);
      }
    }
    if (chip.boards.size() > 1) sets.insert(board);
    if (architecture.boards.size() > chip.boards.size()) sets.insert(chip);
    if (architecture.boards.size() < gpus.size()) sets.insert(architecture);
  }
  return sets;
}

double choose_trust(std::vector<Judged>& all) {
  double best = std::numeric_limits<double>::infinity(), chosen = 0.5;
  for (double trust : {0.0, 0.25, 0.5, 0.75, 1.0}) {
    double sum = 0;
    for (Judged& judged : all) {
      judged.model.sibling_trust = judged.model.unseen_trust = trust;
      for (const auto& [gpu, own] : judged.own) {
        sum += kernel_error(outcomes_of(judged.model, own));
      }
    }
    if (sum < best) {
      best = sum;
      chosen = trust;
    }
  }
  for (Judged& judged : all) judged.model.sibling_trust = judged.model.unseen_trust = chosen;
  return chosen;
}

KeptOutRows all_rows(const LeftOutRows& left_out) {
  KeptOutRows all;
  for (const auto& [level, rows] : left_out) {
    all.insert(all.end(), rows.begin(), rows.end());
  }
  return all;
}

void check_left_out_ranges(const LearnedModel& model, const LeftOutRows& left_out,
                           ModelReport& report) {
  for (const Knowledge level : {Knowledge::kChip, Knowledge::kArchitecture, Knowledge::kNone}) {
    if (!left_out.contains(level)) continue;
    const KeptOutRows& all = left_out.at(level);
    std::set<std::string> names;
    for (const KeptOutRow& row : all) names.insert(row.gpu);
    for (const std::string& name : names) {
      KeptOutRows own;
      std::ranges::copy_if(all, std::back_inserter(own),
                           [&](const KeptOutRow& row) { return row.gpu == name; });
      const Share share = share_inside(own, model.intervals[static_cast<std::size_t>(level)]);
      RangeCheck check{.level = level,
                       .gpu = name,
                       .rows = share.rows,
                       .inside = share.value(),
                       .by_others = {}};
      if (names.size() > 1) check.by_others = coverage_by_others(model, left_out, level, name, own);
      for (auto* list : {&report.left_out, &report.farther_left_out}) {
        for (LeftOut& left : *list) {
          if (left.gpu != name || left.level != level) continue;
          left.coverage = check.by_others.value_or(0);
        }
      }
      report.ranges.push_back(check);
    }
  }
}

void move_nearest(const Gpus& gpus, ModelReport& report) {
  auto& farther = report.farther_left_out;
  for (const auto& [name, gpu] : gpus) {
    auto nearest = farther.end();
    for (auto at = farther.begin(); at != farther.end(); ++at) {
      const bool is_nearer = nearest == farther.end() || at->level > nearest->level;
      if (at->gpu == name && is_nearer) nearest = at;
    }
    if (nearest == farther.end()) continue;
    report.left_out.push_back(std::move(*nearest));
    farther.erase(nearest);
  }
}

}  // namespace perfmodel::training
