#pragma once

#include <string>

#include "perfmodel/result.hpp"
#include "sharding/study/study_sweep.hpp"
#include "terminal/command_parser.hpp"

namespace perfmodel::cli {

struct SweepArguments : sharding::SweepQuestion {
  std::string csv, plot;
};

void add_sweep_options(CommandParser app, SweepArguments& arguments);

/// Prints the best plan for each value of the axis, or the given plan under it.
Result<void> run_sweep(const SweepArguments& arguments, bool json);

}  // namespace perfmodel::cli
