#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "perfmodel/graph/rewrite.hpp"

namespace perfmodel {

/// One rewrite as `rewrite`, `build`, `whatif`, sweeps and advice ask for it.
struct RewriteOption {
  std::string flag;   ///< "--batch"
  std::string value;  ///< its value in `--help`: "B"; empty: it takes none
  std::string help;
  /// Applies to a graph that `build` just made (precision, checkpointing, ...); there the builder
  /// has its own flags for sizes and the optimizer.
  bool for_build = false;
  /// The rewrite for a value. An error is bad usage: of the text alone, no graph is known yet.
  Result<Rewrite> (*parse)(const std::string& text);
  bool of_ops_alone = false;  ///< this and the next: see NamedRewrite
  std::optional<Launching> launching = {};
  /// Flags that add to this one's value ("--compression 100"), as if it were written after it:
  /// "VALUE:compression=100".
  struct Detail {
    std::string flag, value, help;
  };
  std::vector<Detail> details = {};
  std::string without_value = {};  ///< the value of the flag alone; empty: it needs one
};

inline constexpr const char* kCudaGraphsHelp =
    "The host launches each stretch of the step that does not wait for the device as one captured "
    "graph";
inline constexpr const char* kCompiledHelp =
    "The host does nothing but launch kernels within such stretches: the least that compiled code "
    "does";

/// All of them, in the order of `--help`.
const std::vector<RewriteOption>& rewrite_options();

/// The option of a flag ("--batch" or "batch"); null if there is none.
const RewriteOption* find_rewrite_option(std::string_view flag);

/// One value of an option as a rewrite that is called like its text: "--batch 1024".
Result<NamedRewrite> named_rewrite(const RewriteOption& option, const std::string& text);

/// The same by the name of an option that there is; "on" stands for the flag without a value.
Result<NamedRewrite> rewrite_of(const std::string& name, const std::string& value);

/// The value with the text of a detail's flag added.
std::string with_detail(const std::string& value, const RewriteOption::Detail& detail,
                        const std::string& text);

}  // namespace perfmodel
