// Broken files, kind by kind: the error without salvage, and what salvage keeps and says.

#include <gtest/gtest.h>

#include <unistd.h>
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "../scratch.hpp"
#include "gzip_text.hpp"
#include "perfmodel/graph/chakra.hpp"
#include "perfmodel/graph/read_execution_graph.hpp"
#include "perfmodel/graph/trace.hpp"

namespace perfmodel {
namespace salvage_test {

using test_support::gzip;

class Salvage : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = test_support::scratch() / "salvage";
    std::filesystem::create_directories(folder_);
    file_ = folder_ / "in.json";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void write(const std::string& bytes) { std::ofstream(file_, std::ios::binary) << bytes; }

  // Without the folder.
  std::string told(const Error& error) const {
    const std::string text = to_string(error);
    const std::size_t name = text.find("in.json");
    return name == std::string::npos ? text : text.substr(name);
  }
  std::string trace_error(const std::string& bytes) {
    write(bytes);
    const auto trace = read_trace(file_);
    return trace ? "" : told(trace.error());
  }

  struct Kept {
    std::string names = {};  // events or nodes, in file order
    std::vector<std::string> warnings = {};
    std::string error = {};
  };
  Kept trace(const std::string& bytes) {
    write(bytes);
    const auto trace = read_trace(file_, {.salvage = true});
    if (!trace) return {.error = told(trace.error())};
    std::vector<const HostEvent*> events;
    for (const HostEvent& event : trace->host) events.push_back(&event);
    std::ranges::sort(events, {}, &HostEvent::file_order);
    Kept kept{.warnings = trace->warnings};
    for (const HostEvent* event : events) kept.names += trace->name(*event);
    return kept;
  }
  Kept graph(const std::string& bytes) {
    write(bytes);
    const auto graph = read_execution_graph(file_, {.salvage = true});
    if (!graph) return {.error = told(graph.error())};
    Kept kept{.warnings = graph->warnings};
    for (const Node& node : graph->nodes) kept.names += graph->name(node);
    return kept;
  }

