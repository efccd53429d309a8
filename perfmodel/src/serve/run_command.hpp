#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "perfmodel/result.hpp"

namespace perfmodel::serve {

/// A command that a client asks for, to be run apart from the server.
struct CommandQuestion {
  std::string request;           ///< {"command": .., "arguments": .., "options": ..}
  std::filesystem::path folder;  ///< it runs here: all files in it may be read and written
  bool any_file = false;         ///< whether other files may be
  std::filesystem::path files;   ///< else those below it may be read; empty: none
  std::stop_token cancel;
};

/// Answer of a command to another program.
struct CommandAnswer {
  /// JSON text; for a command without --json, a JSON string: its output.
  std::string document = {};
  std::vector<std::string> messages = {};  ///< warnings of the command line on standard error
  std::optional<Error> error = {};         ///< then there is no document
  bool is_bad_request = false;             ///< the error is in the question, not in the findings
};

/// Runs a command for a client. Errors: it could not be run to its end (kCancelled if the client
/// asked for that).
using RunCommand = std::function<Result<CommandAnswer>(const CommandQuestion& question)>;

/// Runs a command of perfpredict that is asked for by one JSON object:
///
///     {"command": "whatif", "arguments": ["gpt2.json"],
///      "options": {"gpus": ["a100-sxm-80gb", "h100-sxm-80gb"], "batch": [8, 16]}}
///
/// `options` are the flags, in this order, "_" for "-" within names: true sets a flag, false clears
/// one that has a --no- form, null is none, a list is a flag's list of values or the flag several
/// times. The answer equals the command's --json output, to the byte, and so do its errors.
/// `most_bytes` bounds the answer; 0: any number.
///
/// Errors: the text is no such object, standard input for a file ("-": it is another program's),
/// commands that are programs of their own or talk to people (serve, train, eval, man, completion).
/// Throws Stopped where a StopScope says so.
///
/// The commands define it (perfmodel/cli), with which the program and the C interface are linked.
CommandAnswer run_request(std::string_view request, std::size_t most_bytes = 0);

}  // namespace perfmodel::serve
