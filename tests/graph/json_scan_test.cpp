#include "json/json_scan.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <string>

namespace perfmodel {
namespace json_scan_test {

using Status = JsonScan::Status;

JsonScan strict(const std::string& text) { return scan_json(text, JsonManner::kStrict, {}); }
JsonScan lenient(const std::string& text) { return scan_json(text, JsonManner::kLenient, {}); }

TEST(JsonScan, AgreesWithAnotherParserOnRandomText) {
  std::mt19937 random(5);
  static constexpr std::string_view kParts[] = {
      "{",  "}", "[",    "]",   ",",    ":", "\"a\"", "1",  "-",       "1.5",
      "e3", "0", "true", "nul", "null", " ", "\"",    "\\", "\\u00e9", "NaN"};
  std::size_t good = 0;
  for (int round = 0; round < 100'000; ++round) {
    std::string text(1, "{["[random() % 2]);
    for (auto i = random() % 9; i > 0; --i) text += kParts[random() % std::size(kParts)];
    text += " ";
    const JsonScan scan = strict(text);
    // For us, text may follow a value; a parser of documents refuses it.
    const std::string value = scan.complete() ? text.substr(0, scan.past) : text;
    ASSERT_EQ(scan.complete(), nlohmann::json::accept(value)) << text << scan.message;
    good += scan.complete();
    // Repaired text is JSON; good text stays.
    const JsonScan mended = lenient(text);
    if (mended.complete()) {
      ASSERT_TRUE(nlohmann::json::accept(mended.copy)) << text << " -> " << mended.copy;
    }
    if (scan.complete()) {
      ASSERT_EQ(mended.status, Status::kGood);
      ASSERT_EQ(nlohmann::json::parse(mended.copy), nlohmann::json::parse(value));
    }
  }
  EXPECT_GT(good, 500u);
}

struct Defect {
  const char* text;
  Status status;  // lenient
  const char* copy;
  std::size_t at;
  const char* pointer;
  const char* message;
};

TEST(JsonScan, TellsTheFirstDefectAndMendsWhatItMay) {
  const Defect defects[] = {
      {R"({"a":1 "b":2})", Status::kRepaired, R"({"a":1,"b":2})", 7, "/a",
       "expected ',' or '}', found '\"'"},
      {R"({"a":1,,"b":2})", Status::kRepaired, R"({"a":1,"b":2})", 7, "",
       "expected a key, found ','"},
      {R"({"a":1,})", Status::kRepaired, R"({"a":1})", 7, "", "expected a key, found '}'"},
      {R"([1,2,])", Status::kRepaired, "[1,2]", 5, "/2", "expected a value, found ']'"},
      {R"([1,,2])", Status::kRepaired, "[1,2]", 3, "/1", "expected a value, found ','"},
      {R"([1 2])", Status::kRepaired, "[1,2]", 3, "/0", "expected ',' or ']', found '2'"},
      {R"({"a":[NaN,1]})", Status::kRepaired, R"({"a":["nan",1]})", 6, "/a/0",
       "expected a number, found NaN"},
      {R"({"a":-Infinity})", Status::kRepaired, R"({"a":"-inf"})", 5, "/a",
       "expected a number, found -Infinity"},
      {R"({"a":Infinity})", Status::kRepaired, R"({"a":"inf"})", 5, "/a",
       "expected a number, found Infinity"},
      {R"({"a":1e999})", Status::kRepaired, R"({"a":"inf"})", 5, "/a",
       "expected a number that a double holds, found 1e999"},
      {R"({"a":18446744073709551616})", Status::kRepaired, R"({"a":18446744073709551616e0})", 5,
       "/a", "expected an integer of at most 64 bits, found 18446744073709551616"},
      {R"({"a":-9223372036854775809})", Status::kRepaired, R"({"a":-9223372036854775809e0})", 5,
       "/a", "expected an integer of at most 64 bits, found -9223372036854775809"},
      {"{\"a\":\"x\ny\"}", Status::kRepaired, R"({"a":"x?y"})", 7, "/a",
       "expected no control character in a string, found byte 0x0A"},
      {"{\"a\":\"x\xFFy\"}", Status::kRepaired, R"({"a":"x?y"})", 7, "/a",
       "expected UTF-8, found byte 0xFF"},
      {R"({"a":"\x"})", Status::kRepaired, R"({"a":"?x"})", 6, "/a",
       R"(expected a JSON escape, found \x)"},
      {R"({"a":"\ud800 lone"})", Status::kRepaired, R"({"a":"?ud800 lone"})", 6, "/a",
       R"(expected a JSON escape, found \u)"},
      {R"({"a/b~":{]})", Status::kBroken, nullptr, 9, "/a~1b~0",
       "expected a key or '}', found ']'"},
      {R"({"a":1])", Status::kBroken, nullptr, 6, "/a", "expected ',' or '}', found ']'"},
      {R"({"a" 1})", Status::kBroken, nullptr, 5, "/a", "expected ':', found '1'"},
      {R"({"a":})", Status::kBroken, nullptr, 5, "/a", "expected a value, found '}'"},
      {R"({a:1})", Status::kBroken, nullptr, 1, "", "expected a key or '}', found 'a'"},
      {R"({"a":tru})", Status::kBroken, nullptr, 5, "/a", "expected a value, found 't'"},
      {R"({"a":01})", Status::kBroken, nullptr, 5, "/a", "expected a number, found 01}"},
      {R"({"a":[1,{"b":")", Status::kOpen, nullptr, 14, "/a/1/b",
       "expected '\"', found the end of the file"},
      {R"({"a":1)", Status::kOpen, nullptr, 6, "/a",
       "expected the rest of a number, found the end of the file"},
  };
  for (const Defect& defect : defects) {
    SCOPED_TRACE(defect.text);
    const JsonScan told = strict(defect.text), mended = lenient(defect.text);
    EXPECT_EQ(told.status, defect.status == Status::kOpen ? Status::kOpen : Status::kBroken);
    EXPECT_EQ(mended.status, defect.status);
    for (const JsonScan* scan : {&told, &mended}) {
      EXPECT_EQ(scan->defect, defect.at);
      EXPECT_EQ(scan->pointer, defect.pointer);
      EXPECT_EQ(scan->message, defect.message);
    }
    if (defect.copy) {
      EXPECT_EQ(mended.copy, defect.copy);
    }
  }
}

TEST(JsonScan, AddressesOfSixtyFourBitsAreFine) {
  EXPECT_EQ(strict("[9223372036854775808,18446744073709551615,-9223372036854775808]").status,
            Status::kGood);
}

TEST(JsonScan, EveryPrefixIsOpen) {
  const std::string text = R"({"a\u00e9\ud83d\ude00": [1.5e3, {"b": null}, "é"], "c": true})";
  for (std::size_t size = 0; size < text.size(); ++size) {
    EXPECT_EQ(strict(text.substr(0, size)).status, Status::kOpen) << text.substr(0, size);
    EXPECT_EQ(lenient(text.substr(0, size)).status, Status::kOpen) << text.substr(0, size);
  }
  EXPECT_EQ(strict(text).past, text.size());
}

TEST(JsonScan, KeysOfTheValueItselfAreNoted) {
  EXPECT_EQ(lenient(R"({"id": 1, "x": {"name": 2}, "ts": 3})").keys, 1u | 8u);
  EXPECT_EQ(lenient(R"({"name": 1, "ph": 2})").keys, 2u | 4u);
}

TEST(JsonScan, DepthIsLimitedAndNeedsNoStack) {
  const JsonScan deep =
      scan_json(std::string(1'000'000, '['), JsonManner::kLenient, {.nesting = 1000});
  EXPECT_EQ(deep.status, Status::kBroken);
  EXPECT_TRUE(deep.over_limit);
  EXPECT_EQ(deep.defect, 1000u);
}

}  // namespace json_scan_test
}  // namespace perfmodel
