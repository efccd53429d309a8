#include "trainer.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/each_name.hpp"
#include "left_out.hpp"

namespace perfmodel::training {

using learned::LearnedModel;

namespace {

std::string card_of(const ModelReport& report, const TrainOptions& options) {
  auto card = nlohmann::json::parse(options.card, nullptr, false);
  if (!card.is_object()) card = nlohmann::json::object();
  const auto round = [](double x) { return std::round(x * 1e4) / 1e4; };
  const auto& recipe = report.recipe;
  card["rows"] = {{"read", report.rows}, {"fitted", report.fitted_rows}};
  card["recipe"] = {
      {"rounds", recipe.rounds},
      {"chip_rounds", recipe.has_chip_trees ? recipe.chip_rounds : 0},
      PERFMODEL_VALUES(recipe, depth, eta, subsample, columns, min_child_weight, lambda, seed)};
  if (recipe.one_gpu) card["recipe"]["one_gpu"] = true;
  if (recipe.monotone) card["recipe"]["heuristic_power"] = recipe.heuristic_power;
  if (std::isfinite(recipe.most_log_ratio)) {
    card["recipe"]["most_log_ratio"] = recipe.most_log_ratio;
  }
  if (!options.validate) return card.dump();
  const auto kept = [&](const Validation& validation) {
    const ErrorSummary s = validation.errors();
    return nlohmann::json{{"rows", s.rows},
                          {"mape", round(s.mape)},
                          {"geomean_ape", round(s.geomean_ape)},
                          {"coverage", round(validation.coverage)}};
  };
  card["errors"] = {{"random_rows", kept(report.random)}, {"new_shapes", kept(report.grouped)}};
  for (const LeftOut& left : report.left_out) {
    card["errors"]["gpu_left_out"][left.gpu] = {{"rows", left.learned.rows},
                                                {"mape", round(left.learned.mape)},
                                                {"heuristic_mape", round(left.heuristic.mape)},
                                                {"roofline_mape", round(left.roofline.mape)},
                                                {"best_ratio_mape", round(left.best_ratio.mape)},
                                                {"coverage", round(left.coverage)},
                                                {"level", to_string(left.level)}};
  }
  for (const RangeCheck& check : report.ranges) {
    card["errors"]["in_range"][std::string(to_string(check.level))][check.gpu] =
        round(check.inside);
  }
  return card.dump();
}

class Trainer {
 public:
  Trainer(const Group& group, const TrainOptions& options) : group_(group), options_(options) {
    for (const Sample& sample : group.fitted) gpus_.emplace(sample.gpu->name, sample.gpu);
    sweeps_ = sweeps_of(group.fitted);
    report_.recipe = chosen_recipe(group, options);
    report_.gpus = gpus_.size();
  }

  Result<LearnedModel> run() {
    if (options_.tries_grid) {
      if (auto error = choose_recipe()) return Unexpected{*error};
    }
    if (report_.recipe.monotone && !options_.recipe) choose_monotone_recipe();
    PERFMODEL_TRY(model, fit_rows(group_.fitted, "fitting"));
    report_.name = model->name;
    report_.rows = group_.launches.size();
    report_.fitted_rows = group_.fitted.size();
    complete_ranges(*model);
    if (options_.validate) validate(*model);
    model->card = card_of(report_, options_);
    return model;
  }

  ModelReport take_report() { return std::move(report_); }

 private:
  Result<LearnedModel> fit_rows(const Samples& rows, const std::string& what) {
    if (options_.progress) {
      const int total = options_.validate
                            ? 2 + folds() + static_cast<int>(left_out_sets(gpus_, options_).size())
                            : 1;
      options_.progress(fmt::format("{} {}: {}", to_string(group_.family),
                                    learned::arithmetic_name(group_.dtype, group_.tf32), what),
                        done_++, total);
    }
    Samples launches;
    std::set<std::string> names;
    for (const Sample& sample : rows) names.insert(sample.gpu->name);
    for (const Sample& sample : group_.launches) {
      if (names.contains(sample.gpu->name)) launches.push_back(sample);
    }
    return fit(rows, report_.recipe, launches);
  }

  static constexpr std::uint64_t kParts = 5;

  bool is_kept_out(std::uint64_t key, std::uint64_t salt, int part = 0) const {
    return mix(key ^ mix(salt ^ report_.recipe.seed)) % kParts == static_cast<std::uint64_t>(part);
  }

