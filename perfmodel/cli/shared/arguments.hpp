#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/file_name.hpp"
#include "perfmodel/graph/detail/read_options.hpp"
#include "perfmodel/result.hpp"
#include "terminal/command_parser.hpp"

namespace perfmodel::cli {

/// Iterations [first, last), counted from 0.
using Window = std::optional<std::pair<std::size_t, std::size_t>>;

/// Adds an option that takes "A:B".
Option add_window(CommandParser app, const std::string& name, Window& window,
                  const std::string& help);

/// Refuses numbers below `minimum`, infinite ones and text that is no number.
Check at_least(double minimum);

/// Refuses numbers outside of [low, high] and text that is no number.
Check between(double low, double high);

/// Adds --salvage and --limit of a command that reads graphs or traces, and makes "-" standard
/// input.
void add_reading(CommandParser app, ReadOptions& options);

/// An error that names the first file that is given twice, by whatever path.
Result<void> all_different(const std::vector<std::string>& files);

/// A flag with several values swallows files that follow it: `--overheads TABLE GRAPH`. If `files`
/// is empty, all but the first `keep` values of `values` are files.
void return_swallowed(std::vector<std::string>& files, std::vector<std::string>& values,
                      std::size_t keep);

/// A flag that takes widths such as "1024-512-64".
Option add_widths(CommandParser app, const std::string& name,
                  const std::function<void(const std::vector<std::int64_t>&)>& set,
                  const std::string& help);

/// Help of `--host` in commands that predict.
inline const std::string kOverheadsHelp =
    "Whose host: reference (one for every GPU, without a profiler; the default), measured "
    "(recorded "
    "beside the GPU), v100-server-2023 (under its profiler) or a table from `overheads`";

/// `--scale-host X`.
Option add_scale_host(CommandParser app, double& scale);

}  // namespace perfmodel::cli
