#pragma once

#include <cstddef>

#include "run_command.hpp"

namespace perfmodel::serve {

/// How much one command of a client may use.
struct CommandLimits {
  std::size_t memory_bytes = std::size_t{4} << 30;
  std::size_t answer_bytes = std::size_t{64} << 20;
};

/// Runs a command in a process of its own (this program again), so that neither a lack of memory
/// nor a bug nor a command without end costs the server more than that process: its memory is
/// limited, it only opens files of the question and of the data folder (Landlock), and it is killed
/// when `question.cancel` says so.
///
/// Errors: kImpossible if files cannot be kept from it; kCancelled; kOutOfMemory; a process that
/// ends by a signal.
Result<CommandAnswer> run_in_process(const CommandQuestion& question, const CommandLimits& limits);

/// The other end, in that process: reads the question from standard input and answers it by `run`
/// (run_request) on standard output.
Result<void> answer_in_process(decltype(run_request)& run);

}  // namespace perfmodel::serve
