#include "train.hpp"

#include <fmt/format.h>

#include <Eigen/Dense>
#include <algorithm>
#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "price/learned/learned_model.hpp"
#include "price/learned/model_file.hpp"
#include "sampling.hpp"

namespace perfmodel::training {
namespace {

using learned::Interval;
using learned::LearnedModel;
using Samples = std::vector<Sample>;

bool has_model(const KernelWork& work) { return learned::feature_set(work.family) != nullptr; }

Sample sample_of(const KernelTable& table, const KernelRow& row) {
  return {.row = &row,
          .gpu = &table.gpus[static_cast<std::size_t>(row.gpu)],
          .op = &table.ops[static_cast<std::size_t>(row.op)],
          .has_launch_cost = table.has_launch_cost};
}

bool is_measured(const KernelRow& row) {
  return row.gpu >= 0 && !row.is_free && !row.is_l2_warm && row.measured_us > 0;
}

/// The rows of one model.
struct Group {
  KernelFamily family = KernelFamily::kGemm;
  DType dtype = DType::kFloat32;
  bool tf32 = false;
  Samples fitted, launches;
};

/// Marks the rows of chips that another table measured more of.
void mark_minor_campaigns(Group& group, std::span<const KernelTable> tables) {
  const auto table_of = [&](const Sample& sample) {
    for (std::size_t i = 0; i < tables.size(); ++i) {
      if (sample.row >= tables[i].rows.data() &&
          sample.row < tables[i].rows.data() + tables[i].rows.size()) {
        return i;
      }
    }
    return tables.size();
  };
  // Tables that share an op belong to one campaign only if they share no chip; ops are told apart.
  std::map<std::tuple<std::string, std::string, std::size_t>, std::size_t> counts;
  for (const Sample& sample : group.fitted) {
    ++counts[{learned::chip_of(*sample.gpu), *sample.op, table_of(sample)}];
  }
  for (Sample& sample : group.fitted) {
    const std::string chip = learned::chip_of(*sample.gpu);
    const std::size_t own = counts[{chip, *sample.op, table_of(sample)}];
    for (std::size_t table = 0; table < tables.size(); ++table) {
      const auto at = counts.find({chip, *sample.op, table});
      if (at != counts.end() && at->second > own) sample.common_only = true;
    }
  }
}

std::vector<Group> group_rows(std::span<const KernelTable> tables, const TrainOptions& options) {
  std::map<std::tuple<KernelFamily, DType, bool>, Group> groups;
  for (const KernelTable& table : tables) {
    std::set<std::pair<int, int>> has_paper_rows;  // of this GPU and op
    for (const KernelRow& row : table.rows) {
      if (row.paper_train) has_paper_rows.insert({row.gpu, row.op});
    }
    for (const KernelRow& row : table.rows) {
      if (!is_measured(row) || !has_model(row.work)) continue;
      if (options.family && row.work.family != *options.family) continue;
      const Gpu& gpu = table.gpus[static_cast<std::size_t>(row.gpu)];
      const bool tf32 = learned::is_tf32(row.work, gpu);
      Group& group = groups[{row.work.family, row.work.dtype, tf32}];
      group.family = row.work.family;
      group.dtype = row.work.dtype;
      group.tf32 = tf32;
      const bool is_fitted = options.rows == RowChoice::kAll              ? true
                             : options.rows == RowChoice::kTrain          ? !row.is_llm_shape
                             : has_paper_rows.contains({row.gpu, row.op}) ? row.paper_train
                                                                          : true;
      if (is_fitted) group.fitted.push_back(sample_of(table, row));
      if (is_fitted || !row.is_llm_shape) group.launches.push_back(sample_of(table, row));
    }
  }
  std::vector<Group> result;
  for (auto& [key, group] : groups) {
    if (group.fitted.empty()) continue;
    mark_minor_campaigns(group, tables);
    result.push_back(std::move(group));
  }
  return result;
}

std::uint64_t mix(std::uint64_t x) {  // splitmix64
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

/// Equal for the same kernel on every GPU.
std::uint64_t shape_key(const Sample& sample) {
  std::uint64_t key = std::hash<std::string>{}(*sample.op);
  const auto add = [&](double value) {
    key = mix(key ^ static_cast<std::uint64_t>(std::llround(value)));
  };
  const KernelWork& work = sample.row->work;
  add(work.bytes_read.value);
  add(work.bytes_written.value);
  add(work.flop.value);
  if (const auto* g = std::get_if<GemmShape>(&work.shape)) {
    for (auto size : {g->batch, g->m, g->n, g->k}) add(static_cast<double>(size));
  } else if (const auto* r = std::get_if<RowShape>(&work.shape)) {
    add(static_cast<double>(r->cols));
  } else if (const auto* c = std::get_if<ConvolutionShape>(&work.shape)) {
    for (auto size : {c->n, c->c, c->k, c->h, c->w, c->r, c->s, c->stride}) {
      add(static_cast<double>(size));
    }
    add(static_cast<double>(c->pass));
  } else if (const auto* e = std::get_if<EmbeddingShape>(&work.shape)) {
    for (double size : {e->num_rows, e->dim, e->pooling_factor, 1e3 * e->zipf_exponent}) add(size);
  } else if (const auto* copy = std::get_if<CopyShape>(&work.shape)) {
    add(static_cast<double>(copy->kind) + (copy->pageable ? 8 : 0));
    add(static_cast<double>(copy->run_bytes));
  }
  return key;
}

/// What a campaign holds while it sweeps the rest: the weights of a product (batch, n, k; m is
/// swept), the heads of attention. 0: the family has no sweeps.
std::uint64_t sweep_key(const Sample& sample) {
  std::uint64_t key = std::hash<std::string>{}(*sample.op);
  const auto add = [&](auto... sizes) {
    ((key = mix(key ^ static_cast<std::uint64_t>(sizes))), ...);
  };
  const KernelWork& work = sample.row->work;
  if (const auto* g = std::get_if<GemmShape>(&work.shape)) {
    add(g->batch, g->n, g->k);
  } else if (const auto* a = std::get_if<AttentionShape>(&work.shape)) {
    add(a->heads, a->head_dim);
  } else {
    return 0;
  }
  return key;
}

/// Sweeps of more than a few shapes. Their rows are neighbours, nearly the same measurement: a row
/// kept out of one says nothing about new shapes.
std::set<std::uint64_t> sweeps_of(const Samples& samples) {
  constexpr std::size_t kFewest = 8;
  std::map<std::uint64_t, std::set<std::uint64_t>> shapes;
  for (const Sample& sample : samples) {
    if (const std::uint64_t key = sweep_key(sample)) shapes[key].insert(shape_key(sample));
  }
  std::set<std::uint64_t> sweeps;
  for (const auto& [key, of_sweep] : shapes) {
    if (of_sweep.size() >= kFewest) sweeps.insert(key);
  }
  return sweeps;
}

template <class Keep>
std::pair<Samples, Samples> split(const Samples& samples, Keep is_kept_out) {
  std::pair<Samples, Samples> parts;  // fitted, kept out
  for (std::size_t i = 0; i < samples.size(); ++i) {
    (is_kept_out(i, samples[i]) ? parts.second : parts.first).push_back(samples[i]);
  }
  return parts;
}

/// A kept-out kernel's price with what its campaign adds to it.
struct Outcome {
  Price price;
  double measured_us = 0, predicted_us = 0;  ///< launch cost included
  double kernel_us = 0;                      ///< measured, launch cost taken off
  bool above_floor = true;
  bool is_seen = false;
  int distance = 0;
};

Outcome outcome_of(const LearnedModel& model, const Sample& sample) {
  Outcome outcome;
  const KernelWork& work = sample.row->work;
  outcome.price = KernelModels::heuristic().price(work, *sample.gpu);
  model.refine(work, *sample.gpu, outcome.price, &outcome.distance);
  outcome.is_seen = model.chip_index(*sample.gpu) >= 0;
  outcome.measured_us = sample.row->measured_us;
  const learned::LaunchCost* cost =
      sample.has_launch_cost ? model.launch_cost(sample.gpu->name, *sample.op) : nullptr;
  const double time = outcome.price.time.count();
  outcome.predicted_us = cost ? cost->measured(time) : time;
  outcome.above_floor = !cost || outcome.measured_us > 1.15 * cost->floor_us;
  outcome.kernel_us = outcome.measured_us - (cost ? cost->dispatch_us : 0);
  return outcome;
}

std::vector<Outcome> outcomes_of(const LearnedModel& model, const Samples& samples) {
  std::vector<Outcome> outcomes;
  outcomes.reserve(samples.size());
  for (const Sample& sample : samples) outcomes.push_back(outcome_of(model, sample));
  return outcomes;
}

Validation validation_of(const std::vector<Outcome>& outcomes, const Samples& samples) {
  Validation validation;
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    validation.measured_us.push_back(outcomes[i].measured_us);
    validation.predicted_us.push_back(outcomes[i].predicted_us);
    validation.gpus.push_back(samples[i].gpu->name);
    validation.ops.push_back(*samples[i].op);
  }
  return validation;
}

/// Mean absolute error of kernel times, rows above the launch floor.
double kernel_error(const std::vector<Outcome>& outcomes) {
  double sum = 0, count = 0;
  for (const Outcome& outcome : outcomes) {
    if (!outcome.above_floor) continue;
    sum += std::abs(outcome.price.time.count() / outcome.kernel_us - 1);
    ++count;
  }
  return count > 0 ? sum / count : 0;
}

/// Split-conformal: the quantiles of measured / predicted between which 90 % of n further rows
/// fall, ceil((n + 1) q) / n.
Interval interval_of(std::vector<double> ratios) {
  constexpr std::size_t kFewest = 20;
  constexpr double kTail = 0.05;
  if (ratios.size() < kFewest)
    return {.low = 0.5, .high = 2, .rows = static_cast<int>(ratios.size())};
  std::sort(ratios.begin(), ratios.end());
  const auto n = static_cast<double>(ratios.size());
  const auto high = static_cast<std::size_t>(std::min(n, std::ceil((n + 1) * (1 - kTail)))) - 1;
  const auto low = static_cast<std::size_t>(std::max(1.0, std::floor((n + 1) * kTail))) - 1;
  return {.low = ratios[low], .high = ratios[high], .rows = static_cast<int>(ratios.size())};
}

/// Intervals by distance from outcomes; rows at the floor say nothing about a kernel's time. A
/// farther class is never narrower than a nearer one.
void set_intervals(Interval (&intervals)[LearnedModel::kDistances],
                   const std::vector<Outcome>& outcomes) {
  std::vector<double> ratios[LearnedModel::kDistances];
  for (const Outcome& outcome : outcomes) {
    if (!outcome.above_floor) continue;
    ratios[outcome.distance].push_back(outcome.kernel_us / outcome.price.time.count());
  }
  for (int i = 0; i < LearnedModel::kDistances; ++i) {
    intervals[i] = interval_of(ratios[i]);
    if (i > 0) {
      intervals[i].low = std::min(intervals[i].low, intervals[i - 1].low);
      intervals[i].high = std::max(intervals[i].high, intervals[i - 1].high);
    }
  }
}

/// Share of rows above the floor whose kernel time lies in the interval that their class has.
double coverage_of(const std::vector<Outcome>& outcomes,
                   const Interval (&intervals)[LearnedModel::kDistances], std::size_t* rows) {
  std::size_t inside = 0, count = 0;
  for (const Outcome& outcome : outcomes) {
    if (!outcome.above_floor) continue;
    const Interval& interval = intervals[outcome.distance];
    const double ratio = outcome.kernel_us / outcome.price.time.count();
    ++count;
    if (ratio >= interval.low && ratio <= interval.high) ++inside;
  }
  if (rows) *rows = count;
  return count ? static_cast<double>(inside) / static_cast<double>(count) : 0;
}

/// Coverage of rows that neither trees nor quantiles saw: quantiles of four fifths, rows of the
/// fifth, five times.
double cross_coverage(const std::vector<Outcome>& outcomes, std::size_t* rows) {
  constexpr std::size_t kParts = 5;
  double inside = 0;
  *rows = 0;
  for (std::size_t part = 0; part < kParts; ++part) {
    std::vector<Outcome> own, others;
    for (std::size_t i = 0; i < outcomes.size(); ++i) {
      (mix(i) % kParts == part ? own : others).push_back(outcomes[i]);
    }
    Interval intervals[LearnedModel::kDistances];
    set_intervals(intervals, others);
    std::size_t count = 0;
    const double share = coverage_of(own, intervals, &count);
    inside += share * static_cast<double>(count);
    *rows += count;
  }
  return *rows ? inside / static_cast<double>(*rows) : 0;
}

ErrorSummary summary_of(const std::vector<double>& measured, const std::vector<double>& predicted) {
  const auto summary = summarize_errors(measured, predicted);
  return summary ? *summary : ErrorSummary{};
}

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
    if (left.best_ratio.rows == 0 || summary.mape < left.best_ratio.mape) {
      left.best_ratio = summary;
      left.best_ratio_gpu = gpu;
    }
  }
  left.mean_ratio_mape = count ? sum / count : 0;
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
  add_ratio_baseline(left, above, others);
  return left;
}

