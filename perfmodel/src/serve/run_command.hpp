#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "perfmodel/result.hpp"

namespace perfmodel::serve {

/// A command that a client asks for, to be run apart from the server.
struct CommandQuestion {
  std::string request;           ///< {"command": .., "arguments": .., "options": ..}
  std::filesystem::path folder;  ///< where it runs: all there may be read and written
  bool any_file = false;         ///< whether other files may be
  std::filesystem::path files;   ///< else those below it may be read; empty: none
  std::stop_token cancel;
};

struct CommandAnswer {
  std::string document;               ///< JSON text
  std::vector<std::string> messages;  ///< warnings that the command line has on standard error
  std::optional<Error> error;         ///< then there is no document
  bool is_bad_request = false;        ///< the error is how it was asked, not what was found
};

/// Runs a command for a client. Errors: it could not be run to its end (kCancelled where that was
/// asked for).
using RunCommand = std::function<Result<CommandAnswer>(const CommandQuestion& question)>;

}  // namespace perfmodel::serve
