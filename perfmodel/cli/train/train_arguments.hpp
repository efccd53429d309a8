#pragma once

#include <memory>
#include <string>

#include "learned/train_question.hpp"
#include "terminal/command_parser.hpp"

namespace perfmodel::cli {

struct TrainArguments : training::TrainQuestion {
  std::string output, dtype, op, gpu, report, base, calibrate, few_shot;
  std::size_t points = 0;  ///< rows that --calibrate takes; 0: all
  bool json = false;
};

/// The parser of `train`, in the program that runs it and in the one that starts that.
CommandParser add_train_command(CommandParser parent,
                                const std::shared_ptr<TrainArguments>& arguments);

}  // namespace perfmodel::cli
