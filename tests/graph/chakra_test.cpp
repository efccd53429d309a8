#include "perfmodel/graph/chakra.hpp"
#include "../scratch.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace perfmodel {
namespace chakra_test {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;
using Type = ChakraNodeType;
using Value = ChakraValueType;

// ---- bytes made by hand ------------------------------------------------------------------------

std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 128; value /= 128) bytes += static_cast<char>(128 + value % 128);
  return bytes + static_cast<char>(value);
}
std::string number(unsigned field, std::uint64_t value) {
  return varint(field * 8) + varint(value);
}
std::string bytes(unsigned field, const std::string& value) {
  return varint(field * 8 + 2) + varint(value.size()) + value;
}
std::string message(const std::string& fields) { return varint(fields.size()) + fields; }
const std::string kHead = message(bytes(1, "0.0.4"));  // 8 bytes

std::string compute(std::uint64_t id, const std::string& more = "") {
  return message(number(1, id) + bytes(2, "gemm") + number(3, 4) + more);
}
std::string attribute(const std::string& name, const std::string& value) {
  return bytes(10, bytes(1, name) + value);
}

class Chakra : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = test_support::scratch() / "chakra";
    fs::create_directories(folder_);
    file_ = folder_ / "job.0.et";
  }
  void TearDown() override { fs::remove_all(folder_); }

  Result<ChakraTrace> read(const std::string& text) const {
    std::ofstream(file_, std::ios::binary | std::ios::trunc) << text;
    return read_chakra(file_);
  }
  ChakraTrace good(const std::string& text) const {
    auto trace = read(text);
    if (!trace) {
      ADD_FAILURE() << to_string(trace.error());
      return {};
    }
    return std::move(*trace);
  }
  std::string message_of(const Error& error) const {
    EXPECT_EQ(error.file, file_);
    EXPECT_THAT(to_string(error), StartsWith(file_.string() + ": "));
    return error.message;
  }
  std::string error(const std::string& text) const {
    const auto trace = read(text);
    return trace ? "no error" : message_of(trace.error());
  }
  // The error of writing one rank's file.
  std::string write_error(const ChakraTrace& trace) const {
    const auto written = write_chakra(trace, file_);
    EXPECT_TRUE(files().empty());  // neither the file nor a part of it
    return written ? "no error" : message_of(written.error());
  }
  std::string job_error(const std::vector<ChakraTrace>& ranks,
                        const ChakraJobOptions& options = {}) const {
    const auto written = write_chakra(ranks, folder_ / "job", options);
    if (written) return "no error";
    EXPECT_TRUE(files().empty());
    return written.error().file.filename().string() + ": " + written.error().message;
  }
  ChakraTrace round_trip(const ChakraTrace& trace) const {
    const auto written = write_chakra(trace, file_);
    EXPECT_TRUE(written) << to_string(written.error());
    auto again = read_chakra(file_);
    if (!again) {
      ADD_FAILURE() << to_string(again.error());
      return {};
    }
    return std::move(*again);
  }
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }
  std::string content(const fs::path& file) const {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  fs::path folder_, file_;
};

// ---- reading -----------------------------------------------------------------------------------

TEST_F(Chakra, ReadsWhatAnotherProgramWrote) {
  const std::string list = bytes(28, bytes(1, std::string("\1\0", 2)));
  const ChakraTrace trace = good(
      message(bytes(1, "0.0.4") + bytes(2, bytes(1, "schema") + bytes(29, "1.1"))) +
      message(number(1, 7) + bytes(2, "all") + number(3, 7) + bytes(4, varint(300) + varint(2)) +
              number(5, 2) + number(5, 300) + number(6, 1000) + number(7, 25) +
              bytes(8, bytes(1, "[1]") + bytes(2, "[[]]") + bytes(3, "[\"Int\"]")) +
              attribute("is_cpu_op", number(27, 1)) + attribute("comm_type", number(9, 2)) +
              attribute("comm_size", number(13, 4096)) + attribute("pg_name", bytes(29, "1")) +
              attribute("involved_dim", list) + attribute("tid", number(11, 3))) +
      compute(300, attribute("num_ops", number(9, 1u << 31))) + compute(2));
  EXPECT_EQ(trace.version, "0.0.4");
  EXPECT_THAT(trace.attributes, ElementsAre(ChakraAttribute::text("schema", "1.1")));
  ASSERT_EQ(trace.nodes.size(), 3u);
  const ChakraNode& node = trace.nodes[0];
  EXPECT_EQ(node.id, 7u);
  EXPECT_EQ(node.name, "all");
  EXPECT_EQ(node.type, Type::kCollective);
  EXPECT_THAT(node.ctrl_deps, ElementsAre(300, 2));  // packed
  EXPECT_THAT(node.data_deps, ElementsAre(2, 300));  // one by one
  EXPECT_EQ(node.start_us, 1000);
  EXPECT_EQ(node.duration_us, 25);
  EXPECT_EQ(node.inputs, (ChakraIo{"[1]", "[[]]", "[\"Int\"]", ""}));
  EXPECT_TRUE(node.is_cpu_op);
  EXPECT_EQ(node.comm_type, ChakraCollective::kAllGather);
  EXPECT_EQ(node.comm_size, 4096);
  EXPECT_EQ(node.pg_name, "1");
  EXPECT_THAT(node.involved_dim, ElementsAre(true, false));
  ASSERT_EQ(node.attributes.size(), 1u);
  EXPECT_EQ(node.attributes[0].type, Value::kUint32);
  EXPECT_EQ(node.attributes[0].value, ChakraAttribute::Value(std::uint64_t{3}));
  EXPECT_FALSE(trace.nodes[1].is_cpu_op);  // the default
  EXPECT_EQ(trace.nodes[1].num_ops, std::int64_t{1} << 31);
}

