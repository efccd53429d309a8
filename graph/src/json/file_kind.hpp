#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace perfmodel {

/// Names a file that is no JSON by its first bytes (64 KiB suffice) and its name and says how to
/// get something that is read: "a Perfetto trace (protobuf); `traceconv json FILE FILE.json` ...".
/// It is meant for the error of a reader that has given up: what a good file is, its own reader
/// knows best.
std::string file_kind(std::string_view head, const std::filesystem::path& file);

/// Whether the bytes begin as a Chakra trace does: with a message that has a version.
bool looks_like_chakra(std::string_view head);

}  // namespace perfmodel
