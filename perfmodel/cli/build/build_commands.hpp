#pragma once

#include <string>

#include "terminal/command_parser.hpp"

namespace perfmodel::cli {

/// "build gpt --preset gpt2" for `build gpt2`: the name of a preset is no family. Empty: it is no
/// preset, or `command` is not `build`.
std::string suggest_preset(CommandParser command, const std::string& word);

}  // namespace perfmodel::cli