  /// The unit that is kept out together with a row: its sweep, else the row `alone`.
  std::uint64_t unit_of(const Sample& sample, std::uint64_t alone) const {
    const std::uint64_t key = sweep_key(sample);
    return sweeps_.contains(key) ? key : alone;
  }

  /// How many fifths of the rows are kept out in turn: all if there are few rows or sweeps.
  int folds() const {
    constexpr std::size_t kMany = 5000, kManySweeps = 40;
    const bool few_rows = report_.recipe.one_gpu && group_.fitted.size() < kMany;
    const bool few_sweeps = !sweeps_.empty() && sweeps_.size() < kManySweeps;
    return few_rows || few_sweeps ? static_cast<int>(kParts) : 1;
  }

  std::optional<Error> choose_recipe() {
    const auto parts = split(group_.fitted, [&](std::size_t, const Sample& sample) {
      return is_kept_out(unit_of(sample, shape_key(sample)), 2);
    });
    const Recipe base = report_.recipe;
    double best = std::numeric_limits<double>::infinity();
    Recipe chosen = base;
    for (int depth : {4, base.depth}) {
      for (int rounds : {base.rounds / 2, base.rounds}) {
        report_.recipe = base;
        report_.recipe.depth = depth;
        report_.recipe.rounds = report_.recipe.chip_rounds = rounds;
        const auto model =
            fit_rows(parts.first, fmt::format("grid, depth {}, {} rounds", depth, rounds));
        if (!model) return model.error();
        const Validation kept = validation_of(outcomes_of(*model, parts.second), parts.second);
        const double error = kept.errors().mape;
        if (error < best) {
          best = error;
          chosen = report_.recipe;
        }
      }
    }
    report_.recipe = chosen;
    return std::nullopt;
  }

  /// By the mean error over the shapes of each fifth, fitted on the others; deeper trees and lower
  /// powers of the heuristic only where that gains.
  void choose_monotone_recipe() {
    double best = std::numeric_limits<double>::infinity();
    Recipe chosen = report_.recipe;
    for (const double power : kHeuristicPowers) {
      for (const int depth : kMonotoneDepths) {
        Recipe recipe = monotone_recipe(power, depth);
        recipe.seed = report_.recipe.seed;
        const double error = kept_out_error(recipe);
        constexpr double kGain = 0.97;
        if (error >= kGain * best) continue;
        best = error;
        chosen = recipe;
      }
    }
    report_.recipe = chosen;
  }

  double kept_out_error(const Recipe& recipe) const {
    double sum = 0;
    for (int part = 0; part < static_cast<int>(kParts); ++part) {
      const auto parts = split(group_.fitted, [&](std::size_t, const Sample& sample) {
        return is_kept_out(shape_key(sample), 3, part);
      });
      const auto model = fit(parts.first, recipe);
      if (!model) return std::numeric_limits<double>::infinity();
      sum += kernel_error(outcomes_of(*model, parts.second)) *
             static_cast<double>(parts.second.size());
    }
    return sum / static_cast<double>(group_.fitted.size());
  }

  /// If a part of the rows alone has nothing to fit (very few rows, one GPU at its power limit),
  /// its errors stay unknown and its intervals as wide as without validation.
  void validate(LearnedModel& model) {
    const KeptOutRows random = keep_random_rows_out();
    const KeptOutRows grouped = keep_shapes_out();
    KeptOutRows all = random;
    all.insert(all.end(), grouped.begin(), grouped.end());
    set_coverage(report_.random, random, all);
    set_coverage(report_.grouped, grouped, all);
    if (!all.empty()) intervals_of(model, Knowledge::kBoard) = board_intervals(all);
    leave_gpus_out(model);
    complete_ranges(model);
    for (const auto& [gpu, share] : cross_shares(all, all)) {
      report_.ranges.push_back({.level = Knowledge::kBoard,
                                .gpu = gpu,
                                .rows = share.rows,
                                .inside = share.value(),
                                .by_others = {}});
    }
    check_left_out_ranges(model, left_out_rows_, report_);
  }

  KeptOutRows keep_random_rows_out() {
    std::vector<Outcome> outcomes;
    Samples kept;
    for (int part = 0; part < folds(); ++part) {
      const auto parts = split(group_.fitted, [&](std::size_t i, const Sample& sample) {
        return is_kept_out(unit_of(sample, i), 1, part);
      });
      const auto fitted = fit_rows(parts.first, "random rows kept out");
      if (!fitted) continue;
      for (const Outcome& outcome : outcomes_of(*fitted, parts.second)) outcomes.push_back(outcome);
      kept.insert(kept.end(), parts.second.begin(), parts.second.end());
    }
    report_.random = validation_of(outcomes, kept);
    return rows_above_floor(outcomes, kept);
  }

