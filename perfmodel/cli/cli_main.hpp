#pragma once

#include <CLI/App.hpp>
#include <vector>

#include "command.hpp"

namespace perfmodel::cli {

using MakeCommands = std::vector<Command> (*)(CLI::App& app);

/// Parses, runs the chosen command, prints one line per problem; the exit status.
int cli_main(int argc, char** argv, MakeCommands make_commands);

}  // namespace perfmodel::cli
