// The only source that sees toml++, which takes seconds to compile.
#include <fmt/format.h>

#include <algorithm>

#include "job_text.hpp"

// Version 3.3 asserts, or lets the compiler assume, that a key follows a "[", before it looks and
// says so if none does.
#undef NDEBUG
#define TOML_ASSERT(holds) static_cast<void>(0)
#define TOML_EXCEPTIONS 0
#define TOML_HEADER_ONLY 1
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

namespace perfmodel {
namespace {

std::string text_of(const toml::node& value) {
  if (const auto* text = value.as_string()) return text->get();
  if (const auto* is = value.as_boolean()) return is->get() ? "true" : "false";
  if (const auto* number = value.as_integer()) return std::to_string(number->get());
  if (const auto* number = value.as_floating_point()) return fmt::format("{}", number->get());
  return "a date or time";
}

void flatten(const toml::node& node, const std::string& key, JobEntries& entries) {
  if (const auto* table = node.as_table()) {
    for (const auto& [name, value] : *table) flatten(value, joined_key(key, name.str()), entries);
    return;
  }
  const auto line = static_cast<int>(node.source().begin.line);
  const auto* array = node.as_array();
  if (!array) {
    entries.push_back({.key = key, .values = {text_of(node)}, .line = line});
    return;
  }
  JobEntry list = {.key = key, .is_list = true, .line = line};
  for (std::size_t i = 0; i < array->size(); ++i) {
    const toml::node& one = *array->get(i);
    if (one.is_value()) list.values.push_back(text_of(one));
    if (!one.is_value()) flatten(one, joined_key(key, std::to_string(i)), entries);
  }
  entries.push_back(std::move(list));
}

}  // namespace

Result<JobEntries> read_toml(const std::string& text, const std::filesystem::path& file) {
  const toml::parse_result parsed = toml::parse(text);
  if (!parsed) {
    const toml::parse_error& error = parsed.error();
    return Unexpected{Error{.code = ErrorCode::kFormat,
                            .message = "expected TOML: " + std::string(error.description()),
                            .file = file,
                            .line = static_cast<int>(error.source().begin.line),
                            .column = static_cast<int>(error.source().begin.column)}};
  }
  JobEntries entries;
  flatten(parsed.table(), "", entries);
  std::ranges::stable_sort(entries, {}, &JobEntry::line);
  return entries;
}

}  // namespace perfmodel