  std::filesystem::path folder_, file_;
};

// An event with a name of one letter; `more` goes in front of its end.
std::string event(char name, const std::string& more = "") {
  return std::string(R"({"ph":"X","cat":"cpu_op","name":")") + name + R"(","pid":1,"tid":1,"ts":)" +
         std::to_string(1000 + name) + R"(,"dur":2)" + more + "}";
}
std::string node(char name, int id, int parent, const std::string& more = "") {
  return "{\"id\":" + std::to_string(id) + ",\"name\":\"" + name +
         "\",\"ctrl_deps\":" + std::to_string(parent) + more + "}";
}
std::string events(const std::string& list) { return "{\"traceEvents\":[\n" + list + "\n]}"; }
std::string nodes(const std::string& list) {
  return "{\"schema\":\"1.1.1\",\"nodes\":[\n" + list + "\n]}";
}

struct Case {
  const char* title;
  std::string list;     // list of events
  const char* error;    // without salvage
  const char* kept;     // names
  std::string warning;  // the only one; empty: none
};

TEST_F(Salvage, EachDefectOfTracesIsToldExactlyAndCostsOnlyWhatIsBroken) {
  const std::string a = event('a'), b = event('b'), c = event('c');
  const std::string repaired = "1 defects in or between events were repaired: ";
  const Case cases[] = {
      {"missing comma", a + "\n" + b + ",\n" + c,
       "in.json:3:1: /traceEvents/0: expected ',' or ']', found '{'", "abc",
       repaired + "line 3, column 1 (byte 88, element 1): expected ',' or ']', found '{'"},
      {"doubled comma", a + ",\n," + b, "in.json:3:1: /traceEvents/1: expected a value, found ','",
       "ab", repaired + "line 3, column 1 (byte 89, element 1): expected a value, found ','"},
      {"trailing comma", a + ",\n" + b + ",",
       "in.json:4:1: /traceEvents/2: expected a value, found ']'", "ab",
       repaired + "line 4, column 1 (byte 161, element 2): expected a value, found ']'"},
      {"an element inside of another", a + ",\n{\"ph\":\"X\",\"ca" + b + ",\n" + c,
       "in.json:3:16: /traceEvents/1/ca{: expected ':', found 'p'", "abc",
       "1 broken events or other stretches of text were left out (13 bytes): line 3, column 16 "
       "(byte 104, element 1): expected ':', found 'p'"},
      {"an element without its end",
       a + ",\n{\"ph\":\"X\",\"name\":\"x\",\"args\":{\"a\":1},\n" + b + ",\n" + c,
       "in.json:4:1: /traceEvents/1: expected a key, found '{'", "abc",
       "1 broken events or other stretches of text were left out (37 bytes): line 4, column 1 "
       "(byte 126, element 1): expected a key, found '{'"},
      {"a string without its end", a + ",\n{\"ph\":\"X\",\"name\":\"x,\"ts\":1},\n" + b + ",\n" + c,
       "in.json:3:22: /traceEvents/1/name: expected ',' or '}', found 't'", "abc",
       "1 broken events or other stretches of text were left out (29 bytes): line 3, column 22 "
       "(byte 110, element 1): expected ',' or '}', found 't'"},
      {"a time that is no number",
       a + ",\n{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"x\",\"ts\":NaN},\n" + b,
       "in.json:3:1: /traceEvents/1/ts: expected a number, found NaN", "ab",
       "1 broken events or other stretches of text were left out (45 bytes): line 3, column 1 "
       "(byte 89, element 1): /ts: expected a number, found NaN"},
      {"something else", a + ",\n5,\n" + b,
       "in.json:3:1: /traceEvents/1: expected an object, found a number", "ab",
       "1 broken events or other stretches of text were left out (3 bytes): line 3, column 1 "
       "(byte 89, element 1): expected an object, found '5'"},
      {"a bracket too many", a + "],\n" + b, "in.json:3:1: expected a key, found '{'", "ab",
       "1 broken events or other stretches of text were left out (0 bytes): line 3, column 1 "
       "(byte 90, element 1): expected a key, found '{'"},
      {"a comma too many in an element", a + ",\n" + event('b', ",,\"args\":{}"),
       "in.json:3:71: /traceEvents/1: expected a key, found ','", "ab",
       repaired + "line 3, column 71 (byte 159, element 1): expected a key, found ','"},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.title);
    EXPECT_EQ(trace_error(events(one.list)), one.error);
    const Kept kept = trace(events(one.list));
    EXPECT_EQ(kept.error, "");
    EXPECT_EQ(kept.names, one.kept);
    EXPECT_EQ(kept.warnings, std::vector<std::string>{one.warning});
  }
}

// Readers of traces look only at what they need; these never were errors there.
TEST_F(Salvage, WhatATraceDoesNotNeedMayBeOdd) {
  const std::string odd =
      event('b', R"(,"args":{"x":NaN,"y":-Infinity,"z":184467440737095516160})");
  for (const std::string& list : {event('a') + "," + odd + "," + event('c')}) {
    EXPECT_EQ(trace_error(events(list)), "");
    const Kept kept = trace(events(list));
    EXPECT_EQ(kept.names, "abc");
    EXPECT_TRUE(kept.warnings.empty());
  }
}

TEST_F(Salvage, EachDefectOfGraphsIsToldExactlyAndCostsOnlyWhatIsBroken) {
  const std::string root = node('r', 1, 1), a = node('a', 2, 1), b = node('b', 3, 1);
  const std::string repaired = "1 defects in or between nodes were repaired: ";
  const std::string input = R"(,"inputs":[VALUE],"input_shapes":[[]],"input_types":["Double"])";
  const auto with = [&](const std::string& value) {
    std::string text = input;
    return node('a', 2, 1, text.replace(text.find("VALUE"), 5, value));
  };
  const Case cases[] = {
      {"NaN", root + ",\n" + with("NaN") + ",\n" + b,
       "in.json:3:44: /nodes/1/inputs/0: expected a number, found NaN", "rab",
       repaired + "line 3, column 44 (byte 106, element 1): expected a number, found NaN"},
      {"too large", root + ",\n" + with("18446744073709551616") + ",\n" + b,
       "in.json:3:44: /nodes/1/inputs/0: expected an integer of at most 64 bits, found "
       "18446744073709551616",
       "rab",
       repaired + "line 3, column 44 (byte 106, element 1): expected an integer of at most 64 "
                  "bits, found 18446744073709551616"},
      {"no text", root + ",\n" + with("\"\xFF\"") + ",\n" + b,
       "in.json:3:45: /nodes/1/inputs/0: expected UTF-8, found byte 0xFF", "rab",
       repaired + "line 3, column 45 (byte 107, element 1): expected UTF-8, found byte 0xFF"},
      {"control character", root + ",\n" + with("\"\x01\"") + ",\n" + b,
       "in.json:3:45: /nodes/1/inputs/0: expected no control character in a string, found byte "
       "0x01",
       "rab",
       repaired + "line 3, column 45 (byte 107, element 1): expected no control character in a "
                  "string, found byte 0x01"},
      {"trailing comma in a list", root + ",\n" + with("1,") + ",\n" + b,
       "in.json:3:46: /nodes/1/inputs/1: expected a value, found ']'", "rab",
       repaired + "line 3, column 46 (byte 108, element 1): expected a value, found ']'"},
      {"no id", root + ",\n{\"name\":\"x\",\"ctrl_deps\":1},\n" + b,
       "in.json:3:1: /nodes/1: expected key \"id\", found none", "rb",
       "1 broken nodes or other stretches of text were left out (26 bytes): line 3, column 1 (byte "
       "63, element 1): expected key \"id\", found none"},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.title);
    write(nodes(one.list));
    const auto refused = read_execution_graph(file_);
    ASSERT_FALSE(refused);
    EXPECT_EQ(told(refused.error()), one.error);
    const Kept kept = graph(nodes(one.list));
    EXPECT_EQ(kept.error, "");
    EXPECT_EQ(kept.names, one.kept);
    EXPECT_EQ(kept.warnings, std::vector<std::string>{one.warning});
  }
}

