#include "fit.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "base/each_name.hpp"
#include "base/statistics.hpp"
#include "booster.hpp"
#include "price/learned/learned_model.hpp"
#include "price/terms.hpp"

namespace perfmodel::training {
namespace {

using learned::FeatureRow;
using learned::LaunchCost;
using learned::LearnedModel;

/// The part of a floor that comes before the launch. Intercepts of NeuSight's elementwise times
/// over bytes (large tensors) less an empty kernel: 0.40-0.46 of the floor on five NVIDIA GPUs,
/// 0.60 and 0.65 on MI100 and MI210.
constexpr double kDispatchShare = 0.43;
constexpr double kDispatchShareAmd = 0.62;
/// A layer norm allocates three results before it launches: intercepts of 0.58 to 0.92 on A100,
/// V100 and P100, 0.80 and 0.90 on MI210 and MI100.
constexpr double kLayerNormDispatchShare = 0.75;
constexpr double kLayerNormDispatchShareAmd = 0.85;

double dispatch_share(const Gpu& gpu, KernelFamily family) {
  const bool is_amd = gpu.vendor == "amd";
  if (family == KernelFamily::kNorm) {
    return is_amd ? kLayerNormDispatchShareAmd : kLayerNormDispatchShare;
  }
  return is_amd ? kDispatchShareAmd : kDispatchShare;
}

double heuristic_us(const Sample& sample) {
  return KernelModels::heuristic().price(sample.row->work, *sample.gpu).time.count();
}

double lower_quantile(std::vector<double> values, double share) {
  std::ranges::sort(values);
  return quantile(values, share, QuantileRule::kLower);
}

/// A campaign with a host floor shows a plateau: rows whose work is far below the shortest time all
/// take the same. No plateau (device-side timing): no launch cost.
LaunchCost find_launch_cost(std::span<const Sample* const> samples) {
  constexpr double kFarBelow = 0.3;
  constexpr std::size_t kFewest = 10;
  constexpr double kFlat = 0.25;  // spread of a plateau (p10 to p75) over its median
  LaunchCost cost{.gpu = samples[0]->gpu->name, .op = *samples[0]->op};
  std::vector<double> times;
  for (const Sample* sample : samples) times.push_back(sample->row->measured_us);
  const double shortest = lower_quantile(times, 0.02);
  std::vector<double> plateau;
  for (const Sample* sample : samples) {
    if (heuristic_us(*sample) < kFarBelow * shortest) plateau.push_back(sample->row->measured_us);
  }
  if (plateau.size() < kFewest) return cost;
  // Calls that launch one or several kernels have several levels: the lowest is the sure one.
  const double middle = lower_quantile(plateau, 0.5);
  const bool is_flat =
      lower_quantile(plateau, 0.75) - lower_quantile(plateau, 0.1) <= kFlat * middle;
  cost.floor_us = is_flat ? middle : lower_quantile(plateau, 0.1);
  cost.dispatch_us = cost.floor_us * dispatch_share(*samples[0]->gpu, samples[0]->row->work.family);
  return cost;
}

std::vector<LaunchCost> find_launch_costs(std::span<const Sample> samples) {
  std::map<std::pair<std::string, std::string>, std::vector<const Sample*>> groups;
  for (const Sample& sample : samples) {
    if (sample.has_launch_cost) groups[{sample.gpu->name, *sample.op}].push_back(&sample);
  }
  std::vector<LaunchCost> costs;
  for (const auto& [key, group] : groups) costs.push_back(find_launch_cost(group));
  return costs;
}

LearnedModel::Monotone monotone_of(std::span<const Sample> samples, double power) {
  LearnedModel::Monotone times{
      .power = power, .low_us = heuristic_us(samples[0]), .high_us = heuristic_us(samples[0])};
  for (const Sample& sample : samples) {
    const double us = heuristic_us(sample);
    times.low_us = std::min(times.low_us, us);
    times.high_us = std::max(times.high_us, us);
  }
  return times;
}

/// A row that trees learn from.
struct Target {
  FeatureRow features;
  float label = 0;
  float weight = 0;
  int chip = -1;
  std::size_t gpu = 0;
  bool above_floor = true;
  bool is_other_unit = false;
  bool is_common_only = false;
};

constexpr double kAboveFloor = 1.15;  ///< measured time over floor from which a row shows its own
                                      ///< time

/// Boards whose power limit is well below the peak run compute-bound kernels at the clock that
/// their temperature allows: NeuSight's T4 sweeps differ by a quarter of the rate, its P4 linear
/// sweep fell to a fifth of what the card reaches elsewhere. Such rows say more about that day than
/// about a kernel; the heuristic's power model prices them.
bool runs_at_power_limit(const Sample& sample) {
  constexpr double kPowerLimited = 0.9;
  const KernelWork& work = sample.row->work;
  if (work.family != KernelFamily::kGemm || work.matrix_units) return false;
  const double peak = sample.gpu->peak(work.dtype, work.matrix_units).value * 1e-6;
  return terms::sustained_flop_per_us(*sample.gpu, work.dtype, work.matrix_units) <
         kPowerLimited * peak;
}

bool make_target(const LearnedModel& model, const Sample& sample, const Recipe& recipe,
                 Target& target) {
  const Price base = KernelModels::heuristic().price(sample.row->work, *sample.gpu);
  if (!model.features().fill(sample.row->work, *sample.gpu, base, target.features)) {
    return false;
  }
  const LaunchCost* cost =
      sample.has_launch_cost ? model.launch_cost(sample.gpu->name, *sample.op) : nullptr;
  const double floor = cost ? cost->floor_us : 0, dispatch = cost ? cost->dispatch_us : 0;
  const double measured = sample.row->measured_us;
  target.is_common_only = sample.common_only;
  target.is_other_unit =
      !recipe.one_gpu && sample.row->work.matrix_units && sample.gpu->vendor == "amd";
  target.above_floor = measured > kAboveFloor * floor;
  if (target.above_floor) {
    target.label =
        static_cast<float>(std::clamp(std::log((measured - dispatch) / base.time.count()),
                                      -recipe.most_log_ratio, recipe.most_log_ratio));
    target.weight = 1;
    if (!recipe.one_gpu && runs_at_power_limit(sample)) return false;
  } else {
    const double most = floor - dispatch;
    target.label = static_cast<float>(std::min(0.0, std::log(most / base.time.count())));
    target.weight = static_cast<float>(recipe.floor_weight);
  }
  target.label -= static_cast<float>(model.log_damping(base.time.count()));
  return true;
}

void balance_gpus(std::vector<Target>& targets, std::size_t gpu_count) {
  std::vector<double> sums(gpu_count, 0);
  for (const Target& target : targets) sums[target.gpu] += static_cast<double>(target.weight);
  const auto rows = static_cast<double>(targets.size());
  for (Target& target : targets) {
    const double share = rows / static_cast<double>(gpu_count) / sums[target.gpu];
    target.weight *= static_cast<float>(std::min(share, 20.0));
  }
}

BoosterData booster_data(const std::vector<Target>& targets,
                         std::span<const learned::FeatureSpec> specs, bool with_chip) {
  BoosterData data{.columns = specs.size() + (with_chip ? 1U : 0U)};
  for (const Target& target : targets) {
    if (with_chip ? target.is_common_only : target.is_other_unit) continue;
    for (std::size_t i = 0; i < specs.size(); ++i) {
      data.features.push_back(specs[i].is_range_only ? 0.0F : target.features[i]);
    }
    if (with_chip) data.features.push_back(static_cast<float>(target.chip));
    data.labels.push_back(target.label);
    data.weights.push_back(target.weight);
  }
  return data;
}

/// Boxes with enough rows that tell their time.
template <class Choose>
LearnedModel::Cells find_cells(const learned::FeatureSet& set, const std::vector<Target>& targets,
                               Choose is_chosen) {
  std::map<LearnedModel::Cell, int> counts;
  int rows = 0;
  for (const Target& target : targets) {
    if (target.above_floor && target.weight > 0 && is_chosen(target)) {
      ++counts[LearnedModel::cell_of(set, target.features)];
      ++rows;
    }
  }
  // A large sweep has stray rows; a list of named shapes has one row per box.
  const int fewest = std::clamp(rows / 2000, 1, 5);
  LearnedModel::Cells cells;
  for (const auto& [cell, count] : counts) {
    if (count >= fewest) cells.push_back(cell);
  }
  return cells;
}

/// The cells between two of `cells` that differ along one axis only, and these two.
std::set<LearnedModel::Cell> between(const std::set<LearnedModel::Cell>& cells, std::size_t along) {
  std::map<LearnedModel::Cell, std::pair<int, int>> lines;  // lowest, highest
  for (LearnedModel::Cell line : cells) {
    const int at = std::exchange(line[along], std::int8_t{0});
    auto [range, is_new] = lines.try_emplace(line, at, at);
    range->second = {std::min(range->second.first, at), std::max(range->second.second, at)};
  }
  std::set<LearnedModel::Cell> all;
  for (const auto& [line, range] : lines) {
    LearnedModel::Cell cell = line;
    for (int at = range.first; at <= range.second; ++at) {
      cell[along] = static_cast<std::int8_t>(at);
      all.insert(cell);
    }
  }
  return all;
}

/// Adds all cells between others along some axis of sizes, since a planned sweep skips sizes. The
/// unmeasured corner of an L stays outside.
void fill_gaps(const learned::FeatureSet& set, LearnedModel::Cells& cells) {
  std::set<LearnedModel::Cell> filled(cells.begin(), cells.end());
  for (std::size_t before = 0; before != filled.size();) {
    before = filled.size();
    std::size_t axis = 0;
    for (const learned::FeatureSpec& spec : set.specs) {
      if (spec.is_axis && !spec.is_kind) filled = between(filled, axis);
      if (spec.is_axis) ++axis;
    }
  }
  cells.assign(filled.begin(), filled.end());
}

std::string name_of(const LearnedModel& model) {
  const bool is_plain =
      (model.dtype == DType::kFloat32 && !model.tf32) || learned::moves_bytes(model.family);
  return is_plain ? fmt::format("{}-learned", to_string(model.family))
                  : fmt::format("{}-{}-learned", to_string(model.family),
                                learned::arithmetic_name(model.dtype, model.tf32));
}

}  // namespace

Recipe one_gpu_recipe() {
  return {.rounds = 600,
          .chip_rounds = 0,
          .depth = 6,
          .eta = 0.05,
          .subsample = 0.7,
          .columns = 0.8,
          .min_child_weight = 2,
          .lambda = 1,
          .has_chip_trees = false,
          .one_gpu = true};
}

Recipe monotone_recipe(double heuristic_power, int depth) {
  const bool is_shallow = depth <= 3;
  return {.rounds = is_shallow ? 120 : 200,
          .chip_rounds = 0,
          .depth = depth,
          .eta = 0.08,
          .subsample = 0.7,
          .columns = 0.8,
          .min_child_weight = is_shallow ? 8.0 : 4.0,
          .lambda = 3,
          .has_chip_trees = false,
          .one_gpu = true,
          .monotone = true,
          .heuristic_power = heuristic_power};
}

Recipe recipe_of(KernelFamily family) {
  Recipe recipe;
  if (family == KernelFamily::kConvolution) {
    recipe.rounds = 300;
    recipe.chip_rounds = 700;
    recipe.eta = 0.1;
    recipe.min_child_weight = 4;
    recipe.lambda = 1;
  } else if (family == KernelFamily::kGemm) {
    // Single products below the floor are fast because their library splits k; batched ones of the
    // same sizes are above it. With 0.05 their times were priced beyond the whole call.
    recipe.floor_weight = 0.3;
  } else if (family == KernelFamily::kExperts) {
    recipe.rounds = recipe.chip_rounds = 150;
    recipe.depth = 5;
    recipe.min_child_weight = 50;
    recipe.most_log_ratio = 0.3;
  }
  return recipe;
}

Result<LearnedModel> fit(std::span<const Sample> samples, const Recipe& recipe,
                         std::span<const Sample> launches) {
  if (samples.empty()) {
    return decline("no rows to fit");
  }
  LearnedModel model;
  model.family = samples[0].row->work.family;
  model.dtype = samples[0].row->work.dtype;
  model.tf32 = learned::is_tf32(samples[0].row->work, *samples[0].gpu);
  model.name = name_of(model);
  model.price_name = learned::interned(model.name);
  const learned::FeatureSet* set = recipe.monotone
                                       ? learned::monotone_set(model.family, model.dtype)
                                       : learned::feature_set(model.family, model.dtype);
  if (!set) {
    return decline(
        fmt::format("no learned model for kernels of family {}", to_string(model.family)));
  }
  std::vector<int> monotone;
  for (const learned::FeatureSpec& spec : set->specs) {
    model.feature_names.emplace_back(spec.name);
    monotone.push_back(spec.monotone);
  }
  model.launch_costs = find_launch_costs(launches.empty() ? samples : launches);

  if (recipe.monotone) model.monotone = monotone_of(samples, recipe.heuristic_power);
  std::vector<Target> targets;
  for (const Sample& sample : samples) {
    Target target;
    if (!make_target(model, sample, recipe, target)) continue;
    const std::string chip = learned::chip_of(*sample.gpu);
    auto known = std::find(model.chips.begin(), model.chips.end(), chip);
    target.chip = static_cast<int>(known - model.chips.begin());
    if (known == model.chips.end()) {
      model.chips.push_back(chip);
      const auto end = target.features.begin() + static_cast<std::ptrdiff_t>(set->specs.size());
      std::copy(end - static_cast<std::ptrdiff_t>(learned::kDeviceFeatures), end,
                model.chip_devices.emplace_back().begin());
    }
    auto board = std::find(model.gpus.begin(), model.gpus.end(), sample.gpu->name);
    target.gpu = static_cast<std::size_t>(board - model.gpus.begin());
    if (board == model.gpus.end()) model.gpus.push_back(sample.gpu->name);
    if (!model.knows_vendor(*sample.gpu) || model.vendors.empty()) {
      model.vendors.push_back(sample.gpu->vendor);
    }
    targets.push_back(target);
  }
  if (targets.empty()) {
    return decline("no row has the shape that it needs");
  }
  balance_gpus(targets, model.gpus.size());
  model.common_cells = find_cells(*set, targets, [](const Target& t) { return !t.is_other_unit; });
  for (int chip = 0; chip < static_cast<int>(model.chips.size()); ++chip) {
    model.chip_cells.push_back(
        find_cells(*set, targets, [chip](const Target& t) { return t.chip == chip; }));
  }
  if (recipe.one_gpu) {
    fill_gaps(*set, model.common_cells);
    for (auto& cells : model.chip_cells) fill_gaps(*set, cells);
  }

  BoosterOptions options{.monotone = monotone};
  PERFMODEL_COPY(options, recipe, rounds, depth, eta, subsample, columns, min_child_weight, lambda,
                 seed);
  PERFMODEL_TRY(common, boost(booster_data(targets, set->specs, false), options));
  model.common = std::move(*common);
  if (recipe.has_chip_trees) {
    for (Target& target : targets) target.label -= model.common.predict(target.features);
    options.rounds = recipe.chip_rounds;
    options.monotone.clear();
    PERFMODEL_TRY(chip, boost(booster_data(targets, set->specs, true), options));
    model.chip = std::move(*chip);
  }
  return model;
}

}  // namespace perfmodel::training
