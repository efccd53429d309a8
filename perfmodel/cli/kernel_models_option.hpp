#pragma once

#include <string>

#include "terminal/cli11.hpp"

namespace perfmodel::cli {

/// `--models NAME`, as `choose_kernel_models` takes it; `name` keeps its value as the default.
CLI::Option* add_models_option(CLI::App& app, std::string& name);

}  // namespace perfmodel::cli
