#include <fmt/format.h>

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "few_kernels.hpp"
#include "outcomes.hpp"
#include "price/learned/model_file.hpp"
#include "sampling.hpp"
#include "train.hpp"

namespace perfmodel::training {

using learned::LearnedModel;

namespace {

/// A model, and the rows of one GPU above the launch floor that judge it.
struct JudgedModel {
  LearnedModel model;
  Samples rows;
  FeatureRows features;
};

void judge_by(const Samples& samples, JudgedModel& judged) {
  const std::vector<JudgedRow> rows = judged_rows(judged.model, samples);
  const std::size_t columns = judged.model.features().specs.size();
  judged.features.resize(std::ssize(rows), static_cast<Eigen::Index>(columns));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    judged.rows.push_back(rows[i].sample);
    for (std::size_t j = 0; j < columns; ++j) judged.features(i, j) = rows[i].features[j];
  }
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

/// A model of the other GPUs, judged by the rows of this one.
Result<JudgedModel> judged_of(const Group& group, const TrainOptions& options,
                              const std::string& gpu) {
  const auto parts = split(
      group.fitted, [&](std::size_t, const Sample& sample) { return sample.gpu->name == gpu; });
  if (parts.second.empty() || parts.first.empty()) return JudgedModel{};
  Recipe recipe = options.recipe ? *options.recipe : recipe_of(group.family);
  recipe.has_chip_trees = false;
  PERFMODEL_TRY(model, fit(parts.first, recipe, {}));
  take_launch_costs(parts.second, gpu, *model);
  JudgedModel judged{.model = std::move(*model), .rows = {}, .features = {}};
  judge_by(parts.second, judged);
  return judged;
}

using Chosen = std::vector<std::size_t>;  ///< rows that are measured

struct Method {
  const char* name;
  Result<Chosen> (*choose)(const JudgedModel& judged, std::size_t points, std::uint64_t seed);
};
constexpr Method kMethods[] = {
    {"random",
     [](const JudgedModel& judged, std::size_t points, std::uint64_t seed) -> Result<Chosen> {
       return random_sample(judged.rows.size(), points, seed);
     }},
    {"k-means", [](const JudgedModel& judged, std::size_t points,
                   std::uint64_t seed) { return kmeans_sample(judged.features, points, seed); }},
};

/// Adds the absolute errors of all rows that were not measured.
void add_errors(JudgedModel& judged, const Chosen& chosen, const std::string& gpu,
                std::vector<double>& errors) {
  Samples few;
  for (const std::size_t i : chosen) few.push_back(judged.rows[i]);
  judged.model.corrections = {correction_of(judged.model, gpu, few).correction};
  const std::set<std::size_t> used(chosen.begin(), chosen.end());
  for (std::size_t i = 0; i < judged.rows.size(); ++i) {
    if (used.contains(i)) continue;
    const Outcome outcome = outcome_of(judged.model, judged.rows[i]);
    errors.push_back(std::abs(outcome.price.time.count() / outcome.kernel_us - 1));
  }
  judged.model.corrections.clear();
}

/// Corrects a model for a GPU by `points` of its rows, or by all of them (0).
Result<void> correct(LearnedModel& model, const std::string& gpu, const Samples& samples,
                     std::size_t points, Calibration& made) {
  std::erase_if(model.corrections, [&](const auto& c) { return c.gpu == gpu; });
  JudgedModel judged{.model = model, .rows = {}, .features = {}};
  Samples few = samples, others;
  if (points) {
    take_launch_costs(samples, gpu, model);
    judged.model.launch_costs = model.launch_costs;
    judge_by(samples, judged);
    if (judged.rows.size() <= points) {
      return decline(fmt::format(
          "expected more than {} rows of GPU {} above the launch floor for {}, found {}", points,
          gpu, model.name, judged.rows.size()));
    }
    PERFMODEL_TRY(chosen, kmeans_sample(judged.features, points, 1));
    const std::set<std::size_t> used(chosen->begin(), chosen->end());
    std::tie(others, few) =
        split(judged.rows, [&](std::size_t i, const Sample&) { return used.contains(i); });
  }
  const FewKernels fitted = correction_of(model, gpu, few);
  const bool helps = fitted.helps();
  if (helps) {
    model.corrections.push_back(fitted.correction);
  } else {
    made.left_out.push_back(fmt::format("{} on {}", model.name, gpu));
  }
  const std::size_t used = helps ? fitted.given : 0;
  made.used += used;
  if (!points) return {};
  const auto error_of = [](const LearnedModel& of, const Samples& rows) {
    return kernel_error(outcomes_of(of, rows));
  };
  made.judged.push_back({.gpu = gpu,
                         .model = model.name,
                         .used = used,
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
                              const std::filesystem::path& file, std::size_t points) {
  PERFMODEL_TRY(models, learned::read_model_file(base));
  Calibration made;
  bool has_rows = false;
  for (LearnedModel& model : *models) {
    std::map<std::string, Samples> by_gpu;
    for (const KernelRow& row : few.rows) {
      if (is_measured(row) && model.is_of(row.work, few.gpus[row.gpu])) {
        const Sample sample = sample_of(few, row);
        by_gpu[sample.gpu->name].push_back(sample);
      }
    }
    has_rows |= !by_gpu.empty();
    for (const auto& [gpu, samples] : by_gpu) {
      PERFMODEL_TRY_TO(correct(model, gpu, samples, points, made));
    }
  }
  if (!has_rows) {
    return decline("expected measured rows of a family that the model file knows, found none");
  }
  PERFMODEL_TRY_TO(learned::write_model_file(file, *models));
  return made;
}

Result<std::vector<FewShotCurve>> few_shot(std::span<const KernelTable> tables,
                                           const TrainOptions& options, const std::string& gpu,
                                           std::span<const int> counts, int seeds) {
  Errors errors[2];
  for (const Group& group : group_rows(tables, options)) {
    PERFMODEL_TRY(judged, judged_of(group, options, gpu));
    if (judged->rows.empty()) continue;
    for (int seed = 1; seed <= seeds; ++seed) {
      for (const int points : counts) {
        for (std::size_t method = 0; method < std::size(kMethods); ++method) {
          PERFMODEL_TRY(chosen, kMethods[method].choose(*judged, points, seed));
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
  return decline(fmt::format(
      "expected more than {} rows of GPU {} above the launch floor, and rows of other GPUs",
      std::ranges::min(counts), gpu));
}

}  // namespace perfmodel::training
