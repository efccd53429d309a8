#include "json/json_stream.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "../scratch.hpp"
#include "gzip_text.hpp"

namespace perfmodel {
namespace json_stream_test {

using std::filesystem::path;
using test_support::gzip;
using Item = JsonStream::Item;

// Results of a walk over a document.
struct Walk {
  std::vector<std::string> members;   // "key=text"
  std::vector<std::string> elements;  // in order
  std::size_t pieces = 0;
  bool array_seen = false, cut_off = false, indices_run = true;
  std::string error;  // error of `next` or `open`
};

class JsonStreamTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = test_support::scratch() / "json_stream";
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  path write(const std::string& text, const std::string& name = "in.json") {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return folder_ / name;
  }

  static Walk walk(const path& file, bool salvage = false) {
    Walk seen;
    auto stream = JsonStream::open(file, "nodes", {.salvage = salvage});
    if (!stream) {
      seen.error = to_string(stream.error());
      return seen;
    }
    for (;;) {
      const auto item = stream->next();
      if (!item) {
        seen.error = to_string(item.error());
        if (const auto name = seen.error.find("in.json"); name != std::string::npos) {
          seen.error.erase(0, name);
        }
        break;
      }
      if (*item == Item::kEnd) break;
      if (*item == Item::kMember) {
        seen.members.push_back(stream->member_key() + "=" + stream->member_text());
        continue;
      }
      ++seen.pieces;
      seen.indices_run &= stream->first_index() == seen.elements.size();
      for (std::size_t i = 0; i < stream->element_count(); ++i) {
        seen.elements.emplace_back(stream->element_text(i));
      }
      EXPECT_EQ(stream->elements().front(), '[');
      EXPECT_EQ(stream->elements().back(), ']');
    }
    seen.array_seen = stream->array_seen();
    seen.cut_off = stream->cut_off();
    return seen;
  }
  Walk walk_text(const std::string& text, bool salvage = false) {
    return walk(write(text), salvage);
  }

  path folder_;
};

// ---- documents that are fine -------------------------------------------------------------------

TEST_F(JsonStreamTest, MembersStandBeforeAndBehindTheArray) {
  const Walk seen = walk_text(R"( {"a": 1, "nodes": [{"x": 1}, {"x": 2}], "b": {"nodes": [9]} } )");
  EXPECT_EQ(seen.error, "");
  EXPECT_EQ(seen.members, (std::vector<std::string>{"a=1", R"(b={"nodes": [9]})"}));
  EXPECT_EQ(seen.elements, (std::vector<std::string>{R"({"x": 1})", R"({"x": 2})"}));
  EXPECT_TRUE(seen.array_seen);
}

TEST_F(JsonStreamTest, TheKeyInsideAMemberIsNotTheArray) {
  const Walk seen = walk_text(R"({"head": {"nodes": [{"x": 1}]}, "nodes": [{"y": 2}]})");
  EXPECT_EQ(seen.elements, (std::vector<std::string>{R"({"y": 2})"}));
}

TEST_F(JsonStreamTest, ABareArrayHasNoMembers) {
  const Walk seen = walk_text("[{\"x\": 1},\n{\"x\": 2}]\n");
  EXPECT_EQ(seen.error, "");
  EXPECT_EQ(seen.elements.size(), 2u);
  EXPECT_TRUE(seen.members.empty());
}

TEST_F(JsonStreamTest, EmptyArraysAndObjectsAreFine) {
  EXPECT_EQ(walk_text("[]").error, "");
  EXPECT_TRUE(walk_text("[ ]").array_seen);
  const Walk empty = walk_text(R"({"nodes": [
  ], "b": 2})");
  EXPECT_EQ(empty.error, "");
  EXPECT_TRUE(empty.elements.empty());
  EXPECT_EQ(empty.members, (std::vector<std::string>{"b=2"}));
  EXPECT_FALSE(walk_text("{}").array_seen);
  EXPECT_EQ(walk_text("{}").error, "");
}

TEST_F(JsonStreamTest, AByteOrderMarkIsSkipped) {
  EXPECT_EQ(walk_text("\xEF\xBB\xBF[{\"x\": 1}]").elements.size(), 1u);
}

