#include "secrets.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <set>
#include <utility>
#include <vector>

#include "digits.hpp"
#include "lower_case.hpp"
#include "plain_text.hpp"

namespace perfmodel {
namespace {

constexpr std::size_t kNowhere = std::string_view::npos;
constexpr std::string_view kMask = "[masked]";
constexpr std::size_t kFewestHex = 32, kFewestBase64 = 40, kFewestKeyCharacters = 16;
constexpr std::size_t kFewestAssignments = 3;
constexpr std::size_t kLooked = 4096;  // bytes read after the shown part, for secrets that begin in
                                       // it

bool is_capital(char c) { return c >= 'A' && c <= 'Z'; }
bool is_small(char c) { return c >= 'a' && c <= 'z'; }
bool is_word(char c) { return is_digit(c) || is_capital(c) || is_small(c) || c == '_'; }
bool is_base64(char c) {
  return is_digit(c) || is_capital(c) || is_small(c) || c == '+' || c == '/';
}

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](char x, char y) { return lower_case(x) == lower_case(y); });
}

// ---- assignments -------------------------------------------------------------------------------

struct Assignment {
  std::string_view name, value;
  std::size_t value_begin = 0;
  bool equals = false;     // '=' and not ':'
  bool is_quoted = false;  // "'NAME': value"
  bool is_spaced = false;  // "NAME: value" and not "NAME:value"
  bool begins_line = false;
};

constexpr std::string_view kBesideNames = " \t\"'\\";

bool line_begins(std::string_view before) {
  const std::size_t last = before.find_last_not_of(" \t");
  return last == kNowhere || before[last] == '\n';
}

// Returns the assignment whose separator is at `at`, or nothing ("a::b", "==", no name).
std::optional<Assignment> assignment_at(std::string_view text, std::size_t at) {
  const auto has = [&](std::size_t i, char c) { return i < text.size() && text[i] == c; };
  if (has(at + 1, text[at]) || (at > 0 && has(at - 1, text[at]))) return {};
  std::size_t end = at;
  while (end > 0 && kBesideNames.find(text[end - 1]) != kNowhere) --end;
  std::size_t begin = end;
  while (begin > 0 && (is_word(text[begin - 1]) || text[begin - 1] == '-')) --begin;
  if (begin == end) return {};
  std::size_t value = at + 1;
  while (value < text.size() && kBesideNames.find(text[value]) != kNowhere) ++value;
  std::size_t past = value;
  while (past < text.size() && std::string_view(" \t\n\r,;\"'&").find(text[past]) == kNowhere)
    ++past;
  return Assignment{.name = text.substr(begin, end - begin),
                    .value = text.substr(value, past - value),
                    .value_begin = value,
                    .equals = text[at] == '=',
                    .is_quoted = text.substr(end, at - end).find_first_of("\"'") != kNowhere,
                    .is_spaced = has(at + 1, ' ') || has(at + 1, '\t'),
                    .begins_line = line_begins(text.substr(0, begin))};
}

bool is_number(std::string_view value) {
  return std::ranges::all_of(value, [](char c) { return is_digit(c) || c == '.' || c == '-'; });
}

bool says_nothing(std::string_view value) {
  constexpr std::array<std::string_view, 5> kWords = {"", "true", "false", "null", "none"};
  return std::ranges::any_of(
      kWords, [&](std::string_view word) { return equal_ignoring_case(value, word); });
}

bool in_capitals(std::string_view name) {
  return name.size() >= 2 && is_capital(name.front()) &&
         std::ranges::all_of(name, [](char c) { return is_capital(c) || is_digit(c) || c == '_'; });
}

// "DB_PASS"; not the passes of a training step.
bool is_short_password(std::string_view name) {
  return in_capitals(name) && name.ends_with("_PASS") && !name.ends_with("WARD_PASS");
}

