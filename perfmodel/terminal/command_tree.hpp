#pragma once

#include <string>
#include <vector>

namespace perfmodel::cli {

class CommandParser;

/// One option or positional argument, as its parser describes it.
struct OptionText {
  std::vector<std::string> names;    ///< "-o", "--output"; of a positional one, its name
  std::string value;                 ///< "FILE"; empty: a flag, or a positional one
  std::vector<std::string> choices;  ///< the values that there are; empty: any
  std::string fallback;              ///< value by default, where the parser knows it
  std::string help;
  bool required = false, repeated = false;  ///< `repeated`: takes several values
};

/// One command. Path "" names the program itself.
struct CommandText {
  std::string path;  ///< "build dlrm"
  std::string help, footer;
  std::vector<std::string> commands;  ///< names of those below it
  std::vector<OptionText> positionals, options;
};

/// The contents of the parsers of all commands, each command before its subcommands. Hidden ones
/// are left out. Manual page and completions are made from it, so they say what `--help` says.
std::vector<CommandText> command_tree(const CommandParser& program);

}  // namespace perfmodel::cli
