#pragma once

#include <functional>
#include <memory>
#include <stop_token>
#include <string>

#include "answers.hpp"
#include "caller.hpp"
#include "command_folder.hpp"
#include "perfmodel/predictor.hpp"
#include "request.hpp"
#include "run_command.hpp"

namespace perfmodel::serve {

/// A command of a client with the folder in which it runs: the files that the request holds, and
/// the loaded graphs that its words name, each under its name.
struct PreparedCommand {
  CommandFolder folder;
  CommandQuestion question;
};

using FindGraph = std::function<std::shared_ptr<const PreparedGraph>(const std::string& name)>;

/// Errors: kImpossible if the request is not possible (names of files with folders, words that name
/// files that the caller may not open, a name that no written graph can have).
Result<PreparedCommand> prepare_command(const Request& request, const Caller& caller,
                                        const FindGraph& find_graph, std::stop_token cancel);

/// Files that the command has written, by name: their text, or {"base64": text} if they are no
/// UTF-8 (.gz, .et). `names`: a list in JSON; empty: none, and the answer is null. Errors: a name
/// with a folder, a file that the command has not written or that is larger than 64 MiB.
Result<Json> read_outputs(std::string_view names, const CommandFolder& folder);

/// The text of the result, without newlines. `graph`: description of the graph that was kept; null:
/// none was asked to be. `outputs`: as `read_outputs` says.
std::string command_result(const CommandAnswer& answer, const Json& graph, const Json& outputs);

}  // namespace perfmodel::serve
