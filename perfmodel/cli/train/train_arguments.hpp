#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "terminal/command_parser.hpp"

namespace perfmodel::cli {

struct TrainArguments {
  std::vector<std::string> data;
  std::string output, rows = "all", family, dtype, op, gpu, report, base, calibrate, few_shot, note;
  std::uint64_t seed = 1;
  bool grid = false, no_validation = false, json = false;
};

/// The parser of `train`, in the program that runs it and in the one that starts that.
CommandParser add_train_command(CommandParser parent,
                                const std::shared_ptr<TrainArguments>& arguments);

}  // namespace perfmodel::cli