TEST_F(Chakra, AFileOfNoNodesAndAHeadWithoutVersionAreFine) {
  EXPECT_TRUE(good(kHead).nodes.empty());
  EXPECT_EQ(good(message("") + compute(1)).version, "");
}

TEST_F(Chakra, GzipIsReadAndWritten) {
  ChakraTrace trace;
  trace.nodes.push_back({.id = 3, .name = "op", .duration_us = 5});
  const fs::path file = folder_ / "job.0.et.gz";
  ASSERT_TRUE(write_chakra(trace, file));
  EXPECT_THAT(content(file), StartsWith("\x1f\x8b"));
  const auto again = read_chakra(file);
  ASSERT_TRUE(again) << to_string(again.error());
  EXPECT_EQ(*again, trace);
}

TEST_F(Chakra, FilesThatAreNoTrace) {
  EXPECT_EQ(error(""), "expected a Chakra trace, found an empty file");
  EXPECT_EQ(error("{\"schema\": \"1.1.1\"}"),
            "expected a Chakra trace (length-delimited protobuf), found JSON");
  EXPECT_EQ(error("[\n {\"ph\": \"X\"}]"),
            "expected a Chakra trace (length-delimited protobuf), found JSON");
  EXPECT_THAT(error("hello, world"), HasSubstr("is this a Chakra trace?"));
  EXPECT_EQ(read_chakra(folder_ / "none.et").error().message,
            "expected a readable file, found none");
  EXPECT_EQ(read_chakra(folder_).error().message, "expected a file, found a directory");
  const fs::path zipped = folder_ / "text.et.gz";
  const auto zip = [&](const std::string& text) {
    gzFile out = gzopen(zipped.c_str(), "wb");
    gzwrite(out, text.data(), static_cast<unsigned>(text.size()));
    gzclose(out);
  };
  zip("{\"traceEvents\": []}");
  EXPECT_EQ(read_chakra(zipped).error().message,
            "expected a Chakra trace (length-delimited protobuf), found JSON");
  zip("");
  EXPECT_EQ(read_chakra(zipped).error().message, "expected a Chakra trace, found an empty file");
  zip(kHead + compute(1));
  ASSERT_TRUE(read_chakra(zipped));
  fs::resize_file(zipped, fs::file_size(zipped) - 12);
  EXPECT_THAT(read_chakra(zipped).error().message, HasSubstr("expected more gzip data"));
}

struct Broken {
  std::string text, message;
};

