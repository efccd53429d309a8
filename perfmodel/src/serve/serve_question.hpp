#pragma once

#include <functional>
#include <span>

#include "fields/field.hpp"
#include "server.hpp"

namespace perfmodel::serve {

/// How a server is started, in the words and numbers of a command line, which replace the files,
/// times and bytes of the options.
struct ServeQuestion : ServerOptions, ServiceOptions {
  PredictorConfig predictor = {};
  std::string socket_path = {}, allow_files = {}, token_file = {}, state_folder = {}, log_file = {};
  double timeout_ms = 60000;  ///< limit of one request; 0: none
  std::size_t max_graph_mib = 4096, max_command_mib = 4096;
};

using ServeField = Field<ServeQuestion, std::size_t, std::optional<std::size_t>>;

/// Fields of the server and the service, in the order of the help.
std::span<const ServeField> serve_fields();

/// Loads the predictor and hands a service to `use`; sets the options that the words stand for.
/// Errors of `Predictor::load` and `use`; no folder at `allow_files`.
Result<void> with_service(ServeQuestion& question,
                          const std::function<Result<void>(Service&)>& use);

/// Loads the predictor, opens the server and hands it to `use`, which runs it. Errors of
/// `Predictor::load`, `Server::open` and `use`; no folder at `allow_files`.
Result<void> with_server(ServeQuestion question, const std::function<Result<void>(Server&)>& use);

}  // namespace perfmodel::serve
