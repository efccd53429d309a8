#pragma once

#include <filesystem>
#include <string>
#include <tl/expected.hpp>

#include "perfmodel/detail/check.hpp"

namespace perfmodel {

enum class ErrorCode {
  kIo,           ///< a file cannot be opened, read or written
  kSyntax,       ///< text that is no JSON, or compressed data that is broken
  kFormat,       ///< JSON that is not what the format asks for
  kUnknownName,  ///< a GPU, preset or op that nobody knows
  kImpossible,   ///< a request that the input cannot answer
  kOutOfMemory,  ///< an allocation failed; nothing is held back
  kCancelled,    ///< whoever asked said stop
};

/// What went wrong and where. Positions are those of the inflated text.
struct Error {
  ErrorCode code = ErrorCode::kFormat;
  std::string message;  ///< what was expected, what was found
  std::filesystem::path file = {};
  std::string json_pointer = {};  ///< "/nodes/17/id"
  int line = 0, column = 0;       ///< 1-based; 0 when unknown
};

/// `file:line:column: /pointer: message` without what is not known. Plain text, secrets masked.
std::string to_string(const Error& error);

template <class T>
using Result = tl::expected<T, Error>;

using Unexpected = tl::unexpected<Error>;

inline Unexpected fail(ErrorCode code, std::string message, std::filesystem::path file = {}) {
  return Unexpected{Error{.code = code, .message = std::move(message), .file = std::move(file)}};
}

}  // namespace perfmodel
