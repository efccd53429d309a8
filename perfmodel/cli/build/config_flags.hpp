#pragma once

#include <functional>
#include <span>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "builders/config_field.hpp"
#include "cli/shared/arguments.hpp"
#include "cli/shared/field_flags.hpp"
#include "terminal/command_parser.hpp"

/// Flags of the fields of a config.
namespace perfmodel::cli {

template <class Config>
Option add_config_flag(CommandParser app, const ConfigField<Config>& field,
                       const ConfigChoice<Config>& choice, Config& config) {
  const auto choose = [&config, choice](const std::string& name) { choice.choose(config, name); };
  return app.add_option_function<std::string>(flag_of(field.name), choose, std::string(field.help))
      .check(one_of(std::vector<std::string>(choice.names.begin(), choice.names.end())));
}

template <class Config, class Member>
Option add_config_flag(CommandParser app, const ConfigField<Config>& field, Member member,
                       Config& config) {
  const std::string flag = flag_of(field.name), help(field.help);
  auto& value = std::invoke(member, config);
  using Value = std::remove_reference_t<decltype(value)>;
  if constexpr (std::is_same_v<Value, std::vector<std::int64_t>>) {
    return add_widths(
        app, flag, [&value](const Value& widths) { value = widths; }, help);
  } else if constexpr (std::is_same_v<Value, bool>) {
    if (field.deniable) return add_deniable_flag(app, flag, value, help);
    return app.add_flag(flag, value, help);
  } else {
    return app.add_option(flag, value, help);
  }
}

/// `config` gets the values.
template <class Config>
void add_config_flags(CommandParser app, std::span<const ConfigField<Config>> fields,
                      std::type_identity_t<Config>& config) {
  for (const ConfigField<Config>& field : fields) {
    const Option option =
        std::visit([&](const auto& member) { return add_config_flag(app, field, member, config); },
                   field.member);
    if (!field.takes.empty()) option.type_name(std::string(field.takes));
    if (!field.shown.empty()) option.default_str(std::string(field.shown));
  }
}

/// Copies the fields whose flags were given from `given`, which got their values.
template <class Config>
void copy_given(CommandParser app, std::span<const ConfigField<Config>> fields,
                std::type_identity_t<Config>& given, std::type_identity_t<Config>& config) {
  for (const ConfigField<Config>& field : fields) {
    const Option option = app.option(flag_of(field.name));
    if (option.count() == 0) continue;
    const auto copy = [&](const auto& member) {
      if constexpr (std::is_same_v<decltype(member), const ConfigChoice<Config>&>) {
        member.choose(config, option.values().back());
      } else {
        std::invoke(member, config) = std::invoke(member, given);
      }
    };
    std::visit(copy, field.member);
  }
}

}  // namespace perfmodel::cli