// "password", "DB_PASSWORD", "aws-secret-access-key", "authToken"; not "num_tokens", "tokenizer".
bool names_a_secret(std::string_view name) {
  constexpr std::array<std::string_view, 22> kWords = {
      "password",   "passwords",   "passwd",        "passphrase",  "pwd",       "token",
      "secret",     "secrets",     "apikey",        "api_key",     "api-key",   "accesskey",
      "access_key", "access-key",  "privatekey",    "private_key", "secretkey", "secret_key",
      "credential", "credentials", "authorization", "cookie"};
  if (is_short_password(name)) return true;
  return std::ranges::any_of(kWords, [&](std::string_view word) {
    if (name.size() < word.size()) return false;
    const std::size_t begin = name.size() - word.size();
    if (!equal_ignoring_case(name.substr(begin), word)) return false;
    return begin == 0 || !is_word(name[begin - 1]) || name[begin - 1] == '_' ||
           is_digit(name[begin - 1]) || (is_small(name[begin - 1]) && is_capital(name[begin])) ||
           std::ranges::none_of(name, is_small);
  });
}

bool ends_in_token(std::string_view name) {
  return name.size() >= 5 && equal_ignoring_case(name.substr(name.size() - 5), "token");
}

bool is_environment(std::string_view name) {
  constexpr std::array<std::string_view, 8> kNames = {
      "PATH", "HOME", "USER", "LOGNAME", "HOSTNAME", "LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH"};
  constexpr std::array<std::string_view, 7> kPrefixes = {
      "AWS_", "GOOGLE_", "AZURE_", "SLURM_", "KUBERNETES_", "GITHUB_", "SSH_"};
  return std::ranges::find(kNames, name) != kNames.end() ||
         std::ranges::any_of(kPrefixes, [&](auto prefix) { return name.starts_with(prefix); });
}

// A colon alone makes no variable: "ALGO:Ring", "GPU: A100, OS: Linux", and of Triton's arguments
// "'XBLOCK': 'constexpr'", "'BF16': '4ms'".
bool may_be_variable(const Assignment& found) {
  if (!in_capitals(found.name)) return false;
  if (found.equals) return true;
  if (is_environment(found.name)) return found.is_quoted || found.is_spaced;
  const char first = found.value.front();
  return (found.is_quoted || (found.is_spaced && found.begins_line)) && !is_digit(first) &&
         std::string_view("([{<*").find(first) == kNowhere && found.value != "constexpr";
}

std::size_t find_assignment(std::string_view text) {
  std::size_t capitals = 0, first_capital = kNowhere;
  for (std::size_t at = text.find_first_of("=:"); at != kNowhere;
       at = text.find_first_of("=:", at + 1)) {
    const auto found = assignment_at(text, at);
    if (!found || says_nothing(found->value)) continue;
    const bool counts = is_number(found->value);  // "next_token: 17"
    if (names_a_secret(found->name) && !(counts && ends_in_token(found->name))) {
      return std::min(found->value_begin, first_capital);
    }
    if (counts || !may_be_variable(*found)) continue;
    if (is_environment(found->name)) return std::min(found->value_begin, first_capital);
    first_capital = std::min(first_capital, found->value_begin);
    if (++capitals >= kFewestAssignments) return first_capital;
  }
  return kNowhere;
}

// ---- keys and long runs ------------------------------------------------------------------------

// The characters that keys are made of. Few kinds hold a '_', '-' or '.', so a name that begins
// like a key ("hf_bert_large_512.json") ends before it is as long as one.
bool is_letter_or_digit(char c) { return is_digit(c) || is_capital(c) || is_small(c); }
bool is_capital_or_digit(char c) { return is_digit(c) || is_capital(c); }
bool is_url_base64(char c) { return is_word(c) || c == '-'; }
bool is_token(char c) { return is_url_base64(c) || c == '.' || is_base64(c) || c == '='; }

bool has_letter_and_digit(std::string_view run) {
  return std::ranges::any_of(run, is_digit) &&
         std::ranges::any_of(run, [](char c) { return is_small(c) || is_capital(c); });
}

// A random text of letters is capitals by half, a name in camel case by a fifth at most.
bool mixes_cases(std::string_view run) {
  const auto capitals = std::ranges::count_if(run, is_capital);
  const auto smalls = std::ranges::count_if(run, is_small);
  return 4 * std::min(capitals, smalls) >= capitals + smalls;
}