TEST_F(JsonStreamTest, BracketsAndQuotesInsideStringsDoNotCount) {
  const std::string element = R"({"name": "}]{[\"]}\\", "s": "\\\\\" }"})";
  const Walk seen = walk_text("{\"k\": \"}],\\\"\", \"nodes\": [" + element + "," + element + "]}");
  EXPECT_EQ(seen.error, "");
  EXPECT_EQ(seen.elements, (std::vector<std::string>{element, element}));
  EXPECT_EQ(seen.members, (std::vector<std::string>{R"(k="}],\"")"}));
}

// Backslashes and quotes at every place of a 64-byte block, runs that cross its border included.
TEST_F(JsonStreamTest, EscapesMayCrossBlockBorders) {
  for (std::size_t padding = 0; padding < 130; ++padding) {
    for (std::size_t slashes = 0; slashes < 4; ++slashes) {
      // An even run of backslashes, then a bracket that the string still holds, then an escaped
      // quote.
      const std::string element =
          "{\"" + std::string(padding, 'p') + std::string(2 * slashes, '\\') + "\\\"}\": 1}";
      const Walk seen = walk_text("[" + element + ", {\"y\": 2}]");
      ASSERT_EQ(seen.error, "") << padding << ' ' << slashes;
      ASSERT_EQ(seen.elements, (std::vector<std::string>{element, R"({"y": 2})"}));
    }
  }
}

TEST_F(JsonStreamTest, AnElementMayBeLargerThanAPiece) {
  // 5 MB in one element between two small ones; pieces are about 1 MB.
  const std::string large = "{\"large\": \"" + std::string(5'000'000, 'x') + "}\"}";
  const Walk seen = walk_text("{\"nodes\": [{\"a\": 1}, " + large + ", {\"b\": 2}], \"tail\": 3}");
  EXPECT_EQ(seen.error, "");
  ASSERT_EQ(seen.elements.size(), 3u);
  EXPECT_EQ(seen.elements[1], large);
  EXPECT_EQ(seen.elements[2], R"({"b": 2})");
  EXPECT_EQ(seen.members, (std::vector<std::string>{"tail=3"}));
  EXPECT_TRUE(seen.indices_run);
}

TEST_F(JsonStreamTest, ElementsCrossPieceBordersUnharmed) {
  // 6 MB of elements between 2 and 70,000 bytes, most of them small, in changing white space.
  std::mt19937 random(3);
  std::vector<std::string> wanted;
  std::string text = "[";
  while (text.size() < 6'000'000) {
    const std::size_t size = random() % 20 == 0 ? random() % 70'000 : random() % 300;
    std::string element = R"({"i": )" + std::to_string(wanted.size()) + R"(, "s": ")";
    for (std::size_t i = 0; i < size; ++i) element += "ab{}[],:\\\""[random() % 8];
    element += "\"}";
    if (!wanted.empty()) text += random() % 2 ? "," : " ,\n  ";
    text += element;
    wanted.push_back(std::move(element));
  }
  text += "\n]";
  const Walk seen = walk_text(text);
  EXPECT_EQ(seen.error, "");
  EXPECT_GT(seen.pieces, 3u);
  EXPECT_TRUE(seen.indices_run);
  EXPECT_TRUE(seen.elements == wanted);
}

TEST_F(JsonStreamTest, AHugeMemberIsSkippedAndItsTextEmpty) {
  const Walk seen =
      walk_text("{\"huge\": \"" + std::string(3'000'000, '[') + "\", \"nodes\": [{}]}");
  EXPECT_EQ(seen.error, "");
  EXPECT_EQ(seen.members, (std::vector<std::string>{"huge="}));
  EXPECT_EQ(seen.elements.size(), 1u);
}

