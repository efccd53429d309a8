#pragma once

#include <CLI/App.hpp>
#include <string>
#include <vector>

#include "command.hpp"

namespace perfmodel::cli {

using MakeCommands = std::vector<Command> (*)(CLI::App& app);

/// What the user may have meant by a word that is none of the sub-commands of `command`, as it is
/// to be typed; empty: nobody knows.
using Suggest = std::string (*)(const CLI::App& command, const std::string& word);

/// Parses, runs the chosen command, prints one line per problem; the exit status. `suggest` is
/// asked where no name of a command is near.
int cli_main(int argc, char** argv, MakeCommands make_commands, Suggest suggest = nullptr);

}  // namespace perfmodel::cli
