#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "perfmodel/result.hpp"

/// The settings of a training job as its file has them, whatever the file's format is.
namespace perfmodel {

/// One setting. A value that is `null` has no values.
struct JobEntry {
  std::string key;  ///< names of all levels with dots between them: "training.seq_len"
  std::vector<std::string> values = {};  ///< several: a list
  bool is_list = false;
  int line = 0;  ///< 1-based; 0: not known
};

using JobEntries = std::vector<JobEntry>;

/// Reads TOML, YAML, JSON, a shell script or line with `--flags`, or the arguments that a program
/// printed at the head of its log. The text decides which, not the name of the file.
///
/// Booleans become "true" and "false". Keys of flags have no dashes in front and underscores for
/// those inside; variables of a shell script have the key "$NAME". Errors: an unreadable file, bad
/// syntax, a file without settings.
Result<JobEntries> read_job_text(const std::filesystem::path& file);

/// These read one syntax each; `file` is for messages.
Result<JobEntries> read_toml(const std::string& text, const std::filesystem::path& file);
Result<JobEntries> read_yaml(const std::string& text, const std::filesystem::path& file);
Result<JobEntries> read_shell_flags(std::string_view text, const std::filesystem::path& file);
JobEntries read_printed_arguments(std::string_view text);

/// The deepest nesting and the most settings that a file may have.
inline constexpr int kDeepestJob = 64;
inline constexpr std::size_t kMostJobEntries = 100000;

/// "a", "b" -> "a.b"; "" -> "b".
std::string joined_key(const std::string& above, std::string_view name);

}  // namespace perfmodel