TEST_F(JsonStreamTest, ScalarsAreElementsToo) {
  const Walk seen = walk_text(R"([1, "a\"]", "b\\", null, {"x": 1}])");
  EXPECT_EQ(seen.error, "");
  EXPECT_EQ(seen.elements,
            (std::vector<std::string>{"1", R"("a\"]")", R"("b\\")", "null", R"({"x": 1})"}));
}

TEST_F(JsonStreamTest, GzipMembersInARowAreOneText) {
  const path file = write(gzip("[{\"x\": 1},{\"y") + gzip("\": 2}]") + gzip("\n"), "in.json.gz");
  const Walk seen = walk(file);
  EXPECT_EQ(seen.error, "");
  EXPECT_EQ(seen.elements, (std::vector<std::string>{R"({"x": 1})", R"({"y": 2})"}));
}

// ---- errors and their places -------------------------------------------------------------------

TEST_F(JsonStreamTest, MissingCommasAreLocated) {
  EXPECT_EQ(walk_text("[{\"x\": 1}\n  {\"x\": 2}]").error,
            "in.json:2:3: /0: expected ',' or ']', found '{'");
  EXPECT_EQ(walk_text("{\"a\": 1 \"b\": 2}").error, "in.json:1:9: expected ',' or '}', found '\"'");
  EXPECT_EQ(walk_text("{\"nodes\": []\n\"b\": 2}").error,
            "in.json:2:1: expected ',' or '}', found '\"'");
}

TEST_F(JsonStreamTest, TextBehindTheDocumentIsAnError) {
  EXPECT_EQ(walk_text("[]\nmore").error, "in.json:2:1: expected the end of the file, found 'm'");
  EXPECT_EQ(walk_text("{\"nodes\": []} {}").error,
            "in.json:1:15: expected the end of the file, found '{'");
}

TEST_F(JsonStreamTest, WhatIsNoJsonIsSaid) {
  EXPECT_EQ(walk_text("").error, "in.json:1:1: expected JSON, found an empty file");
  EXPECT_EQ(walk_text(" \n\t\n").error, "in.json:3:1: expected JSON, found only blanks");
  EXPECT_EQ(walk_text("  name,ts\n").error,
            "in.json:1:3: expected a JSON object or array, found 'n'");
  EXPECT_EQ(walk_text("{\"nodes\": {}}").error,
            "in.json:1:11: /nodes: expected an array, found an object");
  EXPECT_EQ(walk_text("{\"nodes\": 5}").error,
            "in.json:1:11: /nodes: expected an array, found a number");
  EXPECT_EQ(walk_text("{nodes: []}").error, "in.json:1:2: expected a key, found 'n'");
  EXPECT_EQ(walk_text("{\"nodes\" []}").error, "in.json:1:10: /nodes: expected ':'");
}

TEST_F(JsonStreamTest, EveryPrefixOfADocumentIsAnErrorAndNeverACrash) {
  const std::string text =
      R"({"a\\\"b": "x\"y", "nodes": [{"k": "\\}"}, [1, {"z": []}]], "t": {"u": [1]}})";
  for (std::size_t size = 0; size < text.size(); ++size) {
    const Walk seen = walk_text(text.substr(0, size));
    EXPECT_NE(seen.error.find("expected"), std::string::npos) << text.substr(0, size);
  }
  EXPECT_EQ(walk_text(text).error, "");
}