TEST_F(Chakra, EveryErrorHasItsPlace) {
  const std::string huge = "\xff\xff\xff\xff\x0f";  // 2^32 - 1
  const std::string wanted_type = "from 1 (metadata) to 7 (collective), found ";
  const Broken cases[] = {
      {kHead + "\x80",
       "byte 8, node 0: expected the rest of a message's length, found the end of "
       "the file"},
      {kHead + huge,
       "byte 8, node 0: expected a message of at most 67108864 bytes, found "
       "4294967295"},
      {kHead + huge + std::string(20, '\0'),
       "byte 8, node 0: expected a message of at most 67108864 bytes, found 4294967295"},
      {kHead + "\xff\xff\xff\xff\xff\x01",
       "byte 8, node 0: expected a message's length of at most 5 bytes, found more"},
      {kHead + compute(1) + varint(60'000'000) + "abc",
       "byte 19, node 1: expected a message of 60000000 bytes, found 3 to the end of the file"},
      {kHead + compute(1).substr(0, 9),
       "byte 8, node 0: expected a message of 10 bytes, found 8 to the end of the file"},
      {kHead + message(number(1, 1)),
       "byte 9, node 0: expected a node type " + wanted_type + "none"},
      {kHead + message(number(3, 0)), "byte 9, node 0: expected a node type " + wanted_type + "0"},
      {kHead + message(number(1, 5) + number(3, 8)),
       "byte 11, node 0: expected a node type " + wanted_type + "8"},
      {kHead + message("\x08\x80"),
       "byte 10, node 0: expected the rest of a node's id, found the end of its message"},
      {kHead + message("\x08" + std::string(10, '\xff')),
       "byte 10, node 0: expected a number of at most 64 bits in a node's id, found more"},
      {kHead + message("\x12\x09" + std::string("ab")),
       "byte 10, node 0: expected 9 bytes of a node's name, found 2 to the end of its message"},
      {kHead + message(bytes(1, "x")),
       "byte 9, node 0: expected a node's id as a varint, found a length"},
      {kHead + message(number(2, 1)),
       "byte 9, node 0: expected a node's name as a length, found a varint"},
      {kHead + message(number(0, 1)),
       "byte 9, node 0: expected a field number from 1 to 2^29 - 1, found 0"},
      {kHead + message("\x0b"),
       "byte 9, node 0: expected wire type 0, 1, 2 or 5 of field 1, found 3"},
      {kHead + message(bytes(2, "a\xc3")),
       "byte 11, node 0: expected UTF-8 in a node's name, found other bytes"},
      {kHead + compute(1, bytes(4, "\x80")),
       "byte 21, node 0: expected the rest of control dependencies, found the end of its message"},
      {kHead + compute(1, number(7, static_cast<std::uint64_t>(-5))),
       "byte 19, node 0: expected a duration from 0 to 2^53 us, found -5"},
      {kHead + compute(1, number(6, (std::uint64_t{1} << 53) + 1)),
       "byte 19, node 0: expected a start from 0 to 2^53 us, found 9007199254740993"},
      {kHead + compute(1) + compute(2) + compute(1),
       "byte 30, node 2 (id 1, \"gemm\"): expected an id of its own, found 1, the id of node 0"},
      {kHead + compute(1, attribute("comm_size", bytes(29, "big"))),
       "byte 19, node 0: expected an integer in attribute comm_size, found a string"},
      {kHead + compute(1, attribute("comm_size", number(9, static_cast<std::uint64_t>(-1)))),
       "byte 19, node 0: expected comm_size from 0 to 9223372036854775807, found -1"},
      {kHead + compute(1, attribute("tensor_size", number(13, ~std::uint64_t{0}))),
       "byte 19, node 0: expected tensor_size from 0 to 9223372036854775807, found "
       "18446744073709551615"},
      {kHead + compute(1, attribute("comm_type", number(9, 10))),
       "byte 19, node 0: expected comm_type from 0 to 9, found 10"},
      {kHead + compute(1, attribute("pg_name", number(9, 1))),
       "byte 19, node 0: expected a string in attribute pg_name, found an int64"},
      {kHead + compute(1, attribute("comm_src", "")),
       "byte 19, node 0: expected an integer in attribute comm_src, found no value"},
      {kHead + compute(1, attribute("num_ops", number(9, 1)) + attribute("num_ops", number(9, 1))),
       "byte 32, node 0: expected attribute num_ops once, found it twice"},
      {kHead + compute(1, attribute("x", bytes(3, "12345678"))),
       "byte 24, node 0: expected the attribute's value to be a double, found a length"},
      {kHead + compute(1, attribute("x", bytes(4, number(2, 1)))),
       "byte 26, node 0: expected field 1, the values of a list, found field 2"},
      {kHead + compute(1, attribute("x", bytes(4, bytes(1, "1234567")))),
       "byte 28, node 0: expected 8 bytes of a list's values, found 7 to the end of its message"},
      {message(number(1, 3)),
       "byte 1, GlobalMetadata: expected the version as a length, found a varint; is this a Chakra "
       "trace?"},
  };
  for (const Broken& broken : cases) EXPECT_EQ(error(broken.text), broken.message);
}

TEST_F(Chakra, FilesOfOtherToolsMayWaitInCirclesAndForWhatIsNotThere) {
  // A caller that waits for its callee, and both for a node that no file holds.
  const std::string text = kHead + compute(5, number(5, 6) + number(4, 9)) +
                           compute(6, number(4, 5) + number(5, 5) + number(5, 9));
  const ChakraTrace trace = good(text);
  ASSERT_EQ(trace.nodes.size(), 2U);
  EXPECT_EQ(trace.nodes[0].data_deps, std::vector<std::uint64_t>{6});
  EXPECT_TRUE(trace.nodes[0].ctrl_deps.empty());
  EXPECT_EQ(trace.nodes[1].ctrl_deps, std::vector<std::uint64_t>{5});
  EXPECT_EQ(trace.nodes[1].data_deps, std::vector<std::uint64_t>{5});
  EXPECT_EQ(trace.warnings,
            std::vector<std::string>{"2 dependencies on nodes that are not there were dropped"});
  // Simulators stop at such a file, so that none is written.
  fs::remove(file_);
  EXPECT_NE(write_error(trace).find("expected dependencies without a cycle"), std::string::npos);
}

TEST_F(Chakra, CopiesForRanksThatDoTheSame) {
  ChakraTrace rank;
  rank.nodes.push_back({.id = 1,
                        .name = "sum",
                        .type = Type::kCollective,
                        .comm_type = ChakraCollective::kAllReduce,
                        .comm_size = 1024});
  const auto prefix = folder_ / "copies";
  ASSERT_TRUE(write_chakra({&rank, 1}, prefix, {.copies = 3}));
  for (int r : {0, 1, 2}) {
    const auto again = read_chakra(prefix.string() + "." + std::to_string(r) + ".et");
    ASSERT_TRUE(again);
    EXPECT_EQ(again->nodes, rank.nodes);
  }
  EXPECT_FALSE(std::filesystem::exists(prefix.string() + ".3.et"));
  rank.nodes[0].pg_name = "tensor";  // which ranks are in it, one rank's trace does not say
  EXPECT_FALSE(write_chakra({&rank, 1}, prefix, {.copies = 3}));
}