  KeptOutRows keep_shapes_out() {
    const auto parts = split(group_.fitted, [&](std::size_t, const Sample& sample) {
      return is_kept_out(unit_of(sample, shape_key(sample)), 2);
    });
    const auto fitted = fit_rows(parts.first, "shapes kept out");
    if (!fitted) return {};
    const std::vector<Outcome> outcomes = outcomes_of(*fitted, parts.second);
    report_.grouped = validation_of(outcomes, parts.second);
    return rows_above_floor(outcomes, parts.second);
  }

  std::optional<Judged> judge(const LeftOutSet& set, const LearnedModel& whole) {
    auto parts = split(group_.fitted, [&](std::size_t, const Sample& sample) {
      return set.boards.contains(sample.gpu->name);
    });
    const Recipe recipe = report_.recipe;
    // No chip of the others is of this architecture, else.
    report_.recipe.has_chip_trees &= set.level != Knowledge::kNone;
    auto fitted = fit_rows(parts.first, fmt::format("{} left out", fmt::join(set.boards, ", ")));
    report_.recipe = recipe;
    if (!fitted) return std::nullopt;
    // The host's part is a fact of the campaign, not of the kernel.
    fitted->launch_costs = whole.launch_costs;
    Judged judged{.model = std::move(*fitted), .own = {}, .others = std::move(parts.first)};
    for (const Sample& sample : parts.second) judged.own[sample.gpu->name].push_back(sample);
    return judged;
  }

  void leave_gpus_out(LearnedModel& model) {
    if (has_one_architecture(gpus_)) model.unseen_trust = 0;  // other architectures are unknown
    std::map<Knowledge, std::vector<Judged>> by_level;
    for (const LeftOutSet& set : left_out_sets(gpus_, options_)) {
      if (auto judged = judge(set, model)) by_level[set.level].push_back(std::move(*judged));
    }
    for (auto& [level, all] : by_level) {
      const double trust = choose_trust(all);
      if (level == Knowledge::kNone) model.sibling_trust = model.unseen_trust = trust;
      if (level == Knowledge::kArchitecture) model.sibling_trust = trust;
      for (const Judged& judged : all) {
        for (const auto& [gpu, own] : judged.own) {
          const std::vector<Outcome> outcomes = outcomes_of(judged.model, own);
          LeftOut left = left_out_of(gpu, own, judged.others, outcomes);
          left.level = level;
          report_.farther_left_out.push_back(std::move(left));
          const KeptOutRows rows = rows_above_floor(outcomes, own);
          left_out_rows_[level].insert(left_out_rows_[level].end(), rows.begin(), rows.end());
        }
      }
    }
    for (const auto& [level, rows] : left_out_rows_) {
      intervals_of(model, level) =
          left_out_intervals(rows, all_rows(left_out_rows_), level == Knowledge::kArchitecture);
    }
    move_nearest(gpus_, report_);
  }

  const Group& group_;
  std::set<std::uint64_t> sweeps_;
  const TrainOptions& options_;
  ModelReport report_;
  Gpus gpus_;
  LeftOutRows left_out_rows_;
  int done_ = 0;
};

}  // namespace

Recipe chosen_recipe(const Group& group, const TrainOptions& options) {
  if (options.recipe) return *options.recipe;
  const Gpu& first = *group.fitted.front().gpu;
  const auto all = [&](auto is_like_first) {
    return std::ranges::all_of(group.fitted,
                               [&](const Sample& sample) { return is_like_first(*sample.gpu); });
  };
  const bool one_gpu = all([&](const Gpu& gpu) { return gpu.name == first.name; });
  const bool one_chip =
      all([&](const Gpu& gpu) { return learned::chip_of(gpu) == learned::chip_of(first); });
  Recipe recipe = one_chip && learned::monotone_set(group.family, group.dtype)
                      ? monotone_recipe(kHeuristicPowers[0], kMonotoneDepths[0])
                  : one_gpu ? one_gpu_recipe()
                            : recipe_of(group.family);
  recipe.seed = options.seed;
  return recipe;
}

Result<TrainedModel> train_group(const Group& group, const TrainOptions& options) {
  Trainer trainer(group, options);
  PERFMODEL_TRY(model, trainer.run());
  return TrainedModel{std::move(*model), trainer.take_report()};
}

}  // namespace perfmodel::training