TEST_F(JsonStreamTest, PlacesAreRightBehindManyPieces) {
  // 40,000 lines of 100 characters: the reader has read 4 MB when it meets the defect.
  std::string text = "[\n";
  const std::string line = "{\"s\": \"" + std::string(89, 'x') + "\"},\n";
  ASSERT_EQ(line.size(), 100u);
  for (int i = 0; i < 40'000; ++i) text += line;
  text += "   {\"s\": 1} {\"s\": 2}]";
  EXPECT_EQ(walk_text(text).error, "in.json:40002:13: /40000: expected ',' or ']', found '{'");
}

TEST_F(JsonStreamTest, ColumnsAreRightInOneLongLine) {
  std::string text = "[";
  const std::string element = "{\"s\": \"" + std::string(90, 'x') + "\"},";
  ASSERT_EQ(element.size(), 100u);
  for (int i = 0; i < 40'000; ++i) text += element;
  text += "{} {}]";
  // '[' + 4,000,000 characters + "{} " = 4,000,004; the brace is the next one.
  EXPECT_EQ(walk_text(text).error, "in.json:1:4000005: /40000: expected ',' or ']', found '{'");
}

TEST_F(JsonStreamTest, ElementErrorsPointToTheElement) {
  auto stream = JsonStream::open(write("{\"nodes\": [\n{\"id\": 1},\n {\"id\": 2}]}"), "nodes");
  ASSERT_TRUE(stream);
  ASSERT_EQ(stream->next().value(), Item::kElements);
  const Error error = stream->element_error(1, "/id", "expected x, found y");
  EXPECT_EQ(error.json_pointer, "/nodes/1/id");
  EXPECT_EQ(error.line, 3);
  EXPECT_EQ(error.column, 2);
  EXPECT_EQ(error.code, ErrorCode::kFormat);
}

TEST_F(JsonStreamTest, SyntaxErrorsPointToTheCharacter) {
  auto stream = JsonStream::open(write("{\"nodes\": [\n{\"id\": 1},\n {\"id\": 2,}]}"), "nodes");
  ASSERT_TRUE(stream);
  ASSERT_EQ(stream->next().value(), Item::kElements);
  const Error error = stream->syntax_error("something");
  EXPECT_EQ(error.json_pointer, "/nodes/1");
  EXPECT_EQ(error.message, "expected a key, found '}'");
  EXPECT_EQ(error.line, 3);
  EXPECT_EQ(error.column, 11);  // the brace after the comma
  EXPECT_EQ(error.code, ErrorCode::kSyntax);
}

TEST_F(JsonStreamTest, WhatCannotBeOpenedIsAnIoError) {
  for (const path& file : {folder_ / "none.json", folder_}) {
    const auto stream = JsonStream::open(file, "nodes");
    ASSERT_FALSE(stream);
    EXPECT_EQ(stream.error().code, ErrorCode::kIo);
    EXPECT_EQ(stream.error().file, file);
  }
}

TEST_F(JsonStreamTest, DamagedGzipIsToldAsSuch) {
  std::string text = "[";
  for (int i = 0; i < 5000; ++i) text += "{\"n\": " + std::to_string(i * 7919 % 10007) + "},";
  text += "{}]";
  const std::string packed = gzip(text);
  const Walk cut = walk(write(packed.substr(0, packed.size() / 2), "in.json.gz"));
  EXPECT_NE(cut.error.find("expected more gzip data"), std::string::npos) << cut.error;
  std::string flipped = packed;
  flipped[flipped.size() - 6] = static_cast<char>(flipped[flipped.size() - 6] ^ 0x55);  // check sum
  const Walk broken = walk(write(flipped, "in.json.gz"));
  EXPECT_NE(broken.error.find("gzip"), std::string::npos) << broken.error;
}

// ---- salvage -----------------------------------------------------------------------------------

TEST_F(JsonStreamTest, SalvageKeepsTheCompleteElementsOfEveryPrefix) {
  const std::string head = R"({"a": 1, "nodes": [)";
  const std::vector<std::string> elements = {R"({"k": "}"})", R"({"l": [1, 2]})", R"({"m": "\""})"};
  const std::string tail = R"(], "t": {"u": 2}})";
  const std::string text = head + elements[0] + ", " + elements[1] + "," + elements[2] + tail;
  for (std::size_t size = head.size(); size < text.size(); ++size) {
    const Walk seen = walk_text(text.substr(0, size), true);
    SCOPED_TRACE(text.substr(0, size));
    EXPECT_EQ(seen.error, "");
    EXPECT_TRUE(seen.cut_off);
    std::size_t complete = 0, past = head.size();
    for (const std::string& element : elements) {
      past = text.find(element, past) + element.size();
      complete += past <= size;
    }
    EXPECT_EQ(seen.elements,
              std::vector<std::string>(elements.begin(),
                                       elements.begin() + static_cast<std::ptrdiff_t>(complete)));
  }
  const Walk whole = walk_text(text, true);
  EXPECT_EQ(whole.error, "");
  EXPECT_FALSE(whole.cut_off);
}

TEST_F(JsonStreamTest, SalvageOfTruncatedGzipKeepsWhatWasInflated) {
  std::string text = "[";
  for (int i = 0; i < 5000; ++i) text += "{\"n\": " + std::to_string(i * 7919 % 10007) + "},";
  text += "{}]";
  const std::string packed = gzip(text);
  const Walk seen = walk(write(packed.substr(0, packed.size() / 2), "in.json.gz"), true);
  EXPECT_EQ(seen.error, "");
  EXPECT_TRUE(seen.cut_off);
  EXPECT_GT(seen.elements.size(), 500u);
  EXPECT_LT(seen.elements.size(), 5000u);
}

