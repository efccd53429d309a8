#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "cli/cli_main.hpp"

namespace perfmodel::cli {

/// What a command answers to another program.
struct RequestAnswer {
  Outcome outcome;
  std::string
      text;  ///< a JSON document; of a command without --json, a JSON string: what it prints
  std::vector<std::string> messages;  ///< warnings that the command line has on standard error
};

/// Runs a command of perfpredict that is asked for by one JSON object:
///
///     {"command": "whatif", "arguments": ["gpt2.json"],
///      "options": {"gpus": ["a100-sxm-80gb", "h100-sxm-80gb"], "batch": [8, 16]}}
///
/// `options` are the flags, in this order, "_" for "-" within names: true sets a flag, false clears
/// one that has a --no- form, null is none, a list is a flag's list of values or the flag several
/// times. The answer is what the command prints with --json, to the byte, and what is wrong is what
/// it says. `most_bytes`: of the answer; 0: any number.
///
/// Errors: the text is no such object, standard input for a file ("-": it is another program's),
/// commands that are programs of their own or talk to people (serve, train, eval, man, completion).
/// Throws Stopped where a StopScope says so.
RequestAnswer run_request(std::string_view request, std::size_t most_bytes = 0);

}  // namespace perfmodel::cli
