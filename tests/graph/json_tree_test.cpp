#include "json/json_tree.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace perfmodel {
namespace json_tree_test {

namespace dom = simdjson::dom;

// Writes a value with the type of each number, in the same words for both parsers.
template <class Array, class Object, class Value>
void describe(Value value, std::string& out) {
  std::string_view text;
  std::int64_t integer = 0;
  std::uint64_t big = 0;
  double real = 0;
  bool flag = false;
  Array array;
  Object object;
  if (value.get(array) == simdjson::SUCCESS) {
    out += fmt::format("[{}: ", array.size());
    for (Value element : array) describe<Array, Object>(element, out);
    out += "]";
  } else if (value.get(object) == simdjson::SUCCESS) {
    out += "{";
    for (auto [key, member] : object) {
      out += fmt::format("<{}>=", key);
      describe<Array, Object>(Value(member), out);
    }
    out += "}";
  } else if (value.get(text) == simdjson::SUCCESS) {
    out += fmt::format("<{}> ", text);
  } else if (value.get(integer) == simdjson::SUCCESS) {
    ASSERT_EQ(value.get(real), simdjson::SUCCESS);
    out += fmt::format("i{},{} ", integer, real);
  } else if (value.get(big) == simdjson::SUCCESS) {
    out += fmt::format("u{} ", big);
  } else if (value.get(real) == simdjson::SUCCESS) {
    out += fmt::format("d{} ", real);
  } else if (value.get(flag) == simdjson::SUCCESS) {
    out += fmt::format("b{} ", flag);
  } else {
    EXPECT_EQ(value.type(), dom::element_type::NULL_VALUE);
    out += "null ";
  }
}

std::string by_simdjson(std::string_view padded, std::size_t size) {
  dom::parser parser;
  dom::element root;
  if (auto error = parser.parse(padded.data(), size, false).get(root)) {
    return simdjson::error_message(error);
  }
  std::string out;
  describe<dom::array, dom::object>(root, out);
  return out;
}

std::string by_tree(JsonTree& tree, std::string_view padded, std::size_t size) {
  if (auto error = tree.parse(padded.substr(0, size))) return simdjson::error_message(error);
  std::string out = fmt::format("[{}: ", tree.root().size());
  for (JsonValue value : tree.root()) describe<JsonArray, JsonObject>(value, out);
  return out + "]";
}

void expect_equal(JsonTree& tree, const std::string& text) {
  for (const char after : {' ', '"', ']', '9'}) {  // a text is often part of a longer one
    const std::string padded = text + std::string(64, after);
    EXPECT_EQ(by_tree(tree, padded, text.size()), by_simdjson(padded, text.size())) << text;
  }
}

constexpr std::string_view kTexts[] = {
    "[]",
    "[1]",
    "[ [ ] , { } ]",
    R"([{"id": 3, "name": "aten::to", "attrs": [{"name": "rf_id", "value": 0}, {}], "x": []}])",
    R"(["", " a ", "\u00e9\n", "\ud83d\ude00", "\"", "C:\\x", "ä"])",
    "[0, -0, 12, -12, 999999999999999999, 9223372036854775807, -9223372036854775808]",
    "[9223372036854775808, 18446744073709551615, 1.5, -2e3, 1e-400, 0.1]",
    "[true, false, null, true]",
    "[\n  {\"a\": [[1, 2], [3]], \"b\": {\"c\": {\"d\": null}}},\n\t{\"a\": \"<None>\"}\r\n]"};

TEST(JsonTree, AgreesWithSimdjson) {
  JsonTree tree;
  for (std::string_view text : kTexts) {
    expect_equal(tree, std::string(text));
    const std::string padded = std::string(text) + std::string(64, ' ');
    EXPECT_TRUE(by_tree(tree, padded, text.size()).starts_with('[')) << text;
  }
  for (const char* text : {"[18446744073709551616]",
                           "[1e400]",
                           "[01]",
                           "[-]",
                           "[1.]",
                           "[+1]",
                           "[1,]",
                           "[,1]",
                           "[1 2]",
                           "[1",
                           "[1]]",
                           "[[1]",
                           "[}",
                           "[{]",
                           "[{\"a\"}]",
                           "[{\"a\":}]",
                           "[{\"a\":1,}]",
                           "[{a:1}]",
                           "[{\"a\" 1}]",
                           "[{1:1}]",
                           "[tru]",
                           "[trueb]",
                           "[nul]",
                           "[\"a\"b]",
                           "[12\"a\"]",
                           "[\"a]",
                           "[\"\\x\"]",
                           "[\"\\ud800\"]",
                           "[\"a\nb\"]",
                           "[\"\xff\"]",
                           "[1}",
                           "[{\"a\":1]",
                           "[]1"}) {
    expect_equal(tree, text);
    EXPECT_NE(tree.parse(std::string(text) + std::string(64, ' ')), simdjson::SUCCESS);
  }
}

TEST(JsonTree, AgreesOnDepth) {
  JsonTree tree;
  for (std::size_t depth : {2, 1022, 1023, 1024, 1025}) {
    expect_equal(tree, std::string(depth, '[') + std::string(depth, ']'));
    expect_equal(tree, std::string(depth, '[') + '1' + std::string(depth, ']'));
  }
}

TEST(JsonTree, AgreesOnChangedTexts) {
  constexpr std::string_view kPieces = "[]{}:,\" \n\\0123456789.-+eEtrufalsn\x01\xc3/";
  std::mt19937 random(7);
  JsonTree tree;
  for (int i = 0; i < 60'000; ++i) {
    std::string text(kTexts[random() % std::size(kTexts)]);
    for (std::size_t changes = 1 + random() % 3; changes > 0; --changes) {
      const std::size_t at = 1 + random() % (text.size() - 1);
      const char piece = kPieces[random() % kPieces.size()];
      switch (random() % 3) {
        case 0: text[at] = piece; break;
        case 1: text.insert(at, 1, piece); break;
        default: text.erase(at, text.size() > 2 ? 1 : 0);
      }
    }
    expect_equal(tree, text);
  }
}

}  // namespace json_tree_test
}  // namespace perfmodel
