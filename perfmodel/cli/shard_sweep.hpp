#pragma once

#include <string>
#include <vector>

#include "perfmodel/result.hpp"
#include "shard_study.hpp"
#include "terminal/cli11.hpp"

namespace perfmodel::cli {

struct SweepArguments {
  std::string axis, csv, plot;
  std::vector<std::string> values;
};

void add_sweep_options(CLI::App& app, SweepArguments& arguments);

/// The best plan for each value of the axis, or the given plan under it.
Result<void> run_sweep(const ShardArguments& study, const SweepArguments& sweep,
                       const std::vector<std::string>& plans);

}  // namespace perfmodel::cli
