#include "json/container_end.hpp"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <string_view>

namespace perfmodel {
namespace container_end_test {

// The same question asked one byte at a time.
const char* find_end_bytewise(const char* begin, const char* end) {
  int depth = 0;
  bool in_string = false;
  for (const char* at = begin; at < end; ++at) {
    if (in_string) {
      if (*at == '\\') {
        ++at;
      } else if (*at == '"') {
        in_string = false;
      }
    } else if (*at == '"') {
      in_string = true;
    } else if (*at == '{' || *at == '[') {
      ++depth;
    } else if ((*at == '}' || *at == ']') && --depth == 0) {
      return at + 1;
    }
  }
  return nullptr;
}

TEST(FindContainerEnd, AgreesWithAByteWiseScanOnRandomText) {
  std::mt19937 random(11);
  std::size_t found = 0;
  for (int round = 0; round < 20'000; ++round) {
    // Few quotes and many backslashes, or the reverse; up to six blocks long. Outside strings JSON
    // has no backslash.
    static constexpr std::string_view kAlphabets[] = {"{}[]\"\\ab", "{}\"\\\\\\\\a",
                                                      "[]aaaaaaaaaaaa\"", "{{{{}}}}[]\"\"\\x"};
    const std::string_view alphabet = kAlphabets[random() % 4];
    std::string text(1, "{["[random() % 2]);
    const std::size_t size = random() % 400;
    bool in_string = false, escaped = false;
    while (text.size() < size) {
      const char c = alphabet[random() % alphabet.size()];
      if (c == '\\' && !in_string) continue;
      if (c == '"' && !escaped) in_string = !in_string;
      escaped = c == '\\' && !escaped;
      text += c;
    }
    const std::size_t used = text.size();
    text += std::string(64, "} \"\\"[random() % 4]);  // readable, but not part of the text
    const char* const begin = text.data();
    const char* const wanted = find_end_bytewise(begin, begin + used);
    ASSERT_EQ(find_container_end(begin, begin + used), wanted) << text.substr(0, used);
    found += wanted != nullptr;
  }
  EXPECT_GT(found, 1000u);
}

TEST(FindContainerEnd, FindsTheEndOfGeneratedJson) {
  std::mt19937 random(13);
  for (int round = 0; round < 3000; ++round) {
    // Nested objects and arrays with strings of awkward characters; the end is known.
    std::string text;
    const auto value = [&](const auto& self, int depth) -> void {
      const auto kind = random() % (depth > 5 ? 2 : 4);
      if (kind == 0) {
        text += std::to_string(random() % 100'000);
      } else if (kind == 1) {
        text += '"';
        for (auto i = random() % 90; i > 0; --i) {
          static constexpr std::string_view kParts[] = {"\\\"", "\\\\", "{", "}",
                                                        "[",    "]",    "a", ","};
          text += kParts[random() % 8];
        }
        text += '"';
      } else {
        text += kind == 2 ? '{' : '[';
        for (auto i = random() % 4; i > 0; --i) {
          if (kind == 2) text += "\"k\": ";
          self(self, depth + 1);
          if (i > 1) text += ", ";
        }
        text += kind == 2 ? '}' : ']';
      }
    };
    text = "[";
    value(value, 0);
    text += "]";
    const std::size_t used = text.size();
    text += std::string(64, ']');
    ASSERT_EQ(find_container_end(text.data(), text.data() + used), text.data() + used);
    ASSERT_EQ(find_container_end(text.data(), text.data() + used - 1), nullptr);
  }
}

}  // namespace container_end_test
}  // namespace perfmodel
