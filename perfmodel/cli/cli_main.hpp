#pragma once

#include <CLI/App.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "command.hpp"

namespace perfmodel::cli {

/// `first`: the first word, empty without any. Where it names a command, the others may be left
/// out: to make all of them takes longer than many a prediction.
using MakeCommands = std::vector<Command> (*)(CLI::App& app, std::string_view first);

/// What the user may have meant by a word that is none of the sub-commands of `command`, as it is
/// to be typed; empty: nobody knows.
using Suggest = std::string (*)(const CLI::App& command, const std::string& word);

/// Where the command stands among the words: behind `--json-limit SIZE`, which all commands take.
int command_place(int argc, char** argv);

/// Parses, runs the chosen command, prints one line per problem; the exit status. `suggest` is
/// asked where no name of a command is near.
int cli_main(int argc, char** argv, MakeCommands make_commands, Suggest suggest = nullptr);

}  // namespace perfmodel::cli