TEST_F(Salvage, MendedValuesOfGraphsMeanWhatWasWritten) {
  write(nodes(node('r', 1, 1,
                   R"(,"inputs":[NaN,-Infinity,36893488147419103232],"input_shapes":[[],[],[]],)"
                   R"("input_types":["Double","Double","Int"])")));
  const auto graph = read_execution_graph(file_, {.salvage = true});
  ASSERT_TRUE(graph) << to_string(graph.error());
  const auto inputs = graph->inputs(graph->nodes[0]);
  ASSERT_EQ(inputs.size(), 3u);
  EXPECT_TRUE(std::isnan(inputs[0].real));
  EXPECT_EQ(inputs[1].real, -std::numeric_limits<double>::infinity());
  EXPECT_EQ(inputs[2].kind, Argument::Kind::kDouble);
  EXPECT_EQ(inputs[2].real, 36893488147419103232.0);
}

TEST_F(Salvage, ChildrenOfALostNodeAreOrphansAndRepeatedIdsAreLeftOut) {
  const Kept kept = graph(nodes(node('r', 1, 1) + ",\n{\"id\":2,\"name\":\"x\" BROKEN},\n" +
                                node('c', 3, 2) + "," + node('d', 1, 1)));
  EXPECT_EQ(kept.names, "rc");
  ASSERT_EQ(kept.warnings.size(), 3u);
  EXPECT_TRUE(kept.warnings[0].starts_with("1 broken nodes")) << kept.warnings[0];
  EXPECT_EQ(kept.warnings[1],
            "1 nodes were left out because a node before them has their id, the first one id 1");
  EXPECT_EQ(kept.warnings[2],
            "1 of 2 nodes have a parent that is not in the file (ops still open when recording "
            "stopped, or left out here)");
}

// In both formats: the last one counts, in files that are well otherwise, too.
TEST_F(Salvage, OfKeysGivenTwiceTheLastOneCounts) {
  EXPECT_EQ(trace(events(event('a', R"(,"name":"z")"))).names, "z");
  EXPECT_EQ(graph(nodes(node('a', 7, 7, R"(,"name":"z","id":1,"ctrl_deps":1)"))).names, "z");
}

