#include <fmt/format.h>

#include "perfmodel/detail/check.hpp"
#include "rewrites/rewrite_options.hpp"

namespace perfmodel {

const RewriteOption* find_rewrite_option(std::string_view flag) {
  while (flag.starts_with('-')) flag.remove_prefix(1);
  for (const RewriteOption& option : rewrite_options()) {
    if (std::string_view(option.flag).substr(2) == flag) return &option;
  }
  return nullptr;
}

Result<NamedRewrite> named_rewrite(const RewriteOption& option, const std::string& given) {
  const std::string& text = given.empty() ? option.without_value : given;
  if (text.empty() && !option.value.empty()) {
    return fail(ErrorCode::kFormat, fmt::format("expected {}, found nothing", option.value));
  }
  PERFMODEL_TRY(rewrite, option.parse(text));
  return NamedRewrite{option.value.empty() ? option.flag : option.flag + " " + text,
                      std::move(*rewrite), option.of_ops_alone, option.launching};
}

Result<NamedRewrite> rewrite_of(const std::string& name, const std::string& value) {
  const RewriteOption* option = find_rewrite_option(name);
  PERFMODEL_CHECK(option != nullptr);
  constexpr const char* kOn = "on";
  const bool needs_value = !option->value.empty() && option->without_value.empty();
  const bool has_value = !option->value.empty() && value != kOn;
  if (needs_value || has_value) return named_rewrite(*option, value);
  if (value != kOn) {
    return fail(ErrorCode::kFormat,
                fmt::format("expected \"{}\" or \"same\", found \"{}\"", kOn, value));
  }
  return named_rewrite(*option, "");
}

std::string with_detail(const std::string& value, const RewriteOption::Detail& detail,
                        const std::string& text) {
  return value + ":" + detail.flag.substr(2) + "=" + text;
}

}  // namespace perfmodel
