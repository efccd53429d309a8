#pragma once

#include <vector>

#include "perfmodel/graph/rewrite.hpp"
#include "terminal/command_parser.hpp"

namespace perfmodel::cli {

enum class RewriteFlags {
  kAll,
  kForBuild,
  kFirst  ///< before another question, in a group of the help with one sentence each
};

/// Text below the flags in the help of such a command.
inline constexpr const char* kRewritesRule =
    "Rewrites change the graph first, in the order of the flags, which may be repeated;\n"
    "`perfpredict rewrite --help` says more of each.";

/// Adds the flags; `rewrites` has their values in the order of the command line after parsing.
void add_rewrite_options(CommandParser app, std::vector<NamedRewrite>& rewrites,
                         RewriteFlags which = RewriteFlags::kAll);

}  // namespace perfmodel::cli
