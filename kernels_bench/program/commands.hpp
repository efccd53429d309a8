#pragma once

#include <functional>
#include <string>
#include <vector>

#include "../families/family.hpp"
#include "campaign.hpp"
#include "perfmodel/result.hpp"
#include "terminal/cli11.hpp"

namespace kernels_bench {

struct Command {
  CLI::App* app = nullptr;
  std::function<perfmodel::Result<void>()> run;
};

/// `command_line` goes into the head of tables.
Command run_command(CLI::App& parent, std::string command_line, const StopFlag& stop);
Command plan_command(CLI::App& parent);
Command bench_command(CLI::App& parent);
Command device_command(CLI::App& parent);
/// Not in --help: what packages install beside the program.
Command man_command(CLI::App& parent);
Command completion_command(CLI::App& parent);

/// Families, and the backends of this build with their devices.
perfmodel::Result<void> print_list();

/// By name; without names those of the default campaign.
perfmodel::Result<std::vector<const Family*>> families_of(const std::vector<std::string>& names);

/// Checks of options, with messages that fit on a line.
CLI::Validator whole_number(long least);  // up to a billion
CLI::Validator positive_number();

/// "90s", "8m", "1.5h", or plain seconds.
perfmodel::Result<double> seconds_of(const std::string& text);

}  // namespace kernels_bench
