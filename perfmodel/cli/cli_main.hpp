#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/shared/command.hpp"
#include "terminal/command_parser.hpp"

namespace perfmodel::cli {

/// `first`: the first word, empty without any. If it names a command, only that command must be
/// made: making all of them takes longer than some predictions.
using MakeCommands = std::vector<Command> (*)(CommandParser app, std::string_view first);

/// The intended word, ready to type, if a word is none of the sub-commands of `command`; empty:
/// unknown.
using Suggest = std::string (*)(CommandParser command, const std::string& word);

enum ExitCode { kOk = 0, kBadInput = 1, kBadUsage = 2 };

/// Result of a command line.
struct Outcome {
  ExitCode status = kOk;
  Error error = {};  ///< if the status is not kOk
  int verdict = 0;   ///< exit status if the status is kOk
};

/// Position of the command among the words: after `--json-limit SIZE` and the like, which all take.
std::size_t command_place(const std::vector<std::string>& words);

/// Parses words (without the name of the program) and runs the command that they choose. Throws
/// what the command throws: out of memory, Stopped.
Outcome run_command_line(const std::vector<std::string>& words, MakeCommands make_commands,
                         Suggest suggest = nullptr);

/// The same for a program: takes its signals, prints one line per problem; the exit status.
/// `suggest` is asked if no command has a similar name.
int cli_main(const std::vector<std::string>& words, MakeCommands make_commands,
             Suggest suggest = nullptr);

}  // namespace perfmodel::cli
