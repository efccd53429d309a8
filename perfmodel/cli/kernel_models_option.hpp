#pragma once

#include <CLI/App.hpp>
#include <optional>
#include <string>

#include "perfmodel/predictors/kernel.hpp"
#include "perfmodel/predictors/learned_models.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel::cli {

/// `--models NAME`; `name` keeps its value as the default.
CLI::Option* add_models_option(CLI::App& app, std::string& name);

/// The kernel models that a command prices with.
struct ChosenModels {
  KernelModels models;
  std::optional<LearnedModels> owner = {};
  std::string warning = {};  ///< what was taken instead of what was asked for

  /// A model file that was needed and could not be read. Ask after pricing.
  Result<void> check() const;
};

/// "learned": the files in data/models; "heuristic", "roofline"; else a model file.
Result<ChosenModels> kernel_models_by_name(const std::string& name);

}  // namespace perfmodel::cli
