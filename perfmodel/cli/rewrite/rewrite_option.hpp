#pragma once

#include <functional>
#include <optional>
#include <string>
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
  /// Flags that say more of this one's value ("--compression 100"), as if that stood behind it:
  /// "VALUE:compression=100".
  struct Detail {
    std::string flag, value, help;
  };
  std::vector<Detail> details = {};
  bool of_ops_alone = false;  ///< this and the next: see NamedRewrite
  std::optional<Launching> launching = {};
};

}  // namespace perfmodel::cli