// "sk-proj-Ab3...", "sk-ant-api03-Ab3...": words, then a long random part.
bool has_random_part(std::string_view run) {
  constexpr std::size_t kFewest = 12;
  while (!run.empty()) {
    const std::size_t past = std::min(run.find_first_of("-_"), run.size());
    const std::string_view part = run.substr(0, past);
    if (part.size() >= kFewest && has_letter_and_digit(part) && mixes_cases(part)) return true;
    run.remove_prefix(std::min(past + 1, run.size()));
  }
  return false;
}

bool begins_key(std::string_view text) {
  struct Kind {
    std::string_view prefix;
    std::size_t fewest;  // characters after it
    bool (*member)(char) = is_letter_or_digit;
    bool (*is_secret)(std::string_view) = has_letter_and_digit;
  };
  constexpr std::array<Kind, 21> kKinds = {{
      {"AKIA", 16, is_capital_or_digit},
      {"ASIA", 16, is_capital_or_digit},
      {"ghp_", 20},
      {"gho_", 20},
      {"ghs_", 20},
      {"ghu_", 20},
      {"ghr_", 20},
      {"npm_", 20},
      {"AIza", 30, is_url_base64},
      {"sk_live_", 16},
      {"sk_test_", 16},
      {"github_pat_", 20, is_word},
      {"glpat-", 16, is_url_base64},
      {"xoxa-", 10, is_url_base64},
      {"xoxb-", 10, is_url_base64},
      {"xoxp-", 10, is_url_base64},
      {"sk-", 20, is_url_base64, has_random_part},
      {"hf_", 30, is_letter_or_digit, mixes_cases},  // most hold no digit
      {"eyJ", 20, is_token},
      {"Bearer ", 16, is_token},
      {"bearer ", 16, is_token},
  }};
  return std::ranges::any_of(kKinds, [&](const Kind& kind) {
    if (!text.starts_with(kind.prefix)) return false;
    const std::string_view rest = text.substr(kind.prefix.size());
    const auto past = std::ranges::find_if_not(rest, kind.member);
    const std::string_view run(rest.begin(), past);
    return run.size() >= kind.fewest && kind.is_secret(run);
  });
}

std::size_t find_key(std::string_view text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool may_begin = c == 'A' || c == 'g' || c == 'x' || c == 's' || c == 'h' || c == 'e' ||
                           c == 'B' || c == 'b' || c == 'n';
    if (may_begin && (i == 0 || !is_word(text[i - 1])) && begins_key(text.substr(i))) return i;
  }
  if (const std::size_t at = text.find("-----BEGIN "); at != kNowhere) {
    if (text.find("PRIVATE KEY", at) != kNowhere) return at;
  }
  // scheme://user:password@host
  for (std::size_t at = text.find("://"); at != kNowhere; at = text.find("://", at + 1)) {
    const std::size_t past = std::min(text.find_first_of("/ \"'", at + 3), text.size());
    const std::string_view authority = text.substr(at + 3, past - at - 3);
    const std::size_t sign = authority.rfind('@'), colon = authority.find(':');
    if (sign != kNowhere && colon < sign) return at + 3 + colon + 1;
  }
  return kNowhere;
}

// The first run of `member` characters of at least `fewest` that `is_secret`.
template <class Member, class IsSecret>
std::size_t find_run(std::string_view text, std::size_t fewest, Member member, IsSecret is_secret) {
  if (text.size() < fewest) return kNowhere;
  // A run of that length covers one of every `fewest` characters.
  for (std::size_t probe = fewest - 1; probe < text.size();) {
    if (!member(text[probe])) {
      probe += fewest;
      continue;
    }
    std::size_t begin = probe, end = probe;
    while (begin > 0 && member(text[begin - 1])) --begin;
    while (end < text.size() && member(text[end])) ++end;
    if (end - begin >= fewest && is_secret(text.substr(begin, end - begin))) return begin;
    probe = end + fewest;
  }
  return kNowhere;
}

