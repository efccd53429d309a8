// Versions of JSON documents: one place in the code, one table in the docs.

#include "base/schema.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <string>

namespace perfmodel {
namespace schema_test {

std::string read(const std::string& file) {
  std::ifstream in(std::filesystem::path(PERFMODEL_SOURCE_DIR) / file);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Name → "1.1" of everything in the text that looks like this: name, version, minor version.
std::map<std::string, std::string> versions(const std::string& text, const std::string& pattern) {
  const std::regex entry(pattern);
  std::map<std::string, std::string> found;
  for (std::sregex_iterator it(text.begin(), text.end(), entry), end; it != end; ++it) {
    const bool has_version = (*it)[2].matched;
    found[(*it)[1]] = has_version ? (*it)[2].str() + "." + (*it)[3].str() : "1.0";
  }
  return found;
}

TEST(Schema, TheTableInTheDocsIsTheCode) {
  const auto code = versions(read("graph/src/base/schema.hpp"),
                             R"re(Schema k\w+ = \{"([^"]+)"(?:, (\d+), (\d+))?\})re");
  const auto docs = versions(read("docs/formats.md"), R"re(\| `([a-z-]+)` \| (\d+)\.(\d+) \|)re");
  EXPECT_GT(code.size(), 20U);
  EXPECT_EQ(code, docs);
}

TEST(Schema, AnotherVersionIsRefused) {
  const Schema schema{"perfmodel-made-up", 2, 3};
  EXPECT_EQ(version_problem(schema, 2), "");
  EXPECT_EQ(version_problem(schema, 1),
            "expected version 2, found 1, which an older program wrote");
  EXPECT_EQ(version_problem(schema, 3), "expected version 2, found 3, which needs a newer program");
}

}  // namespace schema_test
}  // namespace perfmodel
