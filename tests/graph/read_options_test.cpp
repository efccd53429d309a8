#include "perfmodel/graph/detail/read_options.hpp"

#include <gtest/gtest.h>

namespace perfmodel {
namespace read_options_test {

std::string error_of(std::string_view assignment) {
  ReadLimits limits;
  const auto done = set_limit(limits, assignment);
  return done ? "" : done.error().message;
}

TEST(ReadLimits, AreSetByName) {
  ReadLimits limits;
  for (const char* assignment : {"nesting=200", "string-bytes=3KiB", "element-bytes=2GiB",
                                 "elements=5", "kept-bytes=64GiB", "inflation=1000"}) {
    EXPECT_TRUE(set_limit(limits, assignment)) << assignment;
  }
  EXPECT_EQ(limits.nesting, 200u);
  EXPECT_EQ(limits.string_bytes, 3072u);
  EXPECT_EQ(limits.element_bytes, 2147483648u);
  EXPECT_EQ(limits.elements, 5u);
  EXPECT_EQ(limits.kept_bytes, 68719476736u);
  EXPECT_EQ(limits.inflation, 1000u);
}

TEST(ReadLimits, OtherNamesAndValuesAreRefused) {
  const std::string names =
      "expected NAME=VALUE, NAME one of nesting, depth, string-bytes, element-bytes, elements, "
      "kept-bytes, inflation, found ";
  EXPECT_EQ(error_of("height=3"), names + "height=3");
  EXPECT_EQ(error_of("nesting"), names + "nesting");
  EXPECT_EQ(error_of("nesting=1001"),
            "expected nesting from 1 to 1000 (or with KiB, MiB, GiB), found 1001");
  for (const char* wrong : {"nesting=0", "nesting=", "nesting=-1", "nesting=1.5", "nesting=x",
                            "kept-bytes=9223372036854775808", "kept-bytes=9007199254740992KiB",
                            "element-bytes=4GiB", "kept-bytes=3GB", "elements=2147483648"}) {
    EXPECT_NE(error_of(wrong), "") << wrong;
  }
}

}  // namespace read_options_test
}  // namespace perfmodel