Recipe chosen_recipe(const Group& group, const TrainOptions& options) {
  if (options.recipe) return *options.recipe;
  const std::string& first = group.fitted.front().gpu->name;
  const bool one_gpu = std::ranges::all_of(
      group.fitted, [&](const Sample& sample) { return sample.gpu->name == first; });
  Recipe recipe = one_gpu ? one_gpu_recipe() : recipe_of(group.family);
  recipe.seed = options.seed;
  return recipe;
}

std::string name_of(const Group& group) {
  return fmt::format("{}-{}", to_string(group.family),
                     learned::arithmetic_name(group.dtype, group.tf32));
}

/// Everything about one model: choose, validate, fit.
class Trainer {
 public:
  Trainer(const Group& group, const TrainOptions& options) : group_(group), options_(options) {
    for (const Sample& sample : group.fitted) gpus_.insert(sample.gpu->name);
    sweeps_ = sweeps_of(group.fitted);
    report_.recipe = chosen_recipe(group, options);
    report_.gpus = gpus_.size();
  }

  Result<LearnedModel> run() {
    if (options_.tries_grid) {
      if (auto error = choose_recipe()) return Unexpected{*error};
    }
    auto model = fit_rows(group_.fitted, "fitting");
    if (!model) return model;
    report_.name = model->name;
    report_.rows = group_.launches.size();
    report_.fitted_rows = group_.fitted.size();
    for (auto* intervals : {&model->seen, &model->unseen}) {
      for (Interval& interval : *intervals) interval = {.low = 0.5, .high = 2, .rows = 0};
    }
    if (options_.validate) validate(*model);
    model->card = card();
    return model;
  }

