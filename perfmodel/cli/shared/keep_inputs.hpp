#pragma once

#include "perfmodel/result.hpp"
#include "terminal/command_parser.hpp"

namespace perfmodel::cli {

/// An error where a flag that names an output (-o, --timeline, ...) of the commands that were
/// parsed names a file that another flag or argument names, too, by whatever path.
Result<void> keep_inputs(CommandParser app);

}  // namespace perfmodel::cli
