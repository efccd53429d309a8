#include "train.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <bit>
#include <functional>

#include "price/learned/model_file.hpp"
#include "trainer.hpp"

namespace perfmodel::training {
namespace {

using learned::LearnedModel;

/// Identifies a model's inputs: its rows, options and recipe, and this version of the program.
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
  for (double part : {static_cast<double>(recipe.rounds), static_cast<double>(recipe.chip_rounds),
                      static_cast<double>(recipe.depth), recipe.eta, recipe.subsample,
                      recipe.columns, recipe.min_child_weight, recipe.lambda, recipe.most_log_ratio,
                      static_cast<double>(recipe.seed), static_cast<double>(options.seed),
                      recipe.has_chip_trees ? 1.0 : 0.0, recipe.one_gpu ? 1.0 : 0.0,
                      recipe.monotone ? recipe.heuristic_power : 0.0, options.validate ? 1.0 : 0.0,
                      options.leaves_gpus_out ? 1.0 : 0.0, options.tries_grid ? 1.0 : 0.0}) {
    key = mix(key ^ std::bit_cast<std::uint64_t>(part));
  }
  return mix(key ^ std::hash<std::string>{}(options.card));
}

/// A finished model's file next to the final one, until all of them are finished.
std::filesystem::path partial_file(const std::filesystem::path& file, std::uint64_t fingerprint) {
  std::filesystem::path partial = file;
  partial += fmt::format(".{:016x}.partial", fingerprint);
  return partial;
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
    return decline(fmt::format(
        "expected rows with a time and of a family that can be learned ({}), found none",
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
    PERFMODEL_TRY(trained, train_group(group, options));
    models.push_back(std::move(trained->model));
    report.models.push_back(std::move(trained->report));
    if (groups.size() > 1) {
      PERFMODEL_TRY(written, learned::write_model_file(partial_files.back(), {models.back()}));
    }
  }
  PERFMODEL_TRY_TO(learned::write_model_file(file, models));
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
    auto trained = train_group(group, options);
    if (!trained) {
      report.skipped.push_back({name_of(group), group.fitted.size(), trained.error().message});
      continue;
    }
    models.push_back(std::move(trained->model));
    report.models.push_back(std::move(trained->report));
    report.models.back().file = name_of(group) + ".json";
  }
  if (models.empty()) {
    return decline(fmt::format(
        "expected at least {} rows with a time of one family that can be learned ({}), found none",
        kFewest, fmt::join(learned_families(), ", ")));
  }
  for (std::size_t i = 0; i < models.size(); ++i) {
    PERFMODEL_TRY(written, learned::write_model_file(folder / report.models[i].file, {models[i]}));
  }
  return report;
}

}  // namespace perfmodel::training
