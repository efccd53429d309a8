#pragma once

#include <functional>
#include <memory>
#include <string>

#include "command_parser.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel::cli {

/// One sub-command: its parser and the function to run on the parsed arguments.
struct Command {
  CommandParser app;
  std::function<Result<void>()> run;
  /// Exit status after a run that succeeded; null: 0.
  std::shared_ptr<const int> verdict = {};
};

// Commands that are not in --help: they print pages that packages install with the program.

Command completion_command(CommandParser parent, const std::string& program);
/// `purpose` follows the name of the program: "predicts ...".
Command man_command(CommandParser parent, const std::string& program, const std::string& purpose);

}  // namespace perfmodel::cli
