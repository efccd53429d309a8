#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "job_text.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// A row of a format's table: a setting and its meaning to `layout`.
struct JobRule {
  std::string key;    ///< "*" at its end matches anything
  std::string field;  ///< a field of `layout`, a fact that complete_job.cpp reads, or one of the
                      ///< three below
  /// Their values and ours; a value of ours may set further fields: "1f1b;vp=2". "*": any value.
  std::vector<std::pair<std::string, std::string>> values = {};
};
inline constexpr std::string_view kIgnored = "-";      ///< changes neither time nor memory
inline constexpr std::string_view kNotModelled = "!";  ///< changes one of them: is said
inline constexpr std::string_view kAsItIs = "*";       ///< the value as the file has it

/// How the settings of one trainer are called: a file of data/jobs/.
struct JobFormat {
  std::string name, title;
  std::vector<std::string> keys;                              ///< keys that tell the format from
                                                              ///< others
  std::vector<std::string> prefixes;                          ///< left out at the beginning of keys
  std::vector<std::pair<std::string, std::string>> defaults;  ///< fields that a job leaves out
  std::vector<std::pair<std::string, std::string>> models;    ///< their names and ours
  std::vector<JobRule> rules;
};

/// Reads a table. Errors: an unreadable file, a line that says nothing, an unknown field.
Result<JobFormat> read_job_format(const std::filesystem::path& file);

/// The format that has most of its telling keys among the settings. Errors: none has any (names the
/// formats), no data folder, a broken table.
Result<JobFormat> recognised_format(const JobEntries& entries, const std::filesystem::path& file);

/// The row about a key, with or without a prefix of the format: an exact one before one with "*".
/// Nullptr: there is none.
const JobRule* find_rule(const JobFormat& format, std::string_view key);

}  // namespace perfmodel
