#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/shared/command.hpp"
#include "terminal/command_parser.hpp"

namespace perfmodel::cli {

/// The commands of perfpredict; only the one of name `first`, if there is one (see MakeCommands).
std::vector<Command> make_commands(CommandParser app, std::string_view first);

/// `shard TABLES` is `shard rank TABLES`, `layout MODEL` is `layout rank MODEL`.
void add_default_command(std::vector<std::string>& words);

}  // namespace perfmodel::cli