TEST_F(Salvage, HeadsAndTailsMayBeBroken) {
  const std::string a = event('a'), b = event('b');
  EXPECT_EQ(trace("{\"x\":1 \"traceEvents\":[" + a + "," + b + "]}").names, "ab");
  EXPECT_EQ(trace("\"X\"}," + a + "," + b + "]}").names, "ab");  // the front was lost
  EXPECT_EQ(trace("[" + a + "," + b + "] and more").names, "ab");
  EXPECT_EQ(
      trace("[" + a + "," + b).warnings,
      std::vector<std::string>{
          "the file breaks off in line 1, column 143 (byte 142); 2 complete events were kept"});
  EXPECT_EQ(trace(events(a + "," + b) + "\n{\"x\":").names, "ab");
  EXPECT_EQ(trace(a + "," + b + "]}").names, "ab");  // the same, in front of an element
  EXPECT_EQ(trace(a + "\n" + b + "\n").names, "ab");
  // A bracket of the head that is never closed.
  EXPECT_EQ(trace("{\"x\":[1,\"traceEvents\":[" + a + "," + b + "]}").names, "ab");
  EXPECT_EQ(trace("{\"x\":{\"y\":[],\"traceEvents\":[" + a + "," + b + "]}").names, "ab");
  EXPECT_EQ(trace("{\"x\":[@],\"traceEvents\":[" + a + "]}").warnings,
            std::vector<std::string>());  // closed: of no interest
  // Nothing can be saved: the error stays.
  EXPECT_EQ(trace("name,ts\n1,2\n").error,
            "in.json:1:1: expected a JSON object or array, found a comma-separated table");
  EXPECT_EQ(trace("{\"traceEvents\":5}").error,
            "in.json:1:16: /traceEvents: expected an array, found a number");
  EXPECT_EQ(trace("").error, "in.json:1:1: expected JSON, found an empty file");
  EXPECT_EQ(graph(nodes("")).error, "in.json: /nodes: expected nodes, found none");
}

TEST_F(Salvage, HolesOfZeroBytesCostWhatTheyCover) {
  const std::string hole(4096, '\0'), a = event('a'), b = event('b'), c = event('c');
  for (const std::string& text :
       {events(a + "," + hole + b + ",\n" + c), events(hole + a + "," + b + "," + c),
        hole + events(a + "," + b + "," + c), "{\"x\":1" + hole + events(a + "," + b + "," + c)}) {
    EXPECT_EQ(trace(text).names, "abc");
    EXPECT_NE(trace_error(text), "");
  }
  EXPECT_EQ(trace(events(a + ",{\"ph\":\"X\"" + hole + b + "," + c)).names, "abc");
  EXPECT_EQ(graph(nodes(node('r', 1, 1) + "," + hole + node('c', 2, 1))).names, "rc");
  const std::string padded = events(a) + hole;
  EXPECT_EQ(trace(padded).names, "a");
  EXPECT_EQ(trace_error(padded), "in.json:3:3: expected the end of the file, found byte 0x00");
}

TEST_F(Salvage, ASecondArrayIsToldAndKept) {
  const std::string twice =
      "{\"traceEvents\":[" + event('a') + "],\"traceEvents\":[" + event('b') + "]}";
  EXPECT_EQ(trace_error(twice),
            "in.json:1:103: /traceEvents: expected one such array, found a second one");
  const Kept kept = trace(twice);
  EXPECT_EQ(kept.names, "ab");
  ASSERT_EQ(kept.warnings.size(), 1u);
  EXPECT_TRUE(kept.warnings[0].ends_with("expected one such array, found a second one"))
      << kept.warnings[0];
}

TEST_F(Salvage, LimitsHoldForEveryElement) {
  write(events(event('a') + ",\n" + event('b', ",\"x\":\"" + std::string(200, 'x') + "\"")));
  ReadOptions options{.salvage = true};
  options.limits.element_bytes = 100;
  const auto trace = read_trace(file_, options);
  ASSERT_TRUE(trace) << to_string(trace.error());
  EXPECT_EQ(trace->host.size(), 1u);
  EXPECT_EQ(trace->warnings.size(), 1u);
}