  ModelReport take_report() { return std::move(report_); }

 private:
  Result<LearnedModel> fit_rows(const Samples& rows, const std::string& what) {
    if (options_.progress) {
      const std::size_t left_out = gpus_.size() > 1 && options_.leaves_gpus_out ? gpus_.size() : 0;
      const int total = options_.validate ? 2 + folds() + static_cast<int>(left_out) : 1;
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

  /// What is kept out together with a row: its sweep, else the row `alone`.
  std::uint64_t unit_of(const Sample& sample, std::uint64_t alone) const {
    const std::uint64_t key = sweep_key(sample);
    return sweeps_.contains(key) ? key : alone;
  }

  /// How often a fifth of the rows is kept out: of few rows each once.
  int folds() const {
    constexpr std::size_t kMany = 5000;
    return report_.recipe.one_gpu && group_.fitted.size() < kMany ? static_cast<int>(kParts) : 1;
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
        const double error = summary_of(kept.measured_us, kept.predicted_us).mape;
        if (error < best) {
          best = error;
          chosen = report_.recipe;
        }
      }
    }
    report_.recipe = chosen;
    return std::nullopt;
  }

  /// Where a part of the rows alone has nothing to fit (very few rows, one GPU at its power limit),
  /// its errors stay unknown and its intervals as wide as without validation.
  void validate(LearnedModel& model) {
    keep_random_rows_out(model);
    const auto grouped = split(group_.fitted, [&](std::size_t, const Sample& sample) {
      return is_kept_out(unit_of(sample, shape_key(sample)), 2);
    });
    if (const auto fitted = fit_rows(grouped.first, "shapes kept out")) {
      const std::vector<Outcome> outcomes = outcomes_of(*fitted, grouped.second);
      report_.grouped = validation_of(outcomes, grouped.second);
      report_.grouped.coverage = coverage_of(outcomes, model.seen, &report_.grouped.coverage_rows);
    }
    leave_one_out(model);
  }

