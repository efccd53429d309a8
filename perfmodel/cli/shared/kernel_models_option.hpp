#pragma once

#include <string>

#include "terminal/command_parser.hpp"

namespace perfmodel::cli {

/// `--models NAME`, as `choose_kernel_models` takes it; `name` keeps its value as the default.
Option add_models_option(CommandParser app, std::string& name,
                         const std::string& help =
                             "Kernel models: learned (files of data/models, else the heuristic), "
                             "heuristic, roofline, or a file of `perfpredict train`");

}  // namespace perfmodel::cli
