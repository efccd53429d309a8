// Where JSON files are wrong: pointers, keys that occur twice, lines and columns.
#include "files/json_position.hpp"

#include <gtest/gtest.h>

#include <string>

#include "files/json_file.hpp"

namespace perfmodel {
namespace json_position_test {

// Brackets, quotes and commas inside of strings do not count.
constexpr std::string_view kText = R"({ "a" : [1, {"b]": "x\"},{", "c": null}, "]"],
  "a/b~c": {"": true},
  "\u0064": -2.5e3 })";

std::string_view from(std::string_view pointer) {
  return kText.substr(find_json_pointer(kText, pointer), 4);
}

TEST(JsonPosition, FindsWhatAPointerNames) {
  EXPECT_EQ(from(""), "{ \"a");
  EXPECT_EQ(from("/a"), "[1, ");
  EXPECT_EQ(from("/a/0"), "1, {");
  EXPECT_EQ(from("/a/1"), "{\"b]");
  EXPECT_EQ(from("/a/1/b]"), "\"x\\\"");
  EXPECT_EQ(from("/a/1/c"), "null");
  EXPECT_EQ(from("/a/2"), "\"]\"]");
  EXPECT_EQ(from("/a~1b~0c"), "{\"\":");
  EXPECT_EQ(from("/a~1b~0c/"), "true");
  EXPECT_EQ(from("/d"), "-2.5");  // spelt \u0064
}

TEST(JsonPosition, StopsAtTheInnermostValueThatIsThere) {
  EXPECT_EQ(from("/x"), "{ \"a");
  EXPECT_EQ(from("/a/3"), "[1, ");
  EXPECT_EQ(from("/a/0/x"), "1, {");
  EXPECT_EQ(from("/a/1/x/y"), "{\"b]");
  EXPECT_EQ(find_json_pointer("  []", "/0"), 2U);
  EXPECT_EQ(find_json_pointer("{}", "/x"), 0U);
}

TEST(JsonPosition, CountsKeys) {
  EXPECT_EQ(kText.substr(find_json_key(kText, 1), 3), "\"a\"");
  EXPECT_EQ(kText.substr(find_json_key(kText, 2), 4), "\"b]\"");
  EXPECT_EQ(kText.substr(find_json_key(kText, 4), 7), "\"a/b~c\"");
  EXPECT_EQ(kText.substr(find_json_key(kText, 6), 8), "\"\\u0064\"");
}

TEST(JsonPosition, LinesAndColumnsBeginAtOne) {
  Error error;
  set_position(error, 0, kText);
  EXPECT_EQ(error.line * 100 + error.column, 101);
  set_position(error, find_json_pointer(kText, "/a~1b~0c"), kText);
  EXPECT_EQ(error.line * 100 + error.column, 212);
}

TEST(JsonPosition, DepthCostsNoStack) {
  const std::string deep = std::string(1'000'000, '[') + std::string(1'000'000, ']');
  EXPECT_EQ(find_json_pointer(deep, "/1"), 0U);
  EXPECT_EQ(find_json_pointer(deep, "/0/0"), 2U);
}

std::string error_of(const std::string& text) {
  const auto read =
      parse_json_text(text, "a file", "f.json", [](const Json& json, std::optional<Error>& error) {
        ObjectReader root(json, "", error);
        root.positive("a");
        root.any("o");
        root.finish();
        return 0;
      });
  return read ? "read" : to_string(read.error());
}

TEST(JsonFile, ErrorsHaveAPlace) {
  EXPECT_EQ(error_of("{\"a\": 1, \"o\": {\"a\": 1}}"), "read");
  EXPECT_EQ(error_of("{\"o\": 0,\n  \"a\": 0}"),
            "f.json:2:8: /a: expected a number above 0, found 0");
  EXPECT_EQ(error_of("\n{\"a\": 1}"), "f.json:2:1: /o: expected this key, found nothing");
  EXPECT_EQ(error_of("{\"a\": 1, \"o\": 2, \"a/b\": 3}"),
            "f.json:1:25: /a~1b: expected no such key, found 3");
  EXPECT_EQ(error_of("{\"a\": 1,\n\"o\": {\"x\": 1,\n \"x\": 2}}"),
            "f.json:3:2: expected each key once, found \"x\" again");
  EXPECT_EQ(error_of("{\"a\": 1, \"o\": [{\"x\": 1}, {\"x\": 2}]}"), "read");
  EXPECT_EQ(error_of("{\"a\": 1, \"o\" 2}"),
            "f.json:1:14: expected JSON, found something else here");
}

TEST(FoundValue, IsShownAsJsonUpToFortyCharacters) {
  EXPECT_EQ(found(Json::parse(R"({"a":[1,"x",null,{}],"b":-2.5})")),
            R"({"a":[1,"x",null,{}],"b":-2.5})");
  EXPECT_EQ(found(std::string(38, 'x')), "\"" + std::string(38, 'x') + "\"");
  EXPECT_EQ(found(std::string(39, 'x')), "\"" + std::string(36, 'x') + "...");
  EXPECT_EQ(found(Json(std::vector<int>(1000, 7))), "[7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,...");
}

TEST(FoundValue, MayBeDeeperThanTheStack) {
  constexpr std::size_t kDepth = 1'000'000;
  const Json deep = Json::parse(std::string(kDepth, '[') + std::string(kDepth, ']'));
  EXPECT_EQ(found(deep), std::string(37, '[') + "...");
}

TEST(JsonPosition, FindsWhereATextIsNoJson) {
  EXPECT_EQ(find_json_defect("[1,,2]"), 3U);
  EXPECT_EQ(find_json_defect("{\"a\": tru}"), 9U);
  EXPECT_EQ(find_json_defect("[1"), 2U);
  EXPECT_EQ(find_json_defect(""), 0U);
  EXPECT_TRUE(find_json_defect("[1e999]"));  // no double holds it
  EXPECT_TRUE(find_json_defect("[\"\xFF\"]"));
  EXPECT_FALSE(find_json_defect("{\"a\": [1, 2.5e3, \"b\", null, true]}"));
}

}  // namespace json_position_test
}  // namespace perfmodel