  void keep_random_rows_out(LearnedModel& model) {
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
    if (outcomes.empty()) return;
    report_.random = validation_of(outcomes, kept);
    set_intervals(model.seen, outcomes);
    report_.random.coverage = cross_coverage(outcomes, &report_.random.coverage_rows);
  }

  void leave_one_out(LearnedModel& model) {
    if (gpus_.size() < 2 || !options_.leaves_gpus_out) return;
    struct Judged {
      LearnedModel model;
      Samples own, others;
    };
    std::map<std::string, Judged> judged;
    const Recipe recipe = report_.recipe;
    for (const std::string& gpu : gpus_) {
      auto parts = split(group_.fitted, [&](std::size_t, const Sample& sample) {
        return sample.gpu->name == gpu;
      });
      report_.recipe.has_chip_trees = false;  // no chip of the others is this one
      auto fitted = fit_rows(parts.first, gpu + " left out");
      report_.recipe = recipe;
      if (!fitted) continue;
      // What the host added is known of the campaign, not of the kernel.
      fitted->launch_costs = model.launch_costs;
      judged[gpu] = {std::move(*fitted), std::move(parts.second), std::move(parts.first)};
    }
    if (judged.empty()) return;
    // How far to follow the common trees on a GPU that was not measured: best mean over the GPUs.
    double best = std::numeric_limits<double>::infinity();
    for (double trust : {0.0, 0.25, 0.5, 0.75, 1.0}) {
      double sum = 0;
      for (auto& [gpu, entry] : judged) {
        entry.model.unseen_trust = trust;
        sum += kernel_error(outcomes_of(entry.model, entry.own));
      }
      if (sum < best) {
        best = sum;
        model.unseen_trust = trust;
      }
    }
    std::map<std::string, std::vector<Outcome>> by_gpu;
    std::vector<Outcome> all;
    for (auto& [gpu, entry] : judged) {
      entry.model.unseen_trust = model.unseen_trust;
      std::vector<Outcome> outcomes = outcomes_of(entry.model, entry.own);
      report_.left_out.push_back(left_out_of(gpu, entry.own, entry.others, outcomes));
      all.insert(all.end(), outcomes.begin(), outcomes.end());
      by_gpu[gpu] = std::move(outcomes);
    }
    set_intervals(model.unseen, all);
    // Coverage for a GPU by quantiles of the others.
    for (LeftOut& left : report_.left_out) {
      std::vector<Outcome> others;
      for (const auto& [gpu, outcomes] : by_gpu) {
        if (gpu != left.gpu) others.insert(others.end(), outcomes.begin(), outcomes.end());
      }
      Interval intervals[LearnedModel::kDistances];
      set_intervals(intervals, others);
      left.coverage = coverage_of(by_gpu[left.gpu], intervals, nullptr);
    }
  }

