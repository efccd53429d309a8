#pragma once

#include <CLI/App.hpp>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "perfmodel/graph/rewrite.hpp"

namespace perfmodel::cli {

/// One rewrite as a flag. A new one is a function that returns this, in a file of its own, and a
/// line in rewrite_options().
struct RewriteOption {
  std::string flag;   ///< "--batch"
  std::string value;  ///< what it takes, for `--help`: "B"; empty: it takes nothing
  std::string help;
  /// Applies to a graph that `build` just made (precision, checkpointing, ...); there the builder
  /// has its own flags for sizes and the optimizer.
  bool for_build = false;
  /// The rewrite for a value. An error is bad usage: of the text alone, no graph is known yet.
  std::function<Result<Rewrite>(const std::string& text)> parse;
};

/// All of them, in the order of `--help`.
const std::vector<RewriteOption>& rewrite_options();

/// The option of a flag ("--batch" or "batch"); null if there is none.
const RewriteOption* find_rewrite_option(std::string_view flag);

/// One value of an option as a rewrite that is called like its text: "--batch 1024".
Result<NamedRewrite> named_rewrite(const RewriteOption& option, const std::string& text);

enum class RewriteFlags { kAll, kForBuild };

/// Adds the flags; `rewrites` has their values in the order of the command line after parsing.
void add_rewrite_options(CLI::App& app, std::vector<NamedRewrite>& rewrites,
                         RewriteFlags which = RewriteFlags::kAll);

}  // namespace perfmodel::cli