// ---- cost and limits ---------------------------------------------------------------------------

// Every byte is looked at a bounded number of times, however long an element and wherever it ends.
TEST_F(JsonStreamTest, LongElementsCostNoMoreThanTheirLength) {
  const std::size_t size = std::size_t{12} << 20;
  for (const std::string& text :
       {"[{\"a\": \"" + std::string(size, 'x') + "\"}]", "[{\"a\": \"" + std::string(size, 'x'),
        "[" + std::string(size, '['), "[{\"a\": [" + std::string(size, '1')}) {
    for (const bool salvage : {false, true}) {
      auto stream = JsonStream::over(text, "in.json", "nodes",
                                     {.salvage = salvage, .limits = {.nesting = 1000}});
      for (;;) {
        const auto item = stream.next();
        if (!item || *item == Item::kEnd) break;
      }
      EXPECT_LT(stream.bytes_scanned(), 5 * size) << text.substr(0, 20) << salvage;
    }
  }
}

TEST_F(JsonStreamTest, NestingIsLimitedToTheBracket) {
  const auto nested = [](std::size_t depth) {
    return "[{\"a\": " + std::string(depth - 1, '[') + std::string(depth - 1, ']') + "}]";
  };
  const auto error_of = [](const std::string& text, std::size_t nesting) -> std::string {
    auto stream = JsonStream::over(text, "in.json", "nodes", {.limits = {.nesting = nesting}});
    const auto item = stream.next();
    return item ? "" : to_string(item.error());
  };
  for (const std::size_t limit : {1, 2, 63, 64, 65, 128, 500}) {
    EXPECT_EQ(error_of(nested(limit), limit), "") << limit;
    EXPECT_EQ(error_of(nested(limit + 1), limit),
              "in.json:1:" + std::to_string(limit + 7) + ": /0: expected at most " +
                  std::to_string(limit) +
                  " brackets within brackets, found more (limit nesting; --limit nesting=N raises "
                  "it)");
  }
}

TEST_F(JsonStreamTest, ElementsAndStringsAreLimited) {
  const auto error_of = [](const std::string& text, const ReadLimits& limits) -> std::string {
    auto stream = JsonStream::over(text, "in.json", "nodes", {.limits = limits});
    for (;;) {
      const auto item = stream.next();
      if (!item) return to_string(item.error());
      if (*item == Item::kEnd) return "";
    }
  };
  EXPECT_EQ(error_of(R"([{"a":1}, {"a":2}])", {.element_bytes = 7, .elements = 2}), "");
  EXPECT_EQ(error_of(R"([{"a":1}, {"a":23}])", {.element_bytes = 7}),
            "in.json:1:11: /1: expected an element of at most 7 bytes, found more (limit "
            "element-bytes; --limit element-bytes=N raises it)");
  EXPECT_EQ(error_of(R"([{"a":1}, {"a":2}, {}])", {.elements = 2}),
            "in.json:1:20: /2: expected at most 2 elements, found more (limit elements; --limit "
            "elements=N raises it)");
  EXPECT_EQ(error_of(R"([{"a":"1234"}])", {.string_bytes = 4}), "");
  EXPECT_EQ(error_of(R"([{"a":{"b":[0,"12345"]}}])", {.string_bytes = 4}),
            "in.json:1:15: /0/a/b/1: expected a string of at most 4 bytes, found a longer one "
            "(limit string-bytes; --limit string-bytes=N raises it)");
}

TEST(JsonKind, NamesWhatATextStartsWith) {
  EXPECT_EQ(json_kind(" {"), "an object");
  EXPECT_EQ(json_kind("["), "an array");
  EXPECT_EQ(json_kind("\"x\""), "a string");
  EXPECT_EQ(json_kind("true"), "a boolean");
  EXPECT_EQ(json_kind("null"), "null");
  EXPECT_EQ(json_kind("-1"), "a number");
  EXPECT_EQ(json_kind("  "), "nothing");
}

}  // namespace json_stream_test
}  // namespace perfmodel
