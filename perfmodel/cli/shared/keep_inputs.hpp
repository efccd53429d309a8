#pragma once

#include "perfmodel/result.hpp"
#include "terminal/command_parser.hpp"

namespace perfmodel::cli {

/// An error if an output flag (-o, --timeline, ...) of a parsed command names the same file as
/// another flag or argument, by whatever path.
Result<void> keep_inputs(CommandParser app);

}  // namespace perfmodel::cli