// Graphs are checked to the last value, including unused values of the head.
TEST_F(Salvage, HeadsOfGraphsAreJson) {
  for (const char* value : {"@", "nul", "0123", "\"\\q\"", "NaN", "[1,]"}) {
    write("{\"schema\":\"1.1.1\",\"pid\":" + std::string(value) + ",\"nodes\":[" + node('r', 1, 1) +
          "]}");
    const auto strict = read_execution_graph(file_);
    ASSERT_FALSE(strict) << value;
    EXPECT_TRUE(told(strict.error()).starts_with("in.json:1:25: /pid")) << told(strict.error());
    EXPECT_TRUE(read_execution_graph(file_, {.salvage = true})) << value;
  }
}

// In traces, defects that hide no events are fine: recorders write values there that are no JSON.
TEST_F(Salvage, HeadsOfTracesHaveTheirBrackets) {
  const std::string a = event('a');
  for (const char* value : {"NaN", "\"\xFF\"", "[1,]", "\"\\q\""}) {
    EXPECT_EQ(trace_error("{\"x\":" + std::string(value) + ",\"traceEvents\":[" + a + "]}"), "");
  }
  EXPECT_EQ(trace_error("{\"x\":[{\"y\":0n\": 1}],\"traceEvents\":[" + a + "]}"),
            "in.json:1:6: /x/0/y: expected ',' or '}', found 'n'");
  EXPECT_EQ(trace_error("{\"x\":{\"traceEvents\":[" + a + "]},\"traceEvents\":[]}"), "");
}

TEST_F(Salvage, OnlyTheFirstPlacesAreListed) {
  std::string list;
  for (char name = 'a'; name < 'k'; ++name) list += "{\"ph\" 1},\n" + event(name) + ",\n";
  const Kept kept = trace(events(list + event('k')));
  EXPECT_EQ(kept.names, "abcdefghijk");
  ASSERT_EQ(kept.warnings.size(), 1u);
  EXPECT_TRUE(
      kept.warnings[0].starts_with("10 broken events or other stretches of text were left out"));
  EXPECT_TRUE(kept.warnings[0].ends_with("; and 7 more")) << kept.warnings[0];
}

TEST_F(Salvage, DamagedGzipKeepsWhatCameBefore) {
  std::string list;
  for (int i = 0; i < 20'000; ++i) {
    list += event('a', ",\"x\":" + std::to_string(i * 7919LL % 100'003)) + ",\n";
  }
  const std::string packed = gzip(events(list + event('b')));
  std::string damaged = packed;
  for (std::size_t i = packed.size() / 2; i < packed.size() / 2 + 64; ++i) damaged[i] ^= 0x55;
  EXPECT_NE(trace_error(damaged), "");
  const Kept kept = trace(damaged);
  EXPECT_GT(kept.names.size(), 5000u);
  EXPECT_EQ(std::ranges::count_if(kept.warnings,
                                  [](const std::string& warning) {
                                    return warning.starts_with("after line ") &&
                                           warning.find(
                                               "nothing could be read: expected gzip "
                                               "data, found damage (") != std::string::npos;
                                  }),
            1);

  // All text is there, but something follows.
  const Kept whole = trace(packed + "garbage");
  EXPECT_EQ(whole.names.size(), 20'001u);
  ASSERT_EQ(whole.warnings.size(), 1u);
  EXPECT_NE(whole.warnings[0].find("found other data after it"), std::string::npos);
  EXPECT_NE(trace_error(packed + "garbage").find("found other data after it"), std::string::npos);
}

// The fast way goes on after a defect, so that large files stay cheap.
TEST_F(Salvage, ADefectInALargeFileCostsOneElement) {
  std::string list;
  for (int i = 0; i < 60'000; ++i) {
    if (i == 30'000) list += "{\"ph\":\"X\",\"name\":\"oops, \"ts\":1},\n";
    list += event('a') + ",\n";
  }
  ASSERT_GT(list.size(), std::size_t{4} << 20);
  const Kept kept = trace(events(list + event('b')));
  EXPECT_EQ(kept.names.size(), 60'001u);
  ASSERT_EQ(kept.warnings.size(), 1u);
  EXPECT_NE(kept.warnings[0].find("line 30002, column 26 (byte 2160042, element 30000)"),
            std::string::npos)
      << kept.warnings[0];
}

// Every element that is wholly before the damage survives, whatever the damage and wherever.
TEST_F(Salvage, NothingInFrontOfDamageIsLost) {
  std::string text = "{\"a\":{\"b\":[1]},\"traceEvents\":[";
  std::vector<std::size_t> ends;
  for (char name = 'a'; name < 'h'; ++name) {
    text += event(name, name % 2 ? R"(,"args":{"x":[[1,2],{"y":"]}\"{"}],"z":null})" : "");
    ends.push_back(text.size());
    text += name < 'g' ? ",\n " : "]}";
  }
  const std::string_view junk[] = {"", "{", "}", "\"", "]", ",", "\x01\xFF", "{\"ph\":\"X\"", "\\"};
  for (std::size_t at = text.find('[', 20); at <= text.size(); at += 3) {
    const auto before = static_cast<std::size_t>(
        std::ranges::count_if(ends, [&](std::size_t end) { return end <= at; }));
    for (const std::string_view piece : junk) {
      for (const bool cut : {true, false}) {
        const std::string damaged = text.substr(0, at) + std::string(piece) +
                                    (cut ? "" : text.substr(std::min(at + 2, text.size())));
        const Kept kept = trace(damaged);
        if (before > 0) {
          ASSERT_EQ(kept.error, "") << damaged;
          ASSERT_EQ(kept.names.substr(0, before), std::string("abcdefg").substr(0, before))
              << damaged;
        }
        if (!cut && kept.error.empty()) {
          // At most two elements are hit, and one could be made up of two halves.
          ASSERT_GE(kept.names.size() + 2, 7u) << damaged;
        }
      }
    }
  }
}

