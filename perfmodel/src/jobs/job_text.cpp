#include "job_text.hpp"

#include <algorithm>
#include <cctype>

#include "base/split.hpp"
#include "files/json_file.hpp"

namespace perfmodel {
namespace {

// The name at the beginning of a line: "training.seq_len".
std::string_view leading_name(std::string_view line) {
  std::string_view::size_type end = 0;
  const auto is_of_name = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '-';
  };
  while (end < line.size() && is_of_name(line[end])) ++end;
  return line.substr(0, end);
}

enum class JobSyntax { kJson, kToml, kYaml, kShell, kPrinted };

// The first line that can be of one syntax alone decides.
JobSyntax syntax_of(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first != std::string_view::npos && text[first] == '{') return JobSyntax::kJson;
  if (!read_printed_arguments(text).empty()) return JobSyntax::kPrinted;
  if (text.starts_with("#!")) return JobSyntax::kShell;
  for (std::string_view line : split(text, '\n')) {
    if (line.starts_with('[')) return JobSyntax::kToml;
    const std::string_view name = leading_name(line);
    const std::string_view rest = line.substr(name.size());
    const bool is_named = !name.empty() && name.front() != '-';
    if (is_named && rest.starts_with(':') && (rest.size() == 1 || std::isspace(rest[1]))) {
      return JobSyntax::kYaml;
    }
    if (is_named && (rest.starts_with(" =") || rest.starts_with(" \t="))) return JobSyntax::kToml;
    if (line.find("--") != std::string_view::npos && !line.starts_with('#') &&
        !line.starts_with("---")) {
      return JobSyntax::kShell;
    }
  }
  return JobSyntax::kYaml;
}

// "${NAME:VALUE}", as Primus writes a setting that a variable may change, is VALUE.
void take_defaults(JobEntries& entries) {
  for (JobEntry& entry : entries) {
    for (std::string& value : entry.values) {
      const std::size_t colon = value.find(':');
      if (!value.starts_with("${") || !value.ends_with('}') || colon == std::string::npos) continue;
      value = value.substr(colon + 1, value.size() - colon - 2);
      if (value.starts_with('-')) value.erase(0, 1);
    }
  }
}

std::string text_of(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

void flatten(const Json& value, const std::string& key, JobEntries& entries) {
  if (value.is_object()) {
    for (const auto& [name, one] : value.items()) flatten(one, joined_key(key, name), entries);
    return;
  }
  JobEntry entry = {.key = key, .is_list = value.is_array()};
  if (!value.is_array() && !value.is_null()) entry.values = {text_of(value)};
  for (std::size_t i = 0; value.is_array() && i < value.size(); ++i) {
    if (value[i].is_primitive())
      entry.values.push_back(text_of(value[i]));
    else
      flatten(value[i], joined_key(key, std::to_string(i)), entries);
  }
  entries.push_back(std::move(entry));
}

Result<JobEntries> read_json(const std::string& text, const std::filesystem::path& file) {
  return parse_json_text(text, "a training job", file,
                         [](const Json& document, std::optional<Error>&) {
                           JobEntries entries;
                           flatten(document, "", entries);
                           return entries;
                         });
}

Result<JobEntries> parse_job(const std::string& text, const std::filesystem::path& file) {
  switch (syntax_of(text)) {
    case JobSyntax::kJson: return read_json(text, file);
    case JobSyntax::kToml: return read_toml(text, file);
    case JobSyntax::kShell: return read_shell_flags(text, file);
    case JobSyntax::kPrinted: return read_printed_arguments(text);
    case JobSyntax::kYaml: break;
  }
  return read_yaml(text, file);
}

}  // namespace

std::string joined_key(const std::string& above, std::string_view name) {
  return above.empty() ? std::string(name) : above + "." + std::string(name);
}

Result<JobEntries> read_job_text(const std::filesystem::path& file) {
  PERFMODEL_TRY(text, read_json_text(file, "training job"));
  if (text->find_first_not_of(" \t\r\n") == std::string::npos) {
    return fail(ErrorCode::kFormat, "expected the settings of a training job, found an empty file",
                file);
  }
  if (text->find('\0') != std::string::npos) {
    return fail(ErrorCode::kFormat, "expected the settings of a training job, found binary data",
                file);
  }
  auto entries = parse_job(*text, file);
  if (entries && entries->empty()) {
    return fail(ErrorCode::kFormat, "expected the settings of a training job, found none", file);
  }
  if (entries) take_defaults(*entries);
  return entries;
}

}  // namespace perfmodel