TEST_F(Chakra, FilesCutAnywhereAreErrorsOrShorterTraces) {
  std::string text = kHead;
  std::vector<std::size_t> borders = {text.size()};
  for (std::uint64_t id = 1; id <= 4; ++id) {
    text += compute(id, id > 1 ? number(4, id - 1) : "");
    borders.push_back(text.size());
  }
  for (std::size_t cut = 1; cut < text.size(); ++cut) {
    const auto border = std::find(borders.begin(), borders.end(), cut);
    const auto trace = read(text.substr(0, cut));
    ASSERT_EQ(trace.has_value(), border != borders.end()) << cut;
    if (trace) {
      EXPECT_EQ(trace->nodes.size(), static_cast<std::size_t>(border - borders.begin()));
    }
  }
}

// ---- traces of all kinds -----------------------------------------------------------------------

class RandomTraces {
 public:
  explicit RandomTraces(unsigned seed) : random_(seed) {}

  ChakraTrace trace(std::size_t count) {
    ChakraTrace trace;
    trace.attributes = attributes(3);
    std::vector<std::uint64_t> ids;
    for (std::size_t i = 0; i < count; ++i) {
      // Dense, then sparse, then near 2^64.
      ids.push_back(i < count / 3 ? i : i < 2 * count / 3 ? 1'000'003 * i : ~std::uint64_t{0} - i);
    }
    for (std::size_t i = 0; i < count; ++i) trace.nodes.push_back(node(ids, i));
    // Files need not be in the order of dependencies.
    std::shuffle(trace.nodes.begin(), trace.nodes.end(), random_);
    return trace;
  }

 private:
  std::uint64_t below(std::uint64_t limit) {
    return std::uniform_int_distribution<std::uint64_t>(0, limit - 1)(random_);
  }
  bool one_in(std::uint64_t n) { return below(n) == 0; }
  std::int64_t any() { return static_cast<std::int64_t>(random_()) >> below(64); }
  std::int64_t natural() { return any() & std::numeric_limits<std::int64_t>::max(); }
  std::int32_t small() { return static_cast<std::int32_t>(any()); }
  std::int32_t small_natural() { return small() & std::numeric_limits<std::int32_t>::max(); }
  double real() { return static_cast<double>(any()) * std::pow(2.0, double(below(60)) - 30); }

  std::string text() {
    static const std::string kTexts[] = {"",
                                         "aten::mm",
                                         "größe",
                                         "梯度",
                                         "🙂 \"quoted\" \\ \n",
                                         std::string(300, 'x'),
                                         std::string("nul \0 inside", 12)};
    return kTexts[below(std::size(kTexts))];
  }

  ChakraAttribute::Value value(int type) {
    const auto signed_value = [&]() -> std::int64_t {
      return type == 9 || type == 17 || type == 25 ? any() : small();
    };
    const auto unsigned_value = [&]() -> std::uint64_t {
      if (type == 27) return below(2);
      return type == 13 || type == 21 ? random_() : static_cast<std::uint32_t>(random_());
    };
    switch (type) {
      case 3:
        return real();
      case 5:
        return static_cast<double>(static_cast<float>(real()));
      case 7:
      case 9:
      case 15:
      case 17:
      case 23:
      case 25:
        return signed_value();
      case 29:
        return text();
      case 31:
        return std::string("\xff\x00\xc3", 3);
      default:
        return unsigned_value();
    }
  }

  ChakraAttribute::Value list(int type) {
    ChakraAttribute::Value result;
    std::visit(
        [&]<class T>(const T&) {
          if constexpr (std::is_same_v<T, std::int64_t> || std::is_same_v<T, std::uint64_t> ||
                        std::is_same_v<T, double> || std::is_same_v<T, std::string>) {
            std::vector<T> values;
            for (std::uint64_t n = below(4); n > 0; --n) values.push_back(std::get<T>(value(type)));
            result = std::move(values);
          }
        },
        value(type));
    return result;
  }

  std::vector<ChakraAttribute> attributes(std::size_t most) {
    std::vector<ChakraAttribute> result;
    for (std::uint64_t n = below(most + 1); n > 0; --n) {
      const int type = 3 + 2 * static_cast<int>(below(15));
      const bool is_list = one_in(2);
      ChakraAttribute attribute{.name = "a" + std::to_string(n) + text(), .doc = text()};
      if (!one_in(20)) {
        attribute.type = static_cast<Value>(type + (is_list ? 1 : 0));
        attribute.value = is_list ? list(type) : value(type);
      }
      result.push_back(std::move(attribute));
    }
    return result;
  }

  ChakraNode node(const std::vector<std::uint64_t>& ids, std::size_t i) {
    ChakraNode node{.id = ids[i], .name = text(), .type = static_cast<Type>(1 + below(7))};
    for (std::uint64_t n = below(4); n > 0 && i > 0; --n) {
      (one_in(2) ? node.ctrl_deps : node.data_deps).push_back(ids[below(i)]);
    }
    node.start_us = static_cast<double>(below(std::uint64_t{1} << (1 + below(53))));
    node.duration_us = static_cast<double>(below(std::uint64_t{1} << (1 + below(20))));
    if (one_in(3)) node.inputs = {text(), text(), text(), ""};
    if (one_in(3)) node.outputs = {text(), text(), text(), ""};
    node.is_cpu_op = one_in(2);
    const bool talks = node.type == Type::kSend || node.type == Type::kReceive;
    const bool collective = node.type == Type::kCollective;
    if (collective) node.comm_type = static_cast<ChakraCollective>(below(10));
    if (collective && one_in(2)) node.pg_name = text();
    if (collective && one_in(2)) node.involved_dim = {true, false, one_in(2)};
    if (collective || talks) node.comm_size = natural();
    if (talks || one_in(9)) node.comm_src = small_natural();
    if (talks || one_in(9)) node.comm_dst = small_natural();
    if (talks || one_in(9)) node.comm_tag = small();
    if (one_in(5)) node.comm_priority = small();
    const bool memory = node.type == Type::kMemoryLoad || node.type == Type::kMemoryStore;
    if (memory || one_in(5)) node.tensor_size = natural();
    if (one_in(5)) node.num_ops = natural();
    node.attributes = attributes(4);
    return node;
  }