TEST_F(Salvage, ChakraKeepsCompleteMessages) {
  ChakraTrace job;
  for (std::uint64_t id = 0; id < 20; ++id) {
    ChakraNode made{.id = id, .name = "op " + std::to_string(id), .duration_us = 3};
    if (id > 0) made.ctrl_deps = {id - 1};
    job.nodes.push_back(made);
  }
  const auto et = folder_ / "rank.et";
  ASSERT_TRUE(write_chakra(job, et));
  std::ifstream in(et, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  const auto salvaged = [&](const std::string& text) {
    std::ofstream(et, std::ios::binary) << text;
    return read_chakra(et, {.salvage = true});
  };
  std::size_t last = 0;
  for (std::size_t size = 12; size < bytes.size(); size += 3) {
    const auto trace = salvaged(bytes.substr(0, size));
    ASSERT_TRUE(trace) << size << to_string(trace.error());
    EXPECT_GE(trace->nodes.size(), last);
    last = trace->nodes.size();
    for (std::size_t i = 0; i < last; ++i) EXPECT_EQ(trace->nodes[i], job.nodes[i]);
  }
  EXPECT_EQ(last, 19u);
  const auto cut = salvaged(bytes.substr(0, bytes.size() - 1));
  ASSERT_EQ(cut->warnings.size(), 1u);
  EXPECT_TRUE(
      cut->warnings[0].starts_with("the file breaks off; 19 complete nodes were kept: byte "))
      << cut->warnings[0];

  // A broken message in the middle: its node is left out, and so is what depends on it.
  std::string broken = bytes;
  broken[broken.find("op 7")] = '\xFF';
  EXPECT_FALSE((std::ofstream(et, std::ios::binary) << broken, read_chakra(et)));
  const auto mended = salvaged(broken);
  ASSERT_TRUE(mended) << to_string(mended.error());
  EXPECT_EQ(mended->nodes.size(), 19u);
  ASSERT_EQ(mended->warnings.size(), 2u);
  EXPECT_TRUE(
      mended->warnings[0].starts_with("1 broken nodes were left out, the first one: byte "));
  EXPECT_EQ(mended->warnings[1], "1 dependencies on nodes that are not there were dropped");
}

}  // namespace salvage_test
}  // namespace perfmodel
