#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "command.hpp"
#include "terminal/cli11.hpp"

namespace perfmodel::cli {

/// The commands of perfpredict; the one of name `first` alone, if there is one (see MakeCommands).
std::vector<Command> make_commands(CLI::App& app, std::string_view first);

/// `shard TABLES` is `shard rank TABLES`, `layout MODEL` is `layout rank MODEL`.
void add_default_command(std::vector<std::string>& words);

}  // namespace perfmodel::cli
