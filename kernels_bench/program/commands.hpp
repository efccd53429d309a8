#pragma once

#include <string>
#include <vector>

#include "../families/family.hpp"
#include "campaign.hpp"
#include "perfmodel/result.hpp"
#include "terminal/page_commands.hpp"

namespace kernels_bench {

using perfmodel::cli::Check;
using perfmodel::cli::Command;
using perfmodel::cli::CommandParser;
using perfmodel::cli::in_range;
using perfmodel::cli::one_of;
using perfmodel::cli::Option;
using perfmodel::cli::ParsedWords;
using perfmodel::cli::ProgramParser;

/// `command_line` goes into the head of tables.
Command run_command(CommandParser parent, std::string command_line, const StopFlag& stop);
Command plan_command(CommandParser parent);
Command bench_command(CommandParser parent);
Command device_command(CommandParser parent);

/// Families, and the backends of this build with their devices.
perfmodel::Result<void> print_list();

/// Families by name; without names, the default campaign's.
perfmodel::Result<std::vector<const Family*>> families_of(const std::vector<std::string>& names);

/// Checks of options, with messages that fit on a line.
Check whole_number(long least);  // up to a billion
Check positive_number();

/// "90s", "8m", "1.5h", or plain seconds.
perfmodel::Result<double> seconds_of(const std::string& text);

}  // namespace kernels_bench
