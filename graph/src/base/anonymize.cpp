#include "anonymize.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <set>

#include "digits.hpp"
#include "lower_case.hpp"

namespace perfmodel {
namespace {

constexpr std::size_t kLeastWord = 3;

std::string lowered(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(), lower_case);
  return lower;
}

bool is_alphanumeric(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
bool is_of_name(char c) { return is_alphanumeric(c) || c == '.' || c == '_' || c == '-'; }
bool is_of_label(char c) { return is_alphanumeric(c) || c == '-'; }

// Not within a longer word.
bool begins_word(std::string_view text, std::size_t at) {
  return at == 0 || !is_alphanumeric(text[at - 1]);
}
bool ends_word(std::string_view text, std::size_t end) {
  return end >= text.size() || !is_alphanumeric(text[end]);
}

template <class Belongs>
std::size_t past_all(std::string_view text, std::size_t at, Belongs belongs) {
  while (at < text.size() && belongs(text[at])) ++at;
  return at;
}

// Names that many have: replaced in paths, but as words they say nothing.
bool is_common(std::string_view word) {
  constexpr std::array<std::string_view, 36> kWords = {
      "root",  "user",   "users", "admin",  "ubuntu",    "debian", "centos",  "home",   "work",
      "data",  "model",  "train", "torch",  "python",    "main",   "test",    "runner", "nobody",
      "guest", "docker", "linux", "build",  "localhost", "host",   "jovyan",  "cuda",   "aten",
      "batch", "node",   "share", "shared", "public",    "local",  "project", "opt",    "tmp"};
  const std::string lower = lowered(word);
  return std::ranges::find(kWords, lower) != kWords.end();
}

// Finds a home folder that begins at `at` ("/home/NAME") and returns the place where NAME begins.
std::size_t home_name_at(std::string_view text, std::size_t at) {
  constexpr std::array<std::string_view, 6> kHomes = {"/home/",    "/Users/",       "/users/",
                                                      "\\Users\\", "\\\\Users\\\\", "/homes/"};
  for (const std::string_view home : kHomes) {
    if (text.substr(at).starts_with(home)) return at + home.size();
  }
  const bool tilde = text[at] == '~' && begins_word(text, at) && at + 1 < text.size() &&
                     is_alphanumeric(text[at + 1]);
  return tilde && past_all(text, at + 1, is_of_name) < text.size() &&
                 text[past_all(text, at + 1, is_of_name)] == '/'
             ? at + 1
             : at;
}

// Past an IPv4 address at `at`; `at` if there is none. "1.2.3.4" of a version is taken for one.
std::size_t past_ipv4(std::string_view text, std::size_t at) {
  if (at > 0 && (is_alphanumeric(text[at - 1]) || text[at - 1] == '.')) return at;
  std::size_t end = at;
  for (int group = 0; group < 4; ++group) {
    if (group > 0 && (end >= text.size() || text[end++] != '.')) return at;
    const std::size_t begin = end;
    int value = 0;
    while (end < text.size() && is_digit(text[end]) && end - begin < 4) {
      value = 10 * value + (text[end++] - '0');
    }
    if (end == begin || value > 255) return at;
  }
  const bool goes_on = end < text.size() &&
                       (is_alphanumeric(text[end]) || (text[end] == '.' && end + 1 < text.size() &&
                                                       is_alphanumeric(text[end + 1])));
  return goes_on ? at : end;
}

// Past groups of hexadecimal digits between separators: MAC and IPv6 addresses.
std::size_t past_hex_groups(std::string_view text, std::size_t at) {
  if (!begins_word(text, at) || (at > 0 && (text[at - 1] == ':' || text[at - 1] == '-'))) return at;
  std::size_t end = at, groups = 0, pairs = 0;
  char separator = 0;
  bool has_gap = false;
  for (;;) {
    const std::size_t begin = end;
    end = past_all(text, end, is_hex);
    if (end - begin > 4) return at;
    if (end > begin) ++groups;
    if (end == begin + 2) ++pairs;
    if (end >= text.size()) break;
    if (separator == 0 && (text[end] == ':' || text[end] == '-')) separator = text[end];
    if (separator == 0 || text[end] != separator) break;
    if (end == begin) {
      if (has_gap) return at;
      has_gap = true;
    }
    ++end;
  }
  if (!ends_word(text, end)) return at;
  if (groups == 6 && pairs == 6 && !has_gap) return end;  // MAC
  if (separator != ':') return at;
  const std::string front = lowered(text.substr(at, 4));
  const bool known_front = front.starts_with("fe80") || front.starts_with("fd") || front[0] == '2';
  const bool is_ipv6 = (groups == 8 && !has_gap) || (has_gap && groups >= 3 && known_front);
  return is_ipv6 ? end : at;
}

// Past the mail address whose name begins at `at`.
std::size_t past_mail(std::string_view text, std::size_t at) {
  const auto of_mailbox = [](char c) { return is_of_name(c) || c == '+' || c == '%'; };
  if (!is_alphanumeric(text[at]) || (at > 0 && of_mailbox(text[at - 1]))) return at;
  const std::size_t sign = past_all(text, at, of_mailbox);
  if (sign >= text.size() || text[sign] != '@') return at;
  std::size_t end = past_all(text, sign + 1, [](char c) { return is_of_label(c) || c == '.'; });
  while (end > sign && !is_alphanumeric(text[end - 1])) --end;
  const std::size_t dot = text.substr(0, end).rfind('.');
  return dot == std::string_view::npos || dot < sign + 2 || end - dot < 3 ? at : end;
}

// Past the host name with a domain, or of a cloud, that begins at `at`.
std::size_t past_host(std::string_view text, std::size_t at) {
  if (!is_alphanumeric(text[at])) return at;
  if (at > 0 && (is_of_name(text[at - 1]) || text[at - 1] == '@')) return at;
  const std::size_t label_end = past_all(text, at, is_of_label);
  const std::string_view first = text.substr(at, label_end - at);
  const bool of_cloud =
      first.starts_with("ip-") && std::ranges::count(first, '-') == 4 &&
      std::ranges::all_of(first.substr(2), [](char c) { return is_digit(c) || c == '-'; });
  std::size_t end = past_all(text, at, [](char c) { return is_of_label(c) || c == '.'; });
  while (end > at && text[end - 1] == '.') --end;
  if (of_cloud) return end;
  if (end < text.size() && (text[end] == '_' || text[end] == '(' || text[end] == ':')) {
    if (text[end] != ':' || end + 1 >= text.size() || !is_digit(text[end + 1])) return at;
  }
  const std::string_view name = text.substr(at, end - at);
  const auto dots = std::ranges::count(name, '.');
  if (dots == 0 || name.find("..") != std::string_view::npos) return at;
  const std::string last = lowered(name.substr(name.rfind('.') + 1));
  constexpr std::array<std::string_view, 6> kPrivate = {"local", "internal", "lan",
                                                        "corp",  "intranet", "localdomain"};
  constexpr std::array<std::string_view, 6> kPublic = {"com", "org", "edu", "gov", "cloud", "net"};
  if (std::ranges::find(kPrivate, last) != kPrivate.end()) return end;
  if (std::ranges::find(kPublic, last) == kPublic.end() || dots < 2) return at;
  const bool has_number = first.find_first_of("0123456789-") != std::string_view::npos;
  return last != "net" || has_number ? end : at;  // self.encoder.net is a module
}

// Returns where the host's name begins after "host=", "hostname: " or "node_name=".
std::size_t named_host_at(std::string_view text, std::size_t at) {
  constexpr std::array<std::string_view, 4> kKeys = {"hostname", "host", "node_name", "nodename"};
  if (at > 0 && is_alphanumeric(text[at - 1])) return at;
  for (const std::string_view key : kKeys) {
    if (lowered(text.substr(at, key.size())) != key) continue;
    std::size_t to = past_all(text, at + key.size(), [](char c) { return c == '"' || c == '\''; });
    if (to >= text.size() || (text[to] != '=' && text[to] != ':')) continue;
    if (to + 1 < text.size() && text[to + 1] == text[to]) continue;  // host::name
    to = past_all(text, to + 1, [](char c) { return c == ' ' || c == '"' || c == '\''; });
    if (to >= text.size() || !is_alphanumeric(text[to])) continue;
    const std::string_view value = text.substr(to, past_all(text, to, is_of_name) - to);
    if (!std::ranges::all_of(value, [](char c) { return is_digit(c) || c == '.'; })) return to;
  }
  return at;
}

// The host in HOST_123.456.pt.trace.json, as PyTorch's handler for TensorBoard names files.
std::size_t past_host_of_file(std::string_view text, std::size_t at) {
  if (at > 0 && is_of_name(text[at - 1])) return at;
  const std::size_t end = past_all(text, at, is_of_name);
  const std::string_view name = text.substr(at, end - at);
  const std::size_t marks = name.find(".pt.trace.json");
  if (marks == std::string_view::npos) return at;
  const std::string_view stem = name.substr(0, marks);
  const std::size_t line = stem.rfind('_');
  const bool is_process =
      line != std::string_view::npos && line > 0 && line + 1 < stem.size() &&
      std::ranges::all_of(stem.substr(line + 1), [](char c) { return is_digit(c) || c == '.'; });
  return is_process ? at + line : at;
}

}  // namespace

Anonymizer Anonymizer::of_this_machine() {
  Anonymizer made;
  char host[256] = {};
  if (::gethostname(host, sizeof host - 1) == 0) made.know_word(Kind::kHost, host);
  for (const char* variable : {"USER", "LOGNAME"}) {
    if (const char* user = std::getenv(variable)) made.know_word(Kind::kUser, user);
  }
  return made;
}

std::string Anonymizer::pseudonym(Kind kind, std::string_view name) {
  constexpr std::array<std::string_view, 4> kNames = {"user", "host", "mail", "address"};
  const auto row = static_cast<std::size_t>(kind);
  const auto [at, is_new] =
      pseudonyms_.try_emplace(fmt::format("{} {}", kNames[row], lowered(name)), "");
  if (is_new) at->second = fmt::format("{}-{}", kNames[row], ++numbers_[row]);
  return at->second;
}

void Anonymizer::know_word(Kind kind, std::string_view word) {
  if (word.size() < kLeastWord || is_common(word) || !is_alphanumeric(word.front())) return;
  if (std::ranges::all_of(word, is_digit)) return;
  if (!words_.contains(word)) words_.emplace(word, pseudonym(kind, word));
}

Anonymizer::Found Anonymizer::name_at(std::string_view text, std::size_t at) {
  if (const std::size_t begin = home_name_at(text, at); begin > at) {
    const std::size_t end = past_all(text, begin, is_of_name);
    if (end > begin) return {begin, end, Kind::kUser};
  }
  if (const std::size_t begin = named_host_at(text, at); begin > at) {
    std::size_t end = past_all(text, begin, is_of_name);
    while (end > begin && text[end - 1] == '.') --end;
    return {begin, end, Kind::kHost};
  }
  if (const std::size_t end = past_mail(text, at); end > at) return {at, end, Kind::kMail};
  if (const std::size_t end = past_ipv4(text, at); end > at) return {at, end, Kind::kAddress};
  if (const std::size_t end = past_hex_groups(text, at); end > at) return {at, end, Kind::kAddress};
  if (const std::size_t end = past_host_of_file(text, at); end > at) return {at, end, Kind::kHost};
  if (const std::size_t end = past_host(text, at); end > at) return {at, end, Kind::kHost};
  return {};
}

void Anonymizer::learn(std::string_view text) {
  for (std::size_t at = 0; at < text.size(); ++at) {
    const Found found = name_at(text, at);
    if (found.begin == found.end) continue;
    const std::string_view name = text.substr(found.begin, found.end - found.begin);
    if (found.kind == Kind::kUser || found.kind == Kind::kHost) know_word(found.kind, name);
    at = found.end - 1;
  }
}

std::string Anonymizer::words_replaced(std::string_view text) const {
  std::string made(text);
  for (const auto& [word, name] : words_) {
    for (std::size_t at = made.find(word); at != std::string::npos; at = made.find(word, at + 1)) {
      if (!begins_word(made, at) || !ends_word(made, at + word.size())) continue;
      made.replace(at, word.size(), name);
      at += name.size() - 1;
    }
  }
  return made;
}

std::string Anonymizer::replaced(std::string_view text) {
  learn(text);
  std::string made;
  std::size_t kept = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const Found found = name_at(text, at);
    if (found.begin == found.end) continue;
    made += words_replaced(text.substr(kept, found.begin - kept));
    made += pseudonym(found.kind, text.substr(found.begin, found.end - found.begin));
    kept = found.end;
    at = found.end - 1;
  }
  made += words_replaced(text.substr(kept));
  if (made != text) ++count_;
  return made;
}

void Anonymizer::replace_names(StringPool& names) {
  std::set<std::string, std::less<>> taken;
  for (NameId id = 0; id < names.size(); ++id) {
    learn(names.text(id));
    taken.emplace(names.text(id));
  }
  for (NameId id = 1; id < names.size(); ++id) {
    const std::string made = replaced(names.text(id));
    if (made == names.text(id)) continue;
    std::string unique = made;
    for (std::size_t number = 2; !taken.insert(unique).second; ++number) {
      unique = fmt::format("{} ({})", made, number);
    }
    names.replace(id, unique);
  }
}

}  // namespace perfmodel
