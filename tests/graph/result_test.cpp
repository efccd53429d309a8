// How errors are printed: one line, whatever the names in it hold.
#include "perfmodel/result.hpp"

#include <gtest/gtest.h>

#include <string>

namespace perfmodel {
namespace result_test {

TEST(ErrorText, NamesThePlaceAsFarAsItIsKnown) {
  Error error{.message = "expected a, found b"};
  EXPECT_EQ(to_string(error), "expected a, found b");
  error.json_pointer = "/nodes/17/id";
  EXPECT_EQ(to_string(error), "/nodes/17/id: expected a, found b");
  error.file = "graph.json";
  EXPECT_EQ(to_string(error), "graph.json: /nodes/17/id: expected a, found b");
  error.line = 3;
  error.column = 9;
  EXPECT_EQ(to_string(error), "graph.json:3:9: /nodes/17/id: expected a, found b");
}

TEST(ErrorText, ShowsControlCharactersInsteadOfObeyingThem) {
  const Error error{.message = "found \"a\nb\x1b[2J\x7f\xc2\x9b 1m\"",
                    .file = "odd\rname",
                    .json_pointer = std::string("/a\0b", 4)};
  EXPECT_EQ(to_string(error), R"(odd?name: /a?b: found "a?b?[2J?? 1m")");
}

TEST(ErrorText, LeavesOtherTextAsItIs) {
  const Error error{.message = "found \"ünïcode 😀\" µs"};
  EXPECT_EQ(to_string(error), error.message);
}

TEST(ErrorText, MasksSecretsBehindThePlace) {
  const Error error{.message = "expected \"nvidia\" or \"amd\", found \"password=hunter2\"",
                    .file = "g.json",
                    .json_pointer = "/api_key=abc",
                    .line = 1,
                    .column = 9};
  EXPECT_EQ(to_string(error),
            "g.json:1:9: /api_key=[masked]: "
            "expected \"nvidia\" or \"amd\", found \"password=[masked]");
}

TEST(ErrorText, IsNoLongerThanNeeded) {
  const Error error{.message = "m", .json_pointer = std::string(1 << 20, 'k')};
  EXPECT_EQ(to_string(error), std::string(2000, 'k') + "...: m");
}

}  // namespace result_test
}  // namespace perfmodel
