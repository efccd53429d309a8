#pragma once

#include <string>
#include <vector>

#include "command_tree.hpp"

namespace perfmodel::cli {

/// A script for bash: completes commands, options, and values where a parser knows them; file names
/// elsewhere.
std::string bash_completion(const std::vector<CommandText>& tree);

}  // namespace perfmodel::cli
