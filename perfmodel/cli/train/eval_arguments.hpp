#pragma once

#include <memory>
#include <string>
#include <vector>

#include "terminal/command_parser.hpp"

namespace perfmodel::cli {

struct EvalArguments {
  std::vector<std::string> files;
  std::string model, models = "learned", op, dtype, shapes = "all", gpu;
  double min_us = 0, kernel_gap_us = 0;
  bool graphs = false, json = false;
};

/// The parser of `eval`, in the program that runs it and in the one that starts that.
CommandParser add_eval_command(CommandParser parent,
                               const std::shared_ptr<EvalArguments>& arguments);

}  // namespace perfmodel::cli
