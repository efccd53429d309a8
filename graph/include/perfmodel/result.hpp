#pragma once

#include <filesystem>
#include <string>
#include <tl/expected.hpp>

#include "perfmodel/detail/check.hpp"

namespace perfmodel {

enum class ErrorCode {
  kIo,           ///< a file cannot be opened, read or written
  kSyntax,       ///< text that is no JSON, or compressed data that is broken
  kFormat,       ///< JSON of another shape than the format's
  kUnknownName,  ///< an unknown GPU, preset or op
  kImpossible,   ///< a request that the input cannot answer
  kOutOfMemory,  ///< an allocation failed; nothing is held back
  kCancelled,    ///< the caller asked it to stop
};

/// An error and its place. Positions count in the inflated text.
struct Error {
  ErrorCode code = ErrorCode::kFormat;
  std::string message;  ///< expected and found
  std::filesystem::path file = {};
  std::string json_pointer = {};  ///< "/nodes/17/id"
  int line = 0, column = 0;       ///< 1-based; 0 when unknown
};

/// `file:line:column: /pointer: message` without what is not known. Plain text, secrets masked.
std::string to_string(const Error& error);

template <class T>
using Result = tl::expected<T, Error>;

using Unexpected = tl::unexpected<Error>;

inline Unexpected fail(ErrorCode code, std::string message, std::filesystem::path file = {},
                       std::string json_pointer = {}) {
  return Unexpected{Error{.code = code,
                          .message = std::move(message),
                          .file = std::move(file),
                          .json_pointer = std::move(json_pointer)}};
}

/// Declines a question that has no answer.
inline Unexpected decline(std::string message, std::filesystem::path file = {},
                          std::string json_pointer = {}) {
  return fail(ErrorCode::kImpossible, std::move(message), std::move(file), std::move(json_pointer));
}

}  // namespace perfmodel

/// Declares `name` as the result that the expression gives, and returns its error if it has one.
#define PERFMODEL_TRY(name, ...) \
  auto name = __VA_ARGS__;       \
  if (!name) return ::perfmodel::Unexpected(std::move(name).error())

/// Returns the error of the expression's result if it has one.
#define PERFMODEL_TRY_TO(...)                                             \
  do {                                                                    \
    if (auto perfmodel_tried = __VA_ARGS__; !perfmodel_tried) {           \
      return ::perfmodel::Unexpected(std::move(perfmodel_tried).error()); \
    }                                                                     \
  } while (false)