  std::string card() const {
    auto card = nlohmann::json::parse(options_.card, nullptr, false);
    if (!card.is_object()) card = nlohmann::json::object();
    const auto round = [](double x) { return std::round(x * 1e4) / 1e4; };
    const auto& recipe = report_.recipe;
    card["rows"] = {{"read", report_.rows}, {"fitted", report_.fitted_rows}};
    card["recipe"] = {{"rounds", recipe.rounds},
                      {"chip_rounds", recipe.has_chip_trees ? recipe.chip_rounds : 0},
                      {"depth", recipe.depth},
                      {"eta", recipe.eta},
                      {"subsample", recipe.subsample},
                      {"columns", recipe.columns},
                      {"min_child_weight", recipe.min_child_weight},
                      {"lambda", recipe.lambda},
                      {"seed", recipe.seed}};
    if (recipe.one_gpu) card["recipe"]["one_gpu"] = true;
    if (!options_.validate) return card.dump();
    const auto kept = [&](const Validation& validation) {
      const ErrorSummary s = summary_of(validation.measured_us, validation.predicted_us);
      return nlohmann::json{{"rows", s.rows},
                            {"mape", round(s.mape)},
                            {"geomean_ape", round(s.geomean_ape)},
                            {"coverage", round(validation.coverage)}};
    };
    card["errors"] = {{"random_rows", kept(report_.random)}, {"new_shapes", kept(report_.grouped)}};
    for (const LeftOut& left : report_.left_out) {
      card["errors"]["gpu_left_out"][left.gpu] = {{"rows", left.learned.rows},
                                                  {"mape", round(left.learned.mape)},
                                                  {"heuristic_mape", round(left.heuristic.mape)},
                                                  {"roofline_mape", round(left.roofline.mape)},
                                                  {"best_ratio_mape", round(left.best_ratio.mape)},
                                                  {"coverage", round(left.coverage)}};
    }
    return card.dump();
  }

  const Group& group_;
  std::set<std::uint64_t> sweeps_;
  const TrainOptions& options_;
  ModelReport report_;
  std::set<std::string> gpus_;
  int done_ = 0;
};

/// Names what a model is made of: the same rows, options and recipe, in this version of the
/// program.
std::uint64_t fingerprint_of(const Group& group, const TrainOptions& options) {
  std::uint64_t key = std::hash<std::string>{}(name_of(group));
  for (const Samples* samples : {&group.fitted, &group.launches}) {
    for (const Sample& sample : *samples) {
      key = mix(key ^ shape_key(sample));
      key = mix(key ^ std::bit_cast<std::uint64_t>(sample.row->measured_us));
      key = mix(key ^ std::hash<std::string>{}(sample.gpu->name));
    }
  }
  const Recipe recipe = chosen_recipe(group, options);
  for (double part :
       {static_cast<double>(recipe.rounds), static_cast<double>(recipe.chip_rounds),
        static_cast<double>(recipe.depth), recipe.eta, recipe.subsample, recipe.columns,
        recipe.min_child_weight, recipe.lambda, static_cast<double>(recipe.seed),
        static_cast<double>(options.seed), recipe.has_chip_trees ? 1.0 : 0.0,
        recipe.one_gpu ? 1.0 : 0.0, options.validate ? 1.0 : 0.0,
        options.leaves_gpus_out ? 1.0 : 0.0, options.tries_grid ? 1.0 : 0.0}) {
    key = mix(key ^ std::bit_cast<std::uint64_t>(part));
  }
  return mix(key ^ std::hash<std::string>{}(options.card));
}

