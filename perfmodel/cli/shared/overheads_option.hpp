#pragma once

#include <string>

#include "terminal/command_parser.hpp"

namespace perfmodel::cli {

/// `--host HOST` of a string or of a list of them; `--overheads` is its older name. An empty text,
/// as a variable of the shell that is not set leaves it, is bad usage and not the default.
template <class Value>
Option add_overheads_option(CommandParser app, Value& value, const std::string& help) {
  return app.add_option("--host,--overheads HOST", value, help).check([](const std::string& text) {
    return text.empty() ? std::string(
                              "expected reference, measured, v100-server-2023 or a file, found "
                              "an empty text (a "
                              "variable of the shell that is not set?)")
                        : std::string();
  });
}

/// `--as-recorded`
inline void add_as_recorded(CommandParser app, bool& recorded) {
  app.add_flag("--as-recorded", recorded,
               "Of a trace the host as its profiler slowed it, not as it runs without");
}

}  // namespace perfmodel::cli
