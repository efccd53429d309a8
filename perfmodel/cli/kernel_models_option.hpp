#pragma once

#include <CLI/App.hpp>
#include <string>

#include "perfmodel/predictors/kernel.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel::cli {

/// `--models NAME`; `name` keeps its value as the default.
CLI::Option* add_models_option(CLI::App& app, std::string& name);

/// The kernel models that `--models` names.
Result<KernelModels> kernel_models_by_name(const std::string& name);

}  // namespace perfmodel::cli