/// A finished model beside the file to come, until all of them are finished.
std::filesystem::path partial_file(const std::filesystem::path& file, std::uint64_t fingerprint) {
  std::filesystem::path partial = file;
  partial += fmt::format(".{:016x}.partial", fingerprint);
  return partial;
}

/// Ridge regression of the log ratios that are left on the terms of a correction; the prior says
/// "no correction" with the weight of two rows.
learned::Correction correction_of(const LearnedModel& model, const std::string& gpu,
                                  const Samples& few) {
  constexpr double kPrior = 2;
  constexpr auto kTerms = static_cast<Eigen::Index>(learned::Correction::kTerms);
  const learned::FeatureSet& set = *learned::feature_set(model.family);
  Eigen::Matrix<double, kTerms, kTerms> gram =
      kPrior * Eigen::Matrix<double, kTerms, kTerms>::Identity();
  gram(0, 0) = 0.1 * kPrior;  // a GPU's level is what is least known
  Eigen::Matrix<double, kTerms, 1> moment = Eigen::Matrix<double, kTerms, 1>::Zero();
  learned::Correction correction{.gpu = gpu};
  for (const Sample& sample : few) {
    const Outcome outcome = outcome_of(model, sample);
    learned::FeatureRow row;
    const Price base = KernelModels::heuristic().price(sample.row->work, *sample.gpu);
    if (!outcome.above_floor || !set.fill(sample.row->work, *sample.gpu, base, row)) continue;
    const auto terms = learned::Correction::terms(set, row);
    const Eigen::Map<const Eigen::Matrix<double, kTerms, 1>> x(terms.data());
    gram += x * x.transpose();
    moment += x * std::log(outcome.kernel_us / outcome.price.time.count());
    ++correction.rows;
  }
  const Eigen::Matrix<double, kTerms, 1> weights = gram.ldlt().solve(moment);
  std::copy(weights.begin(), weights.end(), correction.weights.begin());
  return correction;
}

/// Rows that no model is fitted on, for the report.
TrainReport count_left_out_rows(std::span<const KernelTable> tables) {
  TrainReport report;
  for (const KernelTable& table : tables) {
    for (const KernelRow& row : table.rows) {
      if (row.is_l2_warm) {
        ++report.warm_rows;
      } else if (is_measured(row) && !has_model(row.work)) {
        ++report.other_families[std::string(to_string(row.work.family))];
      }
    }
  }
  return report;
}

}  // namespace

std::vector<std::string> learned_families() {
  std::vector<std::string> names;
  for (int i = 0; i <= static_cast<int>(KernelFamily::kSmall); ++i) {
    const auto family = static_cast<KernelFamily>(i);
    if (learned::feature_set(family)) names.emplace_back(to_string(family));
  }
  return names;
}

Result<TrainReport> train(std::span<const KernelTable> tables, const TrainOptions& options,
                          const std::filesystem::path& file) {
  const std::vector<Group> groups = group_rows(tables, options);
  if (groups.empty()) {
    return fail(ErrorCode::kImpossible,
                fmt::format("expected rows with a time and of a family that can be learned ({}), "
                            "found none",
                            fmt::join(learned_families(), ", ")));
  }
  TrainReport report = count_left_out_rows(tables);
  std::vector<LearnedModel> models;
  std::vector<std::filesystem::path> partial_files;
  for (const Group& group : groups) {
    partial_files.push_back(partial_file(file, fingerprint_of(group, options)));
    std::error_code ignored;
    if (std::filesystem::exists(partial_files.back(), ignored)) {
      if (auto done = learned::read_model_file(partial_files.back()); done && done->size() == 1) {
        ModelReport resumed{.name = done->front().name,
                            .rows = group.launches.size(),
                            .fitted_rows = group.fitted.size(),
                            .recipe = {}};
        resumed.is_resumed = true;
        report.models.push_back(std::move(resumed));
        models.push_back(std::move(done->front()));
        continue;
      }
    }
    Trainer trainer(group, options);
    auto model = trainer.run();
    if (!model) return Unexpected{model.error()};
    models.push_back(std::move(*model));
    report.models.push_back(trainer.take_report());
    if (groups.size() > 1) {
      auto written = learned::write_model_file(partial_files.back(), {models.back()});
      if (!written) return Unexpected{written.error()};
    }
  }
  if (auto written = learned::write_model_file(file, models); !written) {
    return Unexpected{written.error()};
  }
  for (const auto& partial : partial_files) {
    std::error_code ignored;
    std::filesystem::remove(partial, ignored);
  }
  return report;
}

