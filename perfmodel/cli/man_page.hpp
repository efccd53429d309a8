#pragma once

#include <string>
#include <vector>

#include "command_tree.hpp"

namespace perfmodel::cli {

/// The manual page perfpredict(1): roff with the macros of man(7), in UTF-8.
std::string man_page(const std::vector<CommandText>& tree);

}  // namespace perfmodel::cli
