#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "command_tree.hpp"

namespace perfmodel::cli {

/// A script for bash: completes commands, options, and values where a parser knows them; file names
/// elsewhere.
std::string bash_completion(const std::vector<CommandText>& tree, std::string_view program);

/// The same for zsh, which reads what is written for bash.
std::string zsh_completion(const std::vector<CommandText>& tree, std::string_view program);

}  // namespace perfmodel::cli