  std::mt19937_64 random_;
};

TEST_F(Chakra, ReadsBackWhatItWrites) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    const ChakraTrace trace = RandomTraces(seed).trace(seed * 3);
    EXPECT_EQ(round_trip(trace), trace) << seed;
  }
  EXPECT_THAT(files(), ElementsAre("job.0.et"));  // no temporary left
}

TEST_F(Chakra, ReadsBackALargeFile) {
  const ChakraTrace trace = RandomTraces(1).trace(100'000);
  EXPECT_TRUE(round_trip(trace) == trace);
}

TEST_F(Chakra, ReadsBackAMessageOfManyBuffers) {
  ChakraTrace trace;
  trace.nodes.push_back({.id = 1, .name = std::string(5'000'000, 'n')});
  trace.nodes.push_back({.id = 2, .ctrl_deps = std::vector<std::uint64_t>(700'000, 1)});
  EXPECT_TRUE(round_trip(trace) == trace);
}

TEST_F(Chakra, WhatIsNotKnownIsKept) {
  const std::string node =
      message(number(1, 1) + number(3, 4) + bytes(8, bytes(1, "[]") + bytes(9, "io")) +
              attribute("is_cpu_op", number(27, 0)) +
              attribute("x", number(7, 1) + bytes(40, "attribute")) + bytes(99, "node") +
              number(98, 7) + varint(97 * 8 + 5) + "word" + varint(96 * 8 + 1) + "two word");
  const std::string text = message(bytes(1, "9.9") + bytes(50, "head")) + node;
  const ChakraTrace trace = good(text);
  ASSERT_TRUE(write_chakra(trace, file_));
  EXPECT_EQ(content(file_), text);
}

TEST_F(Chakra, DamagedFilesNeverCrash) {
  const ChakraTrace trace = RandomTraces(5).trace(12);
  ASSERT_TRUE(write_chakra(trace, file_));
  const std::string text = content(file_);
  std::mt19937_64 random(7);
  std::size_t errors = 0;
  constexpr std::size_t kTries = 2000;
  for (std::size_t i = 0; i < kTries; ++i) {
    std::string damaged = text;
    for (std::uint64_t n = 1 + random() % 3; n > 0; --n) {
      damaged[random() % damaged.size()] = static_cast<char>(random());
    }
    if (i % 3 == 0) damaged.resize(random() % damaged.size());
    if (i % 5 == 0) damaged.insert(random() % (damaged.size() + 1), 1, static_cast<char>(random()));
    const auto result = read(damaged);
    if (result) continue;
    ++errors;
    EXPECT_THAT(result.error().message, HasSubstr("expected"));
  }
  EXPECT_GT(errors, kTries / 2);  // the rest hit texts and numbers
}

// ---- an independent look at what was written ---------------------------------------------------

Json json_of(const ChakraAttribute& attribute) {
  static const char* const kNames[] = {"double",   "float",    "int32",  "int64",   "uint32",
                                       "uint64",   "sint32",   "sint64", "fixed32", "fixed64",
                                       "sfixed32", "sfixed64", "bool",   "string",  "bytes"};
  Json json = {{"name", attribute.name}, {"doc", attribute.doc}, {"type", ""}, {"value", nullptr}};
  const auto type = static_cast<std::size_t>(attribute.type);
  if (type == 0) return json;
  json["type"] = std::string(kNames[(type - 3) / 2]) + (type % 2 == 0 ? " list" : "");
  const auto one = [&]<class T>(const T& value) -> Json {
    if constexpr (std::is_same_v<T, std::uint64_t>) {
      if (type == 27 || type == 28) return value != 0;
    }
    if constexpr (std::is_same_v<T, std::string>) {
      if (type >= 31) {
        std::string hex;
        for (unsigned char c : value) {
          hex += "0123456789abcdef"[c / 16];
          hex += "0123456789abcdef"[c % 16];
        }
        return hex;
      }
    }
    return value;
  };
  std::visit(
      [&]<class T>(const T& value) {
        constexpr bool kIsText = std::is_same_v<T, std::string>;
        if constexpr (!kIsText && requires { value.begin(); }) {
          json["value"] = Json::array();
          for (const auto& element : value) json["value"].push_back(one(element));
        } else if constexpr (!std::is_same_v<T, std::monostate>) {
          json["value"] = one(value);
        }
      },
      attribute.value);
  return json;
}

Json json_of(const ChakraIo& io) {
  Json json = Json::object();
  if (!io.values.empty()) json["values"] = io.values;
  if (!io.shapes.empty()) json["shapes"] = io.shapes;
  if (!io.types.empty()) json["types"] = io.types;
  return json;
}

Json json_of(const ChakraNode& node) {
  Json json = {{"id", node.id},
               {"name", node.name},
               {"type", to_string(node.type)},
               {"ctrl_deps", node.ctrl_deps},
               {"data_deps", node.data_deps},
               {"start_us", static_cast<std::uint64_t>(node.start_us)},
               {"duration_us", static_cast<std::uint64_t>(node.duration_us)},
               {"inputs", json_of(node.inputs)},
               {"outputs", json_of(node.outputs)}};
  Json& attributes = json["attributes"] = Json::array();
  const auto add = [&](const char* name, const char* type, const Json& value) {
    attributes.push_back({{"name", name}, {"doc", ""}, {"type", type}, {"value", value}});
  };
  add("is_cpu_op", "bool", node.is_cpu_op);
  if (node.comm_type) add("comm_type", "int64", static_cast<int>(*node.comm_type));
  if (node.comm_size) add("comm_size", "int64", *node.comm_size);
  if (!node.pg_name.empty()) add("pg_name", "string", node.pg_name);
  if (node.comm_src) add("comm_src", "int32", *node.comm_src);
  if (node.comm_dst) add("comm_dst", "int32", *node.comm_dst);
  if (node.comm_tag) add("comm_tag", "int32", *node.comm_tag);
  if (node.comm_priority) add("comm_priority", "int32", *node.comm_priority);
  if (!node.involved_dim.empty()) add("involved_dim", "bool list", node.involved_dim);
  if (node.num_ops) add("num_ops", "int64", *node.num_ops);
  if (node.tensor_size) add("tensor_size", "uint64", *node.tensor_size);
  for (const ChakraAttribute& attribute : node.attributes) attributes.push_back(json_of(attribute));
  return json;
}

TEST_F(Chakra, AnotherDecoderSeesTheSame) {
  const ChakraTrace trace = RandomTraces(11).trace(1500);
  ASSERT_TRUE(write_chakra(trace, file_));
  const fs::path output = folder_ / "decoded.json";
  const std::string command = std::string(PERFMODEL_PYTHON) + " " + PERFMODEL_SOURCE_DIR +
                              "/tests/graph/decode_chakra.py " + file_.string() + " > " +
                              output.string();
  ASSERT_EQ(std::system(command.c_str()), 0);
  const Json decoded = Json::parse(content(output));
  EXPECT_EQ(decoded["version"], "0.0.4");
  ASSERT_EQ(decoded["attributes"].size(), trace.attributes.size());
  for (std::size_t i = 0; i < trace.attributes.size(); ++i) {
    EXPECT_EQ(decoded["attributes"][i], json_of(trace.attributes[i]));
  }
  ASSERT_EQ(decoded["nodes"].size(), trace.nodes.size());
  for (std::size_t i = 0; i < trace.nodes.size(); ++i) {
    EXPECT_EQ(decoded["nodes"][i], json_of(trace.nodes[i]));
  }
}

TEST_F(Chakra, BytesOfASmallFile) {
  ChakraTrace trace;
  trace.nodes.push_back({.id = 1, .name = "mm", .duration_us = 300});
  ASSERT_TRUE(write_chakra(trace, file_));
  EXPECT_EQ(content(file_), std::string("\x07\x0a\x05"
                                        "0.0.4"
                                        "\x1b\x08\x01\x12\x02mm\x18\x04\x38\xac\x02"
                                        "\x52\x0e\x0a\x09is_cpu_op\xd8\x01\x00",
                                        36));
}

// ---- times -------------------------------------------------------------------------------------

double written_sum(const ChakraTrace& trace, bool host) {
  double sum = 0;
  for (const ChakraNode& node : trace.nodes) {
    if (node.is_cpu_op == host) sum += node.duration_us;
  }
  return sum;
}

TEST_F(Chakra, RoundingErrorsAreCarriedForward) {
  ChakraTrace trace;
  for (std::uint64_t i = 0; i < 6; ++i) trace.nodes.push_back({.id = i, .duration_us = 0.4});
  std::vector<double> durations;
  for (const ChakraNode& node : round_trip(trace).nodes) durations.push_back(node.duration_us);
  EXPECT_THAT(durations, ElementsAre(0, 1, 0, 1, 0, 0));  // 2.4 us in all
}

TEST_F(Chakra, SumsOfDurationsAreOffByLessThanAMicrosecond) {
  std::mt19937_64 random(3);
  std::lognormal_distribution<double> kernel(0.5, 1.5);
  for (int run = 0; run < 20; ++run) {
    ChakraTrace trace;
    for (std::uint64_t i = 0; i < 5000; ++i) {
      const double us = run == 0 ? 0.5 : kernel(random);
      trace.nodes.push_back({.id = i,
                             .start_us = 1.5 * double(i),
                             .duration_us = us,
                             .is_cpu_op = random() % 2 == 0});
    }
    const ChakraTrace written = round_trip(trace);
    const double host = written_sum(written, true) - written_sum(trace, true);
    const double device = written_sum(written, false) - written_sum(trace, false);
    EXPECT_LE(std::abs(host), 0.5 + 1e-6);
    EXPECT_LE(std::abs(device), 0.5 + 1e-6);
    EXPECT_LT(std::abs(host + device), 1);
    for (std::size_t i = 0; i < trace.nodes.size(); ++i) {
      EXPECT_LE(std::abs(written.nodes[i].start_us - trace.nodes[i].start_us), 0.5);
      EXPECT_LE(std::abs(written.nodes[i].duration_us - trace.nodes[i].duration_us), 1);
    }
  }
}

// ---- what cannot be written --------------------------------------------------------------------

ChakraTrace one(ChakraNode node) {
  ChakraTrace trace;
  trace.nodes.push_back(std::move(node));
  return trace;
}

TEST_F(Chakra, NothingIsWrittenOfABadTrace) {
  const std::string first = "node 0 (id 4, \"n\"): ";
  const auto error = [&](ChakraNode node) {
    node.id = 4;
    node.name = "n";
    return write_error(one(node));
  };
  EXPECT_EQ(error({.duration_us = -1}), first + "expected a duration from 0 to 2^53 us, found -1");
  EXPECT_EQ(error({.start_us = std::nan("")}),
            first + "expected a start from 0 to 2^53 us, found nan");
  EXPECT_EQ(error({.type = static_cast<Type>(0)}),
            first + "expected a node type from 1 (metadata) to 7 (collective), found 0");
  EXPECT_EQ(error({.ctrl_deps = {5}}),
            first +
                "expected dependencies on nodes of the file, found a control dependency on id "
                "5, which no node has");
  EXPECT_EQ(error({.data_deps = {4}}),
            first + "expected dependencies without a cycle, found that node 4 needs 4");
  EXPECT_EQ(error({.type = Type::kCollective}),
            first + "expected comm_type of a collective node, found none");
  EXPECT_EQ(error({.type = Type::kCollective, .comm_type = ChakraCollective::kAllReduce}),
            first + "expected comm_size of a collective node, found none");
  EXPECT_EQ(error({.type = Type::kSend, .comm_size = 1, .comm_src = 0, .comm_dst = 1}),
            first + "expected comm_tag of a send node, found none");
  EXPECT_EQ(error({.type = Type::kMemoryLoad}),
            first + "expected tensor_size of a memory load node, found none");
  EXPECT_EQ(error({.num_ops = -7}), first + "expected num_ops of 0 or more, found -7");
  EXPECT_EQ(error({.pg_name = "\xff"}), first + "expected UTF-8 in all texts, found other bytes");
  EXPECT_EQ(
      error({.attributes = {ChakraAttribute::integer("comm_size", 3)}}),
      first + "expected attribute comm_size in the member of that name, found it in the list");
  EXPECT_EQ(error({.attributes = {{.name = "a", .type = Value::kInt32, .value = "text"}}}),
            first + "expected a value that is an int32 in attribute \"a\", found another type");
  EXPECT_EQ(
      error({.attributes = {{.name = "a", .type = Value::kInt32, .value = std::int64_t{1} << 31}}}),
      first + "expected a value that fits an int32 in attribute \"a\"");
  EXPECT_EQ(error({.attributes = {ChakraAttribute::text("a", "\xff")}}),
            first + "expected UTF-8 in attribute \"a\", found other bytes");
  ChakraTrace twice = one({.id = 1});
  twice.nodes.push_back({.id = 1});
  EXPECT_EQ(write_error(twice),
            "node 1 (id 1, \"\"): expected an id of its own, found 1, the id of node 0");
  ChakraNode barrier{.type = Type::kCollective, .comm_type = ChakraCollective::kBarrier};
  EXPECT_TRUE(write_chakra(one(barrier), file_));  // moves no bytes
}

TEST_F(Chakra, AnOldFileStaysWhereANewOneFails) {
  ASSERT_TRUE(write_chakra(one({.id = 1}), file_));
  const std::string before = content(file_);
  ASSERT_FALSE(write_chakra(one({.id = 1, .duration_us = -1}), file_));
  EXPECT_EQ(content(file_), before);
  EXPECT_THAT(files(), ElementsAre("job.0.et"));
  const auto nowhere = write_chakra(one({.id = 1}), folder_ / "none" / "job.0.et");
  ASSERT_FALSE(nowhere);
  EXPECT_EQ(nowhere.error().message, "cannot write: No such file or directory");
}

// ---- jobs --------------------------------------------------------------------------------------

ChakraNode collective(std::uint64_t id, ChakraCollective type, std::int64_t size,
                      const std::string& group = "") {
  return {.id = id,
          .name = "c" + std::to_string(id),
          .type = Type::kCollective,
          .comm_type = type,
          .comm_size = size,
          .pg_name = group};
}

std::vector<ChakraTrace> job(std::vector<std::vector<ChakraNode>> nodes) {
  std::vector<ChakraTrace> ranks;
  for (auto& list : nodes) ranks.emplace_back().nodes = std::move(list);
  return ranks;
}

constexpr auto kReduce = ChakraCollective::kAllReduce;
constexpr auto kGather = ChakraCollective::kAllGather;

TEST_F(Chakra, AJobIsOneFilePerRank) {
  const auto ranks =
      job({{collective(1, kReduce, 8), collective(2, kGather, 4, "1")},
           {collective(5, kGather, 4, "1"), collective(6, kReduce, 8, "0")},  // "0" is ""
           {{.id = 1, .name = "gemm", .duration_us = 3}, collective(2, kReduce, 8)}});
  ASSERT_TRUE(write_chakra(ranks, folder_ / "job", {.groups = {{"1", {0, 1}}}}));
  EXPECT_THAT(files(), ElementsAre("job.0.et", "job.1.et", "job.2.et", "job.groups.json"));
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const auto again = read_chakra(folder_ / ("job." + std::to_string(i) + ".et"));
    ASSERT_TRUE(again) << to_string(again.error());
    EXPECT_EQ(*again, ranks[i]);
  }
  EXPECT_EQ(content(folder_ / "job.groups.json"), "{\"1\":[0,1]}\n");
}

TEST_F(Chakra, RanksOfAGroupMustRunTheSameCollectives) {
  EXPECT_EQ(
      job_error(job({{collective(1, kReduce, 8), collective(2, kGather, 4)},
                     {collective(1, kReduce, 8), collective(2, kGather, 4)},
                     {collective(1, kGather, 4), collective(2, kReduce, 8)}})),
      "job.2.et: rank 2, collective 0 of all ranks: expected all_reduce of 8 B (id 1, \"c1\") "
      "as in rank 0, found all_gather of 4 B (id 1, \"c1\")");
  EXPECT_EQ(job_error(job({{collective(1, kReduce, 8, "7")}, {collective(4, kReduce, 9, "7")}})),
            "job.1.et: rank 1, collective 0 of group \"7\": expected all_reduce of 8 B (id 1, "
            "\"c1\") as in rank 0, found all_reduce of 9 B (id 4, \"c4\")");
  EXPECT_EQ(job_error(job({{collective(1, kReduce, 8)}, {}})),
            "job.1.et: rank 1, collective 0 of all ranks: expected all_reduce of 8 B (id 1, "
            "\"c1\") as in rank 0, found no more");
  const auto uneven = job({{collective(1, kReduce, 8, "7")}, {{.id = 1}}});
  EXPECT_EQ(job_error(uneven, {.groups = {{"7", {0, 1}}}}),
            "job.1.et: rank 1, collective 0 of group \"7\": expected all_reduce of 8 B (id 1, "
            "\"c1\") as in rank 0, found no more");
  EXPECT_EQ(job_error(uneven, {.groups = {{"7", {1}}}}),
            "job.0.et: node 0 (id 1, \"c1\"): expected a process group that rank 0 is in, found "
            "\"7\"");
  EXPECT_EQ(job_error(uneven, {.groups = {{"8", {0, 1}}}}),
            "job.0.et: node 0 (id 1, \"c1\"): expected a process group of the job, found \"7\"");
  EXPECT_EQ(job_error(uneven, {.groups = {{"7", {0, 2}}}}),
            ": process group 7: expected different ranks from 0 to 1, found [0, 2]");
  EXPECT_EQ(job_error({}), ": expected traces of ranks, found none");
  EXPECT_EQ(job_error(uneven), "no error");  // rank 1 may not be a member
}

ChakraNode message_node(Type type, std::int32_t from, std::int32_t to, std::int64_t size) {
  return {.id = 1,
          .name = "p2p",
          .type = type,
          .comm_size = size,
          .comm_src = from,
          .comm_dst = to,
          .comm_tag = 3};
}

TEST_F(Chakra, SendsNeedReceives) {
  EXPECT_EQ(job_error(job({{message_node(Type::kSend, 0, 1, 64)}, {}})),
            "job.0.et: node 0 (id 1, \"p2p\"): expected a receive in rank 1 (from 0 to 1, tag 3, "
            "64 B), found none");
  EXPECT_EQ(job_error(job({{}, {message_node(Type::kReceive, 0, 1, 64)}})),
            "job.1.et: node 0 (id 1, \"p2p\"): expected a send in rank 0 (from 0 to 1, tag 3, "
            "64 B), found none");
  EXPECT_EQ(job_error(job({{message_node(Type::kSend, 1, 0, 64)}, {}})),
            "job.0.et: node 0 (id 1, \"p2p\"): expected comm_src 0 as in the file's name, found 1");
  EXPECT_EQ(job_error(job({{message_node(Type::kSend, 0, 2, 64)}, {}})),
            "job.0.et: node 0 (id 1, \"p2p\"): expected another rank below 2 in comm_dst, found 2");
  EXPECT_EQ(job_error(job(
                {{message_node(Type::kSend, 0, 1, 64)}, {message_node(Type::kReceive, 0, 1, 64)}})),
            "no error");
}

TEST(ChakraCommSize, AnAllGatherCountsItsInput) {
  EXPECT_EQ(chakra_comm_size(ChakraCollective::kAllGather, 4096, 8), 512);
  EXPECT_EQ(chakra_comm_size(ChakraCollective::kAllGather, 4097, 8), 513);
  EXPECT_EQ(chakra_comm_size(ChakraCollective::kReduceScatter, 4096, 8), 4096);
  EXPECT_EQ(chakra_comm_size(ChakraCollective::kAllReduce, 4096, 8), 4096);
  EXPECT_EQ(chakra_comm_size(ChakraCollective::kAllToAll, 4096, 8), 4096);
}

}  // namespace chakra_test
}  // namespace perfmodel
