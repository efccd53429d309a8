#include <fmt/format.h>

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "outcomes.hpp"
#include "price/learned/model_file.hpp"
#include "sampling.hpp"
#include "train.hpp"

namespace perfmodel::training {

using learned::LearnedModel;

namespace {

/// Ridge regression of the log ratios that are left on the terms of a correction; the prior says
/// "no correction" with the weight of two rows.
learned::Correction correction_of(const LearnedModel& model, const std::string& gpu,
                                  const Samples& few) {
  constexpr double kPrior = 2;
  constexpr auto kTerms = static_cast<Eigen::Index>(learned::Correction::kTerms);
  const learned::FeatureSet& set = model.features();
  Eigen::Matrix<double, kTerms, kTerms> gram =
      kPrior * Eigen::Matrix<double, kTerms, kTerms>::Identity();
  gram(0, 0) = 0.1 * kPrior;  // a GPU's level is least known
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

/// A model, and the rows of one GPU above the launch floor that judge it.
struct JudgedModel {
  LearnedModel model;
  Samples rows;
  FeatureRows features;
};

/// Gives the model the rows above the launch floor that it has features of.
void judge_by(const Samples& samples, JudgedModel& judged) {
  const learned::FeatureSet& set = judged.model.features();
  std::vector<learned::FeatureRow> features;
  for (const Sample& sample : samples) {
    learned::FeatureRow row;
    const Price base = KernelModels::heuristic().price(sample.row->work, *sample.gpu);
    if (!outcome_of(judged.model, sample).above_floor ||
        !set.fill(sample.row->work, *sample.gpu, base, row)) {
      continue;
    }
    judged.rows.push_back(sample);
    features.push_back(row);
  }
  judged.features.resize(static_cast<Eigen::Index>(features.size()),
                         static_cast<Eigen::Index>(set.specs.size()));
  for (Eigen::Index i = 0; i < judged.features.rows(); ++i) {
    for (Eigen::Index j = 0; j < judged.features.cols(); ++j) {
      judged.features(i, j) =
          static_cast<double>(features[static_cast<std::size_t>(i)][static_cast<std::size_t>(j)]);
    }
  }
}

/// A model of the other GPUs, judged by the rows of this one.
Result<JudgedModel> judged_of(const Group& group, const TrainOptions& options,
                              const std::string& gpu) {
  const auto parts = split(
      group.fitted, [&](std::size_t, const Sample& sample) { return sample.gpu->name == gpu; });
  if (parts.second.empty() || parts.first.empty()) return JudgedModel{};
  Recipe recipe = options.recipe ? *options.recipe : recipe_of(group.family);
  recipe.has_chip_trees = false;
  auto model = fit(parts.first, recipe, {});
  if (!model) return Unexpected{model.error()};
  // The campaign's launch cost is found from its own rows, as a user's would be.
  auto own = fit(parts.second, {.rounds = 1, .has_chip_trees = false}, {});
  if (own) model->launch_costs = own->launch_costs;
  JudgedModel judged{.model = std::move(*model), .rows = {}, .features = {}};
  judge_by(parts.second, judged);
  return judged;
}

using Chosen = std::vector<std::size_t>;  ///< rows that are measured

struct Method {
  const char* name;
  Result<Chosen> (*choose)(const JudgedModel& judged, int points, int seed);
};
constexpr Method kMethods[] = {
    {"random",
     [](const JudgedModel& judged, int points, int seed) -> Result<Chosen> {
       return random_sample(judged.rows.size(), static_cast<std::size_t>(points),
                            static_cast<std::uint64_t>(seed));
     }},
    {"k-means",
     [](const JudgedModel& judged, int points, int seed) -> Result<Chosen> {
       return kmeans_sample(judged.features, static_cast<std::size_t>(points),
                            static_cast<std::uint64_t>(seed));
     }},
};

/// Adds the absolute errors of all rows that were not measured.
void add_errors(JudgedModel& judged, const Chosen& chosen, const std::string& gpu,
                std::vector<double>& errors) {
  Samples few;
  for (const std::size_t i : chosen) few.push_back(judged.rows[i]);
  judged.model.corrections = {correction_of(judged.model, gpu, few)};
  const std::set<std::size_t> used(chosen.begin(), chosen.end());
  for (std::size_t i = 0; i < judged.rows.size(); ++i) {
    if (used.contains(i)) continue;
    const Outcome outcome = outcome_of(judged.model, judged.rows[i]);
    errors.push_back(std::abs(outcome.price.time.count() / outcome.kernel_us - 1));
  }
  judged.model.corrections.clear();
}

/// Finds the cost of a launch in the campaign of these rows, by all of them: it hides short
/// kernels, and 20 rows do not tell it.
void take_launch_costs(const Samples& samples, const std::string& gpu, LearnedModel& model) {
  const auto own = fit(samples, {.rounds = 1, .has_chip_trees = false}, {});
  if (!own) return;  // too few rows: they count as kernels alone, as without `points`
  std::erase_if(model.launch_costs, [&](const auto& cost) { return cost.gpu == gpu; });
  model.launch_costs.insert(model.launch_costs.end(), own->launch_costs.begin(),
                            own->launch_costs.end());
}

/// Corrects a model for a GPU by `points` of its rows, or by all of them.
Result<void> correct(LearnedModel& model, const std::string& gpu, const Samples& samples,
                     std::optional<std::size_t> points, Calibration& made) {
  std::erase_if(model.corrections, [&](const auto& c) { return c.gpu == gpu; });
  JudgedModel judged{.model = model, .rows = {}, .features = {}};
  Samples few = samples, others;
  if (points) {
    take_launch_costs(samples, gpu, model);
    judged.model.launch_costs = model.launch_costs;
    judge_by(samples, judged);
    if (judged.rows.size() <= *points) {
      return fail(ErrorCode::kImpossible,
                  fmt::format("expected more than {} rows of GPU {} above the launch floor for {}, "
                              "found {}",
                              *points, gpu, model.name, judged.rows.size()));
    }
    const auto chosen = kmeans_sample(judged.features, *points, 1);
    if (!chosen) return Unexpected{chosen.error()};
    const std::set<std::size_t> used(chosen->begin(), chosen->end());
    few.clear();
    for (std::size_t i = 0; i < judged.rows.size(); ++i) {
      (used.contains(i) ? few : others).push_back(judged.rows[i]);
    }
  }
  model.corrections.push_back(correction_of(model, gpu, few));
  made.used += few.size();
  if (!points) return {};
  const auto error_of = [](const LearnedModel& of, const Samples& rows) {
    return kernel_error(outcomes_of(of, rows));
  };
  if (error_of(model, few) >= error_of(judged.model, few)) model.corrections.pop_back();
  made.judged.push_back({.gpu = gpu,
                         .model = model.name,
                         .used = few.size(),
                         .others = others.size(),
                         .before = error_of(judged.model, others),
                         .after = error_of(model, others)});
  return {};
}

using Errors = std::map<std::pair<int, int>, std::vector<double>>;  ///< by points and seed

FewShotPointError point_of(Errors& errors, int points, int seeds) {
  FewShotPointError point{.points = points, .low = std::numeric_limits<double>::infinity()};
  for (int seed = 1; seed <= seeds; ++seed) {
    const auto& list = errors[{points, seed}];
    double sum = 0;
    for (const double error : list) sum += error;
    const double mean = sum / static_cast<double>(list.size());
    point.mean += mean / seeds;
    point.low = std::min(point.low, mean);
    point.high = std::max(point.high, mean);
  }
  return point;
}

}  // namespace

Result<Calibration> calibrate(const KernelTable& few, const std::filesystem::path& base,
                              const std::filesystem::path& file,
                              std::optional<std::size_t> points) {
  auto models = learned::read_model_file(base);
  if (!models) return Unexpected{models.error()};
  Calibration made;
  for (LearnedModel& model : *models) {
    std::map<std::string, Samples> by_gpu;
    for (const KernelRow& row : few.rows) {
      if (is_measured(row) && model.is_of(row.work, few.gpus[row.gpu])) {
        const Sample sample = sample_of(few, row);
        by_gpu[sample.gpu->name].push_back(sample);
      }
    }
    for (const auto& [gpu, samples] : by_gpu) {
      if (auto done = correct(model, gpu, samples, points, made); !done) {
        return Unexpected{done.error()};
      }
    }
  }
  if (made.used == 0) {
    return fail(ErrorCode::kImpossible,
                "expected measured rows of a family that the model file knows, found none");
  }
  if (auto written = learned::write_model_file(file, *models); !written) {
    return Unexpected{written.error()};
  }
  return made;
}

Result<std::vector<FewShotCurve>> few_shot(std::span<const KernelTable> tables,
                                           const TrainOptions& options, const std::string& gpu,
                                           std::span<const int> counts, int seeds) {
  Errors errors[2];
  for (const Group& group : group_rows(tables, options)) {
    auto judged = judged_of(group, options, gpu);
    if (!judged) return Unexpected{judged.error()};
    if (judged->rows.empty()) continue;
    for (int seed = 1; seed <= seeds; ++seed) {
      for (const int points : counts) {
        for (std::size_t method = 0; method < std::size(kMethods); ++method) {
          const auto chosen = kMethods[method].choose(*judged, points, seed);
          if (!chosen) return Unexpected{chosen.error()};
          add_errors(*judged, *chosen, gpu, errors[method][{points, seed}]);
        }
      }
    }
  }
  std::vector<FewShotCurve> curves;
  for (std::size_t method = 0; method < std::size(kMethods); ++method) {
    FewShotCurve curve{gpu, kMethods[method].name, {}};
    for (const int points : counts) {
      // Without errors all rows are measured, and none is left to judge.
      if (!errors[0][{points, 1}].empty()) {
        curve.points.push_back(point_of(errors[method], points, seeds));
      }
    }
    curves.push_back(std::move(curve));
  }
  if (!curves.front().points.empty()) return curves;
  return fail(ErrorCode::kImpossible,
              fmt::format("expected more than {} rows of GPU {} above the launch floor, and rows "
                          "of other GPUs",
                          std::ranges::min(counts), gpu));
}

}  // namespace perfmodel::training
