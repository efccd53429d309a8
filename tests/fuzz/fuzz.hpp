#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "perfmodel/result.hpp"

/// One input; what libFuzzer calls. Each source *_fuzz.cpp defines it for one reader.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

/// Helpers that the fuzz targets share. A broken promise aborts (PERFMODEL_CHECK), so that it
/// counts as a crash of the input.
namespace perfmodel::fuzz {

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

/// Whether a JSON text nests deeper than a document in memory may be copied or printed: both
/// recurse, and the frames of the sanitizers are large. Brackets in strings count too.
bool too_deep(std::string_view text);

/// Checks that a terminal may show the text: one line of some thousand characters at most, none of
/// them a control character.
void check_line(std::string_view line);

/// An error as it is printed: such a line, with a message.
void check_error(const Error& error);

void check_lines(std::span<const std::string> lines);

/// Lets a reader of files read text from memory. The file's name ends in `extension`, one of "",
/// ".json", ".csv" and ".npy". Writing the next text empties it; there are three per process.
const std::filesystem::path& file_with(std::string_view text, std::string_view extension = {},
                                       int number = 0);

/// Takes what a writer of files writes, up to 1 MiB, without a file: hand `file()` to the writer,
/// then ask for the `text()`.
class WrittenText {
 public:
  WrittenText();
  ~WrittenText();
  WrittenText(const WrittenText&) = delete;
  WrittenText& operator=(const WrittenText&) = delete;

  std::filesystem::path file() const;
  std::string text();

 private:
  int ends_[2] = {-1, -1};  // ends of a pipe
};

/// The project's data folder, and one with a few of its GPUs, where all of them are read each time.
std::filesystem::path data_folder();
std::filesystem::path small_data_folder();

}  // namespace perfmodel::fuzz
