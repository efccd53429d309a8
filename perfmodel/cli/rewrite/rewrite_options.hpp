#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "perfmodel/graph/rewrite.hpp"
#include "rewrite_option.hpp"
#include "terminal/command_parser.hpp"

namespace perfmodel::cli {

/// All of them, in the order of `--help`.
const std::vector<RewriteOption>& rewrite_options();

/// The option of a flag ("--batch" or "batch"); null if there is none.
const RewriteOption* find_rewrite_option(std::string_view flag);

/// One value of an option as a rewrite that is called like its text: "--batch 1024".
Result<NamedRewrite> named_rewrite(const RewriteOption& option, const std::string& text);

/// The value with what a detail's flag says of it.
std::string with_detail(const std::string& value, const RewriteOption::Detail& detail,
                        const std::string& text);

enum class RewriteFlags { kAll, kForBuild };

/// Adds the flags; `rewrites` has their values in the order of the command line after parsing.
void add_rewrite_options(CommandParser app, std::vector<NamedRewrite>& rewrites,
                         RewriteFlags which = RewriteFlags::kAll);

}  // namespace perfmodel::cli
