#include "request_rewrites.hpp"

#include <fmt/format.h>

#include <optional>
#include <string_view>
#include <utility>

#include "base/secrets.hpp"
#include "fields/field.hpp"
#include "rewrites/rewrite_options.hpp"

namespace perfmodel::serve {
namespace {

namespace ondemand = simdjson::ondemand;

/// A value as the flag takes it. Nothing: it is of another type, or false.
struct Value {
  std::optional<std::string> text;
  bool is_false = false;
};

simdjson::error_code read_value(ondemand::value& value, bool is_switch, Value& read) {
  ondemand::json_type type;
  if (auto code = value.type().get(type)) return code;
  if (is_switch && type == ondemand::json_type::boolean) {
    bool is_on = false;
    if (auto code = value.get_bool().get(is_on)) return code;
    read.is_false = !is_on;
    if (is_on) read.text = "";
  } else if (!is_switch && type == ondemand::json_type::string) {
    std::string_view text;
    if (auto code = value.get_string().get(text)) return code;
    read.text = text;
  } else if (!is_switch && type == ondemand::json_type::number) {
    double number = 0;
    if (auto code = value.get_double().get(number)) return code;
    read.text = fmt::format("{}", number);
  }
  return simdjson::SUCCESS;
}

}  // namespace

simdjson::error_code read_rewrites(ondemand::value& value, std::vector<NamedRewrite>& rewrites,
                                   std::string& problem) {
  ondemand::object object;
  if (auto code = value.get_object().get(object)) {
    if (code != simdjson::INCORRECT_TYPE) return code;
    problem = "/rewrites: expected an object, found something else";
    return simdjson::SUCCESS;
  }
  for (auto field : object) {
    std::string_view name;
    if (auto code = field.unescaped_key().get(name)) return code;
    const std::string pointer = "/rewrites/" + shown_text(name, 40);
    const RewriteOption* option = find_rewrite_option(flag_of(name));
    if (!option) {
      problem = pointer + ": expected a flag of rewrite, found another name";
      return simdjson::SUCCESS;
    }
    ondemand::value entry = field.value();
    Value read;
    if (auto code = read_value(entry, option->value.empty(), read)) return code;
    if (read.is_false) continue;
    if (!read.text) {
      problem = fmt::format("{}: expected {}, found something else", pointer,
                            option->value.empty() ? "true or false" : option->value);
      return simdjson::SUCCESS;
    }
    auto rewrite = named_rewrite(*option, *read.text);
    if (!rewrite) {
      problem = shown_text(pointer + ": " + rewrite.error().message, kLongestMessage);
      return simdjson::SUCCESS;
    }
    rewrites.push_back(std::move(*rewrite));
  }
  return simdjson::SUCCESS;
}

}  // namespace perfmodel::serve
