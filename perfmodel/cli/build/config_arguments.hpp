#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "build_arguments.hpp"
#include "cli/shared/arguments.hpp"
#include "perfmodel/result.hpp"
#include "terminal/command_parser.hpp"

namespace perfmodel::cli {

/// Flags of a model family: a preset, and members of its config that are given by themselves.
/// `Config` has the members `name` and `training`.
template <class Config>
struct ConfigArguments {
  BuildArguments build;
  std::string preset;
  std::vector<std::function<void(Config&)>> changes;  ///< in the order of the flags

  /// Without the flag `start`; without that the defaults of `Config`.
  void add_preset(CommandParser app, const std::string& start = {}) {
    preset = start;
    const Option option =
        app.add_option("--preset", preset, "Start from a known model; flags override it")
            .type_name("NAME");
    if (!start.empty()) option.capture_default_str();
  }

  /// A number or a text.
  template <class T>
  Option add(CommandParser app, const std::string& flag, T Config::*member,
             const std::string& help) {
    return app.add_option_function<T>(
        flag,
        [this, member](const T& value) {
          changes.push_back([member, value](Config& config) { config.*member = value; });
        },
        help);
  }

  /// `names`: "--flag", or "--flag,!--no-flag" for one that is on by default.
  void add_flag(CommandParser app, const std::string& names, bool Config::*member,
                const std::string& help) {
    app.add_flag_function(
        names,
        [this, member](std::int64_t count) {
          changes.push_back([member, count](Config& config) { config.*member = count > 0; });
        },
        help);
  }

  /// Widths such as 512-256-64.
  void add_widths(CommandParser app, const std::string& flag,
                  std::vector<std::int64_t> Config::*member, const std::string& help) {
    app.add_option_function<std::string>(
           flag,
           [this, flag, member](const std::string& text) {
             const auto widths = parse_widths(text);
             if (!widths) {
               bad_usage(flag, "expected widths such as 512-256-64, found " + text);
             }
             changes.push_back([member, widths](Config& config) { config.*member = *widths; });
           },
           help)
        .type_name("W-W-...");
  }

  /// One of several names.
  template <class T>
  void add_choice(CommandParser app, const std::string& flag, T Config::*member,
                  const std::map<std::string, T>& choices, const std::string& help) {
    app.add_option_function<std::string>(
           flag,
           [this, member, choices](const std::string& text) {
             changes.push_back(
                 [member, value = choices.at(text)](Config& config) { config.*member = value; });
           },
           help)
        .check(one_of(choices));
  }

  /// The preset (the defaults of `Config` without one) with all changes.
  Result<Config> configure(Result<Config> (*find_preset)(std::string_view)) const {
    Config config;
    if (!preset.empty()) {
      auto found = find_preset(preset);
      if (!found) return found;
      config = std::move(*found);
    }
    for (const auto& change : changes) change(config);
    config.training = build.training;
    return config;
  }
};

/// Builds the graph of `arguments` and writes it; `facts_of` says which model it is of.
template <class Config>
Result<void> write_model(CommandParser app, const ConfigArguments<Config>& arguments,
                         Result<Config> (*find_preset)(std::string_view),
                         Result<ExecutionGraph> (*build)(const Config&),
                         ModelFacts (*facts_of)(const Config&)) {
  const auto config = arguments.configure(find_preset);
  if (!config) return Unexpected{config.error()};
  const auto graph = build(*config);
  if (!graph) return Unexpected{graph.error()};
  return write_built_graph(app, arguments.build, *graph, facts_of(*config));
}

}  // namespace perfmodel::cli
