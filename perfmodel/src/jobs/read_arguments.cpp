#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>

#include "base/decimal_number.hpp"
#include "base/split.hpp"
#include "job_text.hpp"

namespace perfmodel {
namespace {

bool is_name_character(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") + 1 - first);
}

// A line of a script with those that it goes on in.
struct ShellLine {
  std::string text;
  int number = 0;
};

// Without comments, and with spaces in the place of quotes. NAME="VALUE" stays one word.
std::string plain_line(std::string_view line) {
  std::string plain;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char before = i == 0 ? ' ' : line[i - 1];
    if (line[i] == '#' && (before == ' ' || before == '\t')) break;
    const bool is_quote = line[i] == '"' || line[i] == '\'';
    const bool goes_on = i + 1 < line.size() && line[i + 1] != ' ' && line[i + 1] != '-';
    if (is_quote && before == '=' && goes_on) continue;
    plain += is_quote ? ' ' : line[i];
  }
  return plain;
}

std::vector<ShellLine> shell_lines(std::string_view text) {
  std::vector<ShellLine> lines;
  bool goes_on = false;
  int number = 0;
  for (const std::string_view raw : split(text, '\n')) {
    ++number;
    std::string line = plain_line(trimmed(raw));
    if (!goes_on) lines.push_back({.number = number});
    goes_on = line.ends_with('\\');
    if (goes_on) line.back() = ' ';
    lines.back().text += line;
  }
  return lines;
}

// Variables of a script: plain values, each set once.
class ShellVariables {
 public:
  void set(const std::string& name, const std::string& value) {
    const auto [at, is_new] = values_.emplace(name, value);
    if (!is_new && at->second != value) at->second = std::nullopt;
  }

  // Puts values in the place of $NAME, ${NAME} and ${NAME:-VALUE}; unknown ones stay.
  std::string resolved(std::string_view text) const {
    std::string made;
    while (!text.empty()) {
      if (text.front() != '$') {
        made += text.front();
        text.remove_prefix(1);
      } else {
        made += value_at(text);
      }
    }
    return product_of(made);
  }

 private:
  // The value of the variable at the beginning of `text`, from which it is taken away.
  std::string value_at(std::string_view& text) const {
    const bool braced = text.starts_with("${");
    const std::size_t end = braced ? std::min(text.find('}'), text.size() - 1) + 1 : name_end(text);
    std::string_view name = text.substr(0, end);
    const std::string whole(name);
    text.remove_prefix(end);
    name.remove_prefix(braced ? 2 : 1);
    if (braced) name.remove_suffix(1);
    const std::size_t colon = name.find(':');
    const auto known = values_.find(std::string(name.substr(0, colon)));
    if (known != values_.end()) return known->second.value_or(whole);
    if (colon == std::string_view::npos) return whole;
    name.remove_prefix(colon + 1);
    return resolved(name.substr(name.starts_with('-') || name.starts_with('=') ? 1 : 0));
  }

  static std::size_t name_end(std::string_view text) {
    std::size_t end = 1;
    while (end < text.size() && is_name_character(text[end])) ++end;
    return end;
  }

  // "$((8*4))" -> "32"; anything else stays.
  static std::string product_of(const std::string& text) {
    if (!text.starts_with("$((") || !text.ends_with("))")) return text;
    std::int64_t product = 1;
    const std::string_view factors = std::string_view(text).substr(3, text.size() - 5);
    for (const std::string_view factor : split(factors, '*')) {
      std::int64_t number = 0;
      if (!read_decimal(trimmed(factor), number) || number < 1) return text;
      if (__builtin_mul_overflow(product, number, &product)) return text;
    }
    return std::to_string(product);
  }

  std::map<std::string, std::optional<std::string>> values_;  // none: set to several values
};

// "TP=8", "export TP=8" -> the name; empty: no assignment.
std::string_view assigned_name(std::string_view word) {
  const std::size_t equals = word.find('=');
  if (equals == std::string_view::npos || equals == 0 || std::isdigit(word[0])) return {};
  const std::string_view name = word.substr(0, equals);
  return std::ranges::all_of(name, is_name_character) ? name : std::string_view();
}

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  int depth = 0;  // blanks inside parentheses and braces divide no words
  std::size_t begin = std::string_view::npos;
  for (std::size_t i = 0; i <= line.size(); ++i) {
    const char c = i < line.size() ? line[i] : ' ';
    if (i == line.size()) depth = 0;
    const bool opens = c == '{' || (c == '(' && i > 0 && (line[i - 1] == '$' || depth > 0));
    if (opens) ++depth;
    if ((c == ')' || c == '}') && depth > 0) {
      --depth;
      continue;
    }
    const bool divides = depth == 0 && (c == ' ' || c == '\t' || c == '(' || c == ')');
    if (!divides && begin == std::string_view::npos) begin = i;
    if (divides && begin != std::string_view::npos) {
      words.push_back(line.substr(begin, i - begin));
      begin = std::string_view::npos;
    }
  }
  return words;
}