Result<TrainReport> train_folder(std::span<const KernelTable> tables, const TrainOptions& options,
                                 const std::filesystem::path& folder) {
  constexpr std::size_t kFewest = 50;
  TrainReport report = count_left_out_rows(tables);
  std::vector<LearnedModel> models;
  for (const Group& group : group_rows(tables, options)) {
    if (group.fitted.size() < kFewest) {
      report.skipped.push_back(
          {name_of(group), group.fitted.size(), fmt::format("fewer than {} rows", kFewest)});
      continue;
    }
    Trainer trainer(group, options);
    auto model = trainer.run();
    if (!model) {
      report.skipped.push_back({name_of(group), group.fitted.size(), model.error().message});
      continue;
    }
    models.push_back(std::move(*model));
    report.models.push_back(trainer.take_report());
    report.models.back().file = name_of(group) + ".json";
  }
  if (models.empty()) {
    return fail(ErrorCode::kImpossible,
                fmt::format("expected at least {} rows with a time of one family that can be "
                            "learned ({}), found none",
                            kFewest, fmt::join(learned_families(), ", ")));
  }
  for (std::size_t i = 0; i < models.size(); ++i) {
    auto written = learned::write_model_file(folder / report.models[i].file, {models[i]});
    if (!written) return Unexpected{written.error()};
  }
  return report;
}

Result<std::size_t> calibrate(const KernelTable& few, const std::filesystem::path& base,
                              const std::filesystem::path& file) {
  auto models = learned::read_model_file(base);
  if (!models) return Unexpected{models.error()};
  std::size_t used = 0;
  for (LearnedModel& model : *models) {
    std::map<std::string, Samples> by_gpu;
    for (const KernelRow& row : few.rows) {
      if (is_measured(row) && model.covers(row.work, few.gpus[static_cast<std::size_t>(row.gpu)])) {
        const Sample sample = sample_of(few, row);
        by_gpu[sample.gpu->name].push_back(sample);
      }
    }
    for (const auto& [name, samples] : by_gpu) {
      const std::string& gpu = name;  // a lambda of C++20 cannot capture a binding
      std::erase_if(model.corrections, [&](const auto& c) { return c.gpu == gpu; });
      model.corrections.push_back(correction_of(model, gpu, samples));
      used += samples.size();
    }
  }
  if (used == 0) {
    return fail(ErrorCode::kImpossible,
                "expected measured rows of a family that the model file knows, found none");
  }
  if (auto written = learned::write_model_file(file, *models); !written) {
    return Unexpected{written.error()};
  }
  return used;
}

