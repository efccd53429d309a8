#include "arguments.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/decimal_number.hpp"
#include "perfmodel/predict.hpp"

namespace perfmodel::cli {
namespace {

// "1024-512-64" as widths; nothing if the text is something else.
std::optional<std::vector<std::int64_t>> parse_widths(const std::string& text) {
  std::vector<std::int64_t> widths;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('-', begin), text.size());
    std::int64_t width = 0;
    if (!read_decimal(std::string_view(text).substr(begin, end - begin), width)) return {};
    widths.push_back(width);
    begin = end + 1;
  }
  return widths;
}

}  // namespace

Option add_window(CommandParser app, const std::string& name, Window& window,
                  const std::string& help) {
  const auto parse = [name, &window](const std::string& text) {
    const std::size_t colon = text.find(':');
    std::pair<std::size_t, std::size_t> range;
    if (colon == std::string::npos ||
        !read_decimal(std::string_view(text).substr(0, colon), range.first) ||
        !read_decimal(std::string_view(text).substr(colon + 1), range.second) ||
        range.first >= range.second) {
      bad_usage(name, "expected A:B with A < B, found " + text);
    }
    window = range;
  };
  return app.add_option_function<std::string>(name, parse, help).type_name("A:B");
}

Check at_least(double minimum) {
  const auto check = [minimum](std::string& text) -> std::string {
    double number = 0;
    if (read_decimal(text, number) && std::isfinite(number) && number >= minimum) return "";
    return fmt::format("expected a number of at least {}, found {}", minimum, text);
  };
  return {check, ""};
}

Check between(double low, double high) {
  const auto check = [low, high](std::string& text) -> std::string {
    double number = 0;
    if (read_decimal(text, number) && number >= low && number <= high) return "";
    return fmt::format("expected a number between {} and {}, found {}", low, high, text);
  };
  return {check, ""};
}

void add_reading(CommandParser app, ReadOptions& options) {
  options.dash_is_stdin = true;
  app.add_flag("--salvage", options.salvage,
               "Recover every complete node or event of broken files, with warnings");
  const auto set = [&options](const std::vector<std::string>& assignments) {
    for (const std::string& assignment : assignments) {
      if (auto done = set_limit(options.limits, assignment); !done) {
        bad_usage("--limit", done.error().message);
      }
    }
  };
  app.add_option_function<std::vector<std::string>>(
         "--limit NAME=VALUE", set,
         "What a file may ask for, e.g. nesting=200: " + read_limit_names())
      .expected(1)
      .take_all();
}

Result<void> all_different(const std::vector<std::string>& files) {
  for (std::size_t i = 0; i < files.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      std::error_code ignored;
      if (files[i] != files[j] && !std::filesystem::equivalent(files[i], files[j], ignored))
        continue;
      return decline(files[i] == "-" ? "expected standard input once, found it a second time"
                                     : "expected every rank once, found this one a second time",
                     files[i]);
    }
  }
  return {};
}

void return_swallowed(std::vector<std::string>& files, std::vector<std::string>& values,
                      std::size_t keep) {
  if (!files.empty() || values.size() <= keep) return;
  const auto first = values.begin() + static_cast<std::ptrdiff_t>(keep);
  files.assign(first, values.end());
  values.erase(first, values.end());
}

Option add_widths(CommandParser app, const std::string& name,
                  const std::function<void(const std::vector<std::int64_t>&)>& set,
                  const std::string& help) {
  const auto parse = [name, set](const std::string& text) {
    const auto widths = parse_widths(text);
    if (!widths) bad_usage(name, "expected widths such as 512-256-64, found " + text);
    set(*widths);
  };
  return app.add_option_function<std::string>(name, parse, help).type_name("W-W-...");
}

Option add_scale_host(CommandParser app, double& scale) {
  return app
      .add_option("--scale-host X", scale, "Multiply the host's own time; above 1 is a slower host")
      .check(between(1 / kMostHostScale, kMostHostScale))
      .capture_default_str();
}

}  // namespace perfmodel::cli
