// Pseudonyms: what was taken for a name is gone everywhere, equal texts stay equal, names of a pool
// stay different.
#include <algorithm>
#include <cctype>
#include <set>
#include <string>
#include <vector>

#include "base/anonymize.hpp"
#include "fuzz.hpp"

using namespace perfmodel;

namespace {

constexpr std::string_view kUser = "qvzkuser";

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }

bool has_word(std::string_view text, std::string_view word) {
  for (std::size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    const bool begins = at == 0 || !is_word(text[at - 1]);
    if (begins && (end == text.size() || !is_word(text[end]))) return true;
  }
  return false;
}

void check_pool(const std::vector<std::string>& texts) {
  StringPool pool;
  std::vector<NameId> ids;
  for (const std::string& text : texts) ids.push_back(pool.intern(text));
  const std::set<NameId> different(ids.begin(), ids.end());
  Anonymizer().replace_names(pool);
  std::set<std::string_view> names;
  for (const NameId id : different) names.insert(pool.text(id));
  PERFMODEL_CHECK(names.size() == different.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = fuzz::text_of(data, size);
  std::vector<std::string> lines;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    lines.emplace_back(text.substr(at, end - at));
    at = end + 1;
  }
  Anonymizer anonymizer;
  for (const std::string& line : lines) anonymizer.learn(line);
  anonymizer.learn("/home/" + std::string(kUser) + "/run");
  for (const std::string& line : lines) {
    const std::string once = anonymizer.replaced(line);
    PERFMODEL_CHECK(anonymizer.replaced(line) == once);
    PERFMODEL_CHECK(!has_word(once, kUser));
  }
  check_pool(lines);
  return 0;
}