Result<std::vector<FewShotCurve>> few_shot(std::span<const KernelTable> tables,
                                           const TrainOptions& options, const std::string& gpu,
                                           std::span<const int> counts, int seeds) {
  const std::vector<Group> groups = group_rows(tables, options);
  std::vector<FewShotCurve> curves{{gpu, "random", {}}, {gpu, "k-means", {}}};
  std::map<std::pair<int, int>, std::vector<double>> errors[2];  // (points, seed): |error| of rows
  for (const Group& group : groups) {
    const auto parts = split(
        group.fitted, [&](std::size_t, const Sample& sample) { return sample.gpu->name == gpu; });
    if (parts.second.empty() || parts.first.empty()) continue;
    Recipe recipe = options.recipe ? *options.recipe : recipe_of(group.family);
    recipe.has_chip_trees = false;
    auto model = fit(parts.first, recipe, {});
    if (!model) return Unexpected{model.error()};
    // The campaign's launch cost is found from its own rows, as a user's would be.
    auto own = fit(parts.second, {.rounds = 1, .has_chip_trees = false}, {});
    if (own) model->launch_costs = own->launch_costs;
    const learned::FeatureSet& set = *learned::feature_set(group.family);
    Samples above;
    std::vector<learned::FeatureRow> rows;
    for (const Sample& sample : parts.second) {
      learned::FeatureRow row;
      const Price base = KernelModels::heuristic().price(sample.row->work, *sample.gpu);
      if (!outcome_of(*model, sample).above_floor ||
          !set.fill(sample.row->work, *sample.gpu, base, row)) {
        continue;
      }
      above.push_back(sample);
      rows.push_back(row);
    }
    if (above.empty()) continue;
    FeatureRows features(static_cast<Eigen::Index>(above.size()),
                         static_cast<Eigen::Index>(set.specs.size()));
    for (std::size_t i = 0; i < above.size(); ++i) {
      for (std::size_t j = 0; j < set.specs.size(); ++j) {
        features(static_cast<Eigen::Index>(i), static_cast<Eigen::Index>(j)) =
            static_cast<double>(rows[i][j]);
      }
    }
    for (int seed = 1; seed <= seeds; ++seed) {
      for (int points : counts) {
        for (int method = 0; method < 2; ++method) {
          const auto salt = static_cast<std::uint64_t>(seed);
          std::vector<std::size_t> chosen;
          if (method == 0) {
            chosen = random_sample(above.size(), static_cast<std::size_t>(points), salt);
          } else {
            auto sample = kmeans_sample(features, static_cast<std::size_t>(points), salt);
            if (!sample) return Unexpected{sample.error()};
            chosen = std::move(*sample);
          }
          Samples few;
          for (std::size_t i : chosen) few.push_back(above[i]);
          model->corrections = {correction_of(*model, gpu, few)};
          const std::set<std::size_t> used(chosen.begin(), chosen.end());
          auto& list = errors[method][{points, seed}];
          for (std::size_t i = 0; i < above.size(); ++i) {
            if (used.contains(i)) continue;
            const Outcome outcome = outcome_of(*model, above[i]);
            list.push_back(std::abs(outcome.price.time.count() / outcome.kernel_us - 1));
          }
          model->corrections.clear();
        }
      }
    }
  }
  for (int points : counts) {
    if (errors[0][{points, 1}].empty()) continue;  // all rows are measured, none is left to judge
    for (std::size_t method = 0; method < curves.size(); ++method) {
      FewShotPointError point{.points = points, .low = std::numeric_limits<double>::infinity()};
      for (int seed = 1; seed <= seeds; ++seed) {
        const auto& list = errors[method][{points, seed}];
        double sum = 0;
        for (double error : list) sum += error;
        const double mean = sum / static_cast<double>(list.size());
        point.mean += mean / seeds;
        point.low = std::min(point.low, mean);
        point.high = std::max(point.high, mean);
      }
      curves[method].points.push_back(point);
    }
  }
  if (curves.front().points.empty()) {
    return fail(ErrorCode::kImpossible,
                fmt::format("expected more than {} rows of GPU {} above the launch floor, and rows "
                            "of other GPUs",
                            std::ranges::min(counts), gpu));
  }
  return curves;
}

Result<EvalReport> evaluate(const KernelTable& table, const std::filesystem::path& file,
                            const EvalOptions& options) {
  const auto models = learned::read_model_file(file);
  if (!models) return Unexpected{models.error()};
  EvalReport report;
  std::size_t inside = 0;
  for (const KernelRow& row : table.rows) {
    if (!is_measured(row) || row.measured_us < options.min_us ||
        (options.only_llm && !row.is_llm_shape) || (options.only_train && row.is_llm_shape)) {
      continue;
    }
    const Sample sample = sample_of(table, row);
    const auto model = std::find_if(models->begin(), models->end(), [&](const LearnedModel& m) {
      return m.covers(row.work, *sample.gpu);
    });
    if (model == models->end()) {
      ++report.unknown_rows;
      continue;
    }
    const Outcome outcome = outcome_of(*model, sample);
    report.rows.measured_us.push_back(outcome.measured_us);
    report.rows.predicted_us.push_back(outcome.predicted_us);
    report.rows.gpus.push_back(sample.gpu->name);
    report.rows.ops.push_back(*sample.op);
    report.heuristic_us.push_back(
        KernelModels::heuristic().price(row.work, *sample.gpu).time.count());
    report.roofline_us.push_back(
        KernelModels::roofline().price(row.work, *sample.gpu).time.count());
    if (!outcome.is_seen) ++report.unseen_rows;
    if (outcome.above_floor) {
      ++report.rows.coverage_rows;
      if (outcome.kernel_us >= outcome.price.low.count() &&
          outcome.kernel_us <= outcome.price.high.count()) {
        ++inside;
      }
    }
  }
  if (report.rows.coverage_rows > 0) {
    report.rows.coverage =
        static_cast<double>(inside) / static_cast<double>(report.rows.coverage_rows);
  }
  if (report.rows.measured_us.empty()) {
    if (report.unknown_rows == 0) {
      return fail(ErrorCode::kImpossible,
                  "expected measured rows of the shapes and times that are asked for, found none");
    }
    return fail(ErrorCode::kImpossible,
                fmt::format("expected measured rows of a family that the model file knows, found "
                            "{} rows of others",
                            report.unknown_rows));
  }
  return report;
}

}  // namespace perfmodel::training
