#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "../scratch.hpp"

/// Runs perfpredict in a shell, as its users do, and what every test asks of it.
namespace perfmodel::test_support {

using Json = nlohmann::json;
namespace fs = std::filesystem;
using Words = std::vector<std::string>;

inline std::string read(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

struct Outcome {
  int status = -1;
  std::string out, err;
};

// The shell gets `before` ahead of the program and `after` following its arguments.
inline Outcome run(const Words& arguments, const std::string& before = "",
                   const std::string& after = "") {
  const fs::path out = scratch() / "stdout", err = scratch() / "stderr";
  std::string command = before + " '" PERFPREDICT_PROGRAM "'";
  for (const std::string& argument : arguments) command += " '" + argument + "'";
  command += " >'" + out.string() + "' 2>'" + err.string() + "' " + after;
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read(out), read(err)};
}

inline std::string shown(const Words& arguments) {
  std::string text;
  for (const std::string& argument : arguments) text += argument + " ";
  return text;
}

inline Words with(Words first, const Words& more) {
  first.insert(first.end(), more.begin(), more.end());
  return first;
}

inline std::string written(const std::string& name, const std::string& text) {
  std::ofstream(scratch() / name, std::ios::binary) << text;
  return scratch_file(name);
}

// A file of tests/make_samples.py.
inline std::string sample(const std::string& name) {
  return (fs::path(PERFMODEL_SAMPLES) / name).string();
}

// Standard output of a command that succeeds and says nothing on standard error.
inline std::string output_of(const Words& arguments, const std::string& before = "") {
  SCOPED_TRACE(shown(arguments));
  const Outcome outcome = run(arguments, before);
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.err, "");
  return outcome.out;
}

// The one document on standard output, which says what wrote it.
inline Json json_of(Words arguments, const std::string& before = "") {
  arguments.emplace_back("--json");
  SCOPED_TRACE(shown(arguments));
  const std::string text = output_of(arguments, before);
  Json document = Json::parse(text, nullptr, false);
  EXPECT_TRUE(document.is_object()) << text.substr(0, 200);
  if (!document.is_object()) return Json::object();
  EXPECT_TRUE(document["schema"].is_string());
  EXPECT_TRUE(document["version"].is_number_integer());
  EXPECT_TRUE(document["minor_version"].is_number_integer());
  EXPECT_TRUE(document["program"]["version"].is_string());
  EXPECT_TRUE(document["program"]["git"].is_string());
  return document;
}

// Standard error is one line that holds `part`, standard output is empty.
inline void expect_error(const Words& arguments, int status, const std::string& part,
                         const std::string& before = "") {
  SCOPED_TRACE(shown(arguments));
  const Outcome outcome = run(arguments, before);
  EXPECT_EQ(outcome.status, status);
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(std::ranges::count(outcome.err, '\n'), 1) << outcome.err;
  EXPECT_TRUE(outcome.err.ends_with('\n'));
  EXPECT_NE(outcome.err.find(part), std::string::npos) << outcome.err;
}

// Characters, not bytes.
inline std::size_t width(const std::string& line) {
  return static_cast<std::size_t>(std::ranges::count_if(
      line, [](char byte) { return (static_cast<unsigned char>(byte) & 0xc0) != 0x80; }));
}

// Lines of at most 100 columns, except commands to be pasted; no escapes, no blanks at ends.
inline void expect_narrow(const std::string& text) {
  EXPECT_EQ(text.find('\033'), std::string::npos);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("  perfpredict ")) {
      EXPECT_LE(width(line), 100U) << line;
    }
    EXPECT_FALSE(line.ends_with(' ')) << line;
  }
}

// The graph that `build` writes with these words.
inline std::string built(const std::string& name, const Words& words) {
  output_of(with(with({"build"}, words), {"-o", scratch_file(name)}));
  return scratch_file(name);
}

}  // namespace perfmodel::test_support