bool is_flag(std::string_view word) {
  return word.size() > 2 && word.starts_with("--") && std::isalpha(word[2]);
}

// The word ends the values of a flag: it ends the command, or begins a program.
bool ends_values(std::string_view word) {
  constexpr std::string_view kEnds[] = {"|", "||", "&&", ";", "&", ">", "2>&1", ">>", "then", "fi"};
  return is_flag(word) || word.ends_with(".py") || !assigned_name(word).empty() ||
         std::ranges::find(kEnds, word) != std::end(kEnds);
}

// "${GPT_ARGS[@]}", "$OPTIONS": further flags, which the script has elsewhere.
bool holds_flags(std::string_view word) {
  constexpr std::string_view kParts[] = {"[@]", "[*]", "ARG", "OPT"};
  const auto has = [&](std::string_view part) { return word.find(part) != std::string_view::npos; };
  return word.starts_with('$') && std::ranges::any_of(kParts, has);
}

std::string key_of_flag(std::string_view flag) {
  std::string key(flag.substr(2));
  std::ranges::replace(key, '-', '_');
  return key;
}

// The words of a flag: "--num-layers 32", "--num-layers=32", "--bf16".
JobEntry read_flag(const std::vector<std::string_view>& words, std::size_t& at, int line,
                   const ShellVariables& variables) {
  const std::string_view flag = words[at++];
  const std::size_t equals = flag.find('=');
  JobEntry entry = {.key = key_of_flag(flag.substr(0, equals)), .line = line};
  if (equals != std::string_view::npos) {
    entry.values.push_back(variables.resolved(flag.substr(equals + 1)));
    return entry;
  }
  for (; at < words.size() && !ends_values(words[at]) && !holds_flags(words[at]); ++at) {
    entry.values.push_back(variables.resolved(words[at]));
  }
  if (entry.values.empty()) entry.values.emplace_back("true");
  entry.is_list = entry.values.size() > 1;
  return entry;
}

std::string lower(std::string_view text) {
  std::string made(text);
  std::ranges::transform(made, made.begin(), [](unsigned char c) { return std::tolower(c); });
  return made;
}

}  // namespace

Result<JobEntries> read_shell_flags(std::string_view text, const std::filesystem::path& file) {
  ShellVariables variables;
  JobEntries entries;
  for (const ShellLine& line : shell_lines(text)) {
    const std::vector<std::string_view> words = words_of(line.text);
    for (std::size_t i = 0; i < words.size();) {
      if (is_flag(words[i])) {
        entries.push_back(read_flag(words, i, line.number, variables));
        continue;
      }
      const std::string name(assigned_name(words[i]));
      if (!name.empty()) {
        const std::string value = variables.resolved(words[i].substr(name.size() + 1));
        variables.set(name, value);
        entries.push_back({.key = "$" + name, .values = {value}, .line = line.number});
      }
      ++i;
    }
  }
  // argparse would take the last; two branches of a script may mean either.
  std::map<std::string, const JobEntry*> seen;
  for (const JobEntry& entry : entries) {
    if (entry.key.starts_with('$')) continue;
    const auto [at, is_new] = seen.emplace(entry.key, &entry);
    if (is_new || at->second->values == entry.values) continue;
    return Unexpected{Error{
        .code = ErrorCode::kFormat,
        .message = fmt::format("--{}: expected one value, found \"{}\" and, in line {}, \"{}\"",
                               entry.key, fmt::join(entry.values, " "), at->second->line,
                               fmt::join(at->second->values, " ")),
        .file = file,
        .line = entry.line}};
  }
  return entries;
}

JobEntries read_printed_arguments(std::string_view text) {
  JobEntries entries;
  int number = 0;
  for (std::string_view line : split(text, '\n')) {
    ++number;
    const std::size_t dots = line.find(" ..");
    if (dots == std::string_view::npos) continue;
    std::string_view name = trimmed(line.substr(0, dots));
    name = name.substr(name.find_last_of(" \t:]") + 1);  // the rank that printed it, a time
    std::string_view value = line.substr(dots + 1);
    value = trimmed(value.substr(std::min(value.find_first_not_of('.'), value.size())));
    if (name.empty() || value.empty() || !std::ranges::all_of(name, is_name_character)) continue;
    JobEntry entry = {.key = std::string(name), .line = number};
    const bool is_truth = value == "True" || value == "False";
    if (value != "None") {
      entry.values.push_back(is_truth ? lower(value) : std::string(value));
    }
    if (value.starts_with('[') && value.ends_with(']')) {
      entry.is_list = true;
      entry.values.clear();
      for (const std::string_view one : split(value.substr(1, value.size() - 2), ',')) {
        if (!trimmed(one).empty()) entry.values.emplace_back(trimmed(one));
      }
    }
    entries.push_back(std::move(entry));
  }
  constexpr std::size_t kFewest = 3;  // dots may lead to a page number elsewhere
  if (entries.size() < kFewest) entries.clear();
  return entries;
}

}  // namespace perfmodel
