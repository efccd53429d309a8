#pragma once

#include <string>

#include "cli11.hpp"

namespace perfmodel::cli {

/// `--overheads TABLE` of a string or of a list of them. An empty text, as a variable of the shell
/// that is not set leaves it, is bad usage and not the default.
template <class Value>
CLI::Option* add_overheads_option(CLI::App& app, Value& value, const std::string& help) {
  return app.add_option("--overheads", value, help)
      ->type_name("TABLE")
      ->check([](const std::string& text) {
        return text.empty() ? std::string(
                                  "expected reference, measured or a file, found an empty text (a "
                                  "variable of the shell that is not set?)")
                            : std::string();
      });
}

}  // namespace perfmodel::cli
