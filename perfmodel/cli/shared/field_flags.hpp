#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "arguments.hpp"
#include "base/split.hpp"
#include "fields/field.hpp"
#include "terminal/command_parser.hpp"

/// Flags of the fields of a question.
namespace perfmodel::cli {

/// Lets the flag refuse values that the field cannot have.
template <class Question, class... More>
void check_field(Option option, const Field<Question, More...>& field) {
  const auto [low, high] = field.range;
  if (std::isfinite(low)) option.check(std::isfinite(high) ? between(low, high) : at_least(low));
  if (field.refuse) {
    option.check([refuse = field.refuse](const std::string& word) { return refuse(word); });
  }
  option.type_name(std::string(field.takes));  // a check writes its own
  if (field.choices.empty()) return;
  const auto choices = split(field.choices, ' ');
  option.check(one_of({choices.begin(), choices.end()})).type_name(std::string(field.takes));
}

/// Adds --flag and --no-flag.
template <class Value>
Option add_deniable_flag(CommandParser app, const std::string& flag, Value& value,
                         const std::string& help) {
  return app.add_flag_function(
      flag + ",!--no-" + flag.substr(2), [&value](std::int64_t count) { value = count > 0; }, help);
}

/// Adds the flag of a field that `value` keeps.
template <class Question, class... More, class Value>
Option add_flag(CommandParser app, const Field<Question, More...>& field, Value& value) {
  const std::string flag = flag_of(field.name), help(field.help);
  if constexpr (std::is_same_v<Value, std::optional<bool>>) {
    return add_deniable_flag(app, flag, value, help);
  } else if constexpr (std::is_same_v<Value, bool>) {
    return app.add_flag(flag, value, help);
  } else if constexpr (std::is_same_v<Value, std::optional<std::vector<std::int64_t>>>) {
    return add_widths(
        app, flag, [&value](const auto& widths) { value = widths; }, help);
  } else if constexpr (std::is_same_v<Value, Window>) {
    return add_window(app, flag, value, help);
  } else {
    const Option option = app.add_option(flag, value, help);
    if constexpr (std::is_same_v<Value, std::string>) {
      if (!value.empty()) option.capture_default_str();
    }
    if (field.takes.ends_with(",...")) option.delimiter(',');
    check_field(option, field);
    return option;
  }
}

/// Adds the flag of a field of `question`.
template <class Question, class... More>
void add_field(CommandParser app, const Field<Question, More...>& field, Question& question) {
  const Option option =
      std::visit([&](auto member) { return add_flag(app, field, question.*member); }, field.member);
  if (!field.needs.empty()) option.needs(app.option(flag_of(field.needs)));
}

}  // namespace perfmodel::cli
