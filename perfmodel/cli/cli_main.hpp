#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/shared/command.hpp"
#include "terminal/command_parser.hpp"

namespace perfmodel::cli {

/// `first`: the first word, empty without any. Where it names a command, the others may be left
/// out: to make all of them takes longer than many a prediction.
using MakeCommands = std::vector<Command> (*)(CommandParser app, std::string_view first);

/// What the user may have meant by a word that is none of the sub-commands of `command`, as it is
/// to be typed; empty: nobody knows.
using Suggest = std::string (*)(CommandParser command, const std::string& word);

enum ExitCode { kOk = 0, kBadInput = 1, kBadUsage = 2 };

/// What came of a command line.
struct Outcome {
  ExitCode status = kOk;
  Error error = {};  ///< where the status is not kOk
};

/// Where the command stands among the words: behind `--json-limit SIZE`, which all commands take.
std::size_t command_place(const std::vector<std::string>& words);

/// Parses words (without the name of the program) and runs the command that they choose. Throws
/// what the command throws: out of memory, Stopped.
Outcome run_command_line(const std::vector<std::string>& words, MakeCommands make_commands,
                         Suggest suggest = nullptr);

/// The same for a program: takes its signals, prints one line per problem; the exit status.
/// `suggest` is asked where no name of a command is near.
int cli_main(const std::vector<std::string>& words, MakeCommands make_commands,
             Suggest suggest = nullptr);

}  // namespace perfmodel::cli