// "0d1d2d3c4de", the signature that Triton appends to the names of its kernels: the numbers of the
// arguments, in order, and what is known of each.
bool counts_up(std::string_view run) {
  std::size_t next = 0;
  while (!run.empty() && is_digit(run.front())) {
    std::size_t number = 0;
    const auto [past, error] = std::from_chars(run.data(), run.data() + run.size(), number);
    if (error != std::errc() || number != next++) return false;
    run.remove_prefix(static_cast<std::size_t>(past - run.data()));
    run.remove_prefix(std::min(run.find_first_of("0123456789"), run.size()));
  }
  return run.empty();
}

std::size_t find_hex(std::string_view text) {
  return find_run(text, kFewestHex, is_hex, [](std::string_view run) {
    const auto digits = std::ranges::count_if(run, is_digit);
    return digits >= 4 && digits + 4 <= static_cast<std::ptrdiff_t>(run.size()) && !counts_up(run);
  });
}

// In random base64 six of ten neighbours differ in kind (capital, small letter, digit), in the
// words of a path two or three.
bool changes_often(std::string_view run) {
  enum class Kind { kCapital, kSmall, kDigit, kSign };
  const auto kind = [](char c) {
    if (is_capital(c)) return Kind::kCapital;
    if (is_small(c)) return Kind::kSmall;
    return is_digit(c) ? Kind::kDigit : Kind::kSign;
  };
  std::size_t changes = 0;
  for (std::size_t i = 1; i < run.size(); ++i) {
    const Kind one = kind(run[i - 1]), next = kind(run[i]);
    changes += one != next && one != Kind::kSign && next != Kind::kSign;
  }
  return 3 * changes > run.size();
}

std::size_t find_base64(std::string_view text) {
  if (text.find("_Z") != kNowhere) return kNowhere;
  return find_run(text, kFewestBase64, is_base64, [](std::string_view run) {
    return std::ranges::count_if(run, is_digit) >= 4 && std::ranges::any_of(run, is_capital) &&
           std::ranges::any_of(run, is_small) && std::ranges::count(run, '/') <= 4 &&
           changes_often(run);
  });
}

}  // namespace

std::optional<std::string> mask_secrets(std::string_view text) {
  if (text.size() < kFewestKeyCharacters && text.find_first_of("=:") == kNowhere) return {};
  const std::size_t at =
      std::min({find_assignment(text), find_key(text), find_hex(text), find_base64(text)});
  if (at == kNowhere) return {};
  return std::string(text.substr(0, at)) + std::string(kMask);
}

std::string shown_text(std::string_view text, std::size_t most) {
  text = text.substr(0, most + kLooked);
  const auto masked = mask_secrets(text);
  std::string shown = plain_text(masked ? std::string_view(*masked) : text);
  if (shown.size() <= most) return shown;
  std::size_t end = most;
  while (end > 0 && (shown[end] & 0xC0) == 0x80) --end;  // not within a character
  return shown.substr(0, end) + "...";
}

std::size_t mask_secrets(StringPool& names) {
  std::set<std::string> taken;  // masked texts; a file may hold such a name, too
  std::vector<std::pair<NameId, std::string>> found;
  for (NameId id = 1; id < names.size(); ++id) {
    const std::string_view text = names.text(id);
    if (text.find("[masked") != kNowhere) taken.emplace(text);
    if (auto masked = mask_secrets(text); masked && *masked != text) {
      found.emplace_back(id, std::move(*masked));
    }
  }
  std::size_t number = 1;
  for (auto& [id, text] : found) {
    std::string unique = text;
    while (!taken.insert(unique).second) {
      unique = fmt::format("{} {}]", text.substr(0, text.size() - 1), ++number);
    }
    names.replace(id, unique);
  }
  return found.size();
}

std::string masked_warning(std::size_t count) {
  return fmt::format("{} {} like a secret and {} shown as [masked]", count,
                     count == 1 ? "text looks" : "texts look", count == 1 ? "is" : "are");
}

}  // namespace perfmodel
