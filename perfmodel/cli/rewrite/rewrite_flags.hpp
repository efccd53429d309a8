#pragma once

#include <vector>

#include "perfmodel/graph/rewrite.hpp"
#include "terminal/command_parser.hpp"

namespace perfmodel::cli {

enum class RewriteFlags { kAll, kForBuild };

/// Adds the flags; `rewrites` has their values in the order of the command line after parsing.
void add_rewrite_options(CommandParser app, std::vector<NamedRewrite>& rewrites,
                         RewriteFlags which = RewriteFlags::kAll);

}  // namespace perfmodel::cli
