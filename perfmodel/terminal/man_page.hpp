#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "command_tree.hpp"

namespace perfmodel::cli {

/// The manual page of a program, of section 1: roff with the macros of man(7), in UTF-8.
/// `purpose` follows its name: "predicts ...".
std::string man_page(const std::vector<CommandText>& tree, std::string_view program,
                     std::string_view purpose);

}  // namespace perfmodel::cli
