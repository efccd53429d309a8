#include "kernel_words.hpp"

#include <cctype>
#include <cstddef>

namespace perfmodel {
namespace {

constexpr std::string_view kUnnamed = "(anonymous namespace)::";

bool is_in_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// Where the parameters begin: the bracket that the last one closes; the end if there are none.
std::size_t begin_of_parameters(std::string_view name) {
  if (!name.ends_with(')')) return name.size();
  int open = 0;
  for (std::size_t i = name.size(); i-- > 0;) {
    open += name[i] == ')' ? 1 : name[i] == '(' ? -1 : 0;
    if (open == 0) return i;
  }
  return name.size();
}

}  // namespace

std::string without_scopes(std::string_view name) {
  name = name.substr(0, begin_of_parameters(name));
  if (name.starts_with("void ")) name.remove_prefix(5);
  std::string made;
  for (std::size_t at = 0; at < name.size();) {
    if (name.substr(at).starts_with(kUnnamed)) {
      at += kUnnamed.size();
      continue;
    }
    std::size_t end = at;
    while (end < name.size() && is_in_word(name[end])) ++end;
    const bool is_scope = end > at && name.substr(end).starts_with("::");
    if (end == at) ++end;
    if (!is_scope) made += name.substr(at, end - at);
    at = end + (is_scope ? 2 : 0);
  }
  return made;
}

}  // namespace perfmodel
