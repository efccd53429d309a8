#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <memory>

#include "cli/shared/arguments.hpp"
#include "cli/shared/command.hpp"
#include "cli/shared/kernel_models_option.hpp"
#include "cli/shared/overheads_option.hpp"
#include "client_command.hpp"
#include "perfmodel/predictor.hpp"
#include "serve/server.hpp"
#include "terminal/command_parser.hpp"

namespace perfmodel::cli {
namespace {

constexpr int kStoppedAtOnce = 1;

struct ServeArguments {
  PredictorConfig config;
  std::string overheads, socket, files;
  serve::ServiceOptions service;
  serve::ServerOptions server;
  double timeout_ms = 0;
  std::size_t max_graph_mib = 4096, max_command_mib = 4096;
  bool answers_command = false;  // the process of one command of a client
};

// What a signal handler may look at.
std::atomic<serve::Server*> serving = nullptr;
char socket_path[256] = {};

extern "C" void on_signal(int) {
  // The first signal ends the work in order, the second one ends it.
  if (serve::Server* server = serving.exchange(nullptr)) return server->stop();
  if (socket_path[0] != '\0') unlink(socket_path);
  _exit(kStoppedAtOnce);
}

void stop_on_signals(serve::Server& server, const std::string& socket) {
  socket.copy(socket_path, sizeof socket_path - 1);
  serving = &server;
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
    struct sigaction old {};
    sigaction(signal, nullptr, &old);
    if (old.sa_handler != SIG_IGN) sigaction(signal, &action, nullptr);  // nohup
  }
}

Result<void> run_serve(ServeArguments& arguments) {
  if (arguments.answers_command) return answer_client_command();
  if (!arguments.files.empty() && !std::filesystem::is_directory(arguments.files)) {
    return Unexpected{Error{.code = ErrorCode::kIo,
                            .message = "expected a folder for --allow-files, found none",
                            .file = arguments.files}};
  }
  arguments.config.overheads = arguments.overheads;
  arguments.config.read_models = true;  // whoever starts a server is told, not whoever asks it
  arguments.server.socket = arguments.socket;
  arguments.server.files = arguments.files;
  arguments.service.max_graph_bytes = arguments.max_graph_mib << 20;
  arguments.service.timeout =
      std::chrono::milliseconds(static_cast<std::int64_t>(arguments.timeout_ms));
  const ClientCommandLimits limits{.memory_bytes = arguments.max_command_mib << 20};
  arguments.service.run_command = [limits](const serve::CommandQuestion& question) {
    return run_client_command(question, limits);
  };
  auto predictor = Predictor::load(arguments.config);
  if (!predictor) return Unexpected{predictor.error()};
  serve::Service service(std::move(*predictor), arguments.service);
  auto server = serve::Server::open(service, arguments.server);
  if (!server) return Unexpected{server.error()};
  stop_on_signals(*server, arguments.socket);
  auto served = server->run();
  serving = nullptr;
  return served;
}

}  // namespace

Command serve_command(CommandParser parent) {
  auto arguments = std::make_shared<ServeArguments>();
  const CommandParser app = parent.add_subcommand(
      "serve", "Answers questions, one JSON object per line, on standard input or a socket");
  app.add_option("--socket", arguments->socket,
                 "Listen on this Unix socket instead of serving standard input")
      .type_name("PATH");
  app.add_option("--allow-files", arguments->files,
                 "Clients of the socket may load graphs below this folder")
      .type_name("FOLDER")
      .needs(app.option("--socket"));
  app.add_option("--threads", arguments->server.threads,
                 "Threads that answer; 0: as many as the machine runs at once")
      .type_name("N")
      .check(between(0, 1024))
      .capture_default_str();
  app.add_option("--costly-threads", arguments->server.costly_threads,
                 "Threads beside these for what takes long (build, load, searches, commands, "
                 "large graphs), "
                 "at low priority, clients taking turns (default: half as many; none beside one)")
      .type_name("N")
      .check(between(0, 1024));
  app.add_option("--max-request", arguments->server.max_request, "Bytes of one request")
      .type_name("BYTES")
      .check(between(64, 1LL << 31))
      .capture_default_str();
  app.add_option("--max-clients", arguments->server.max_clients, "Clients of the socket at once")
      .type_name("N")
      .check(between(1, 10000))
      .capture_default_str();
  app.add_option("--timeout-ms", arguments->timeout_ms,
                 "Time limit of one request, in milliseconds; 0: none")
      .type_name("MS")
      .check(between(0, 1e9))
      .capture_default_str();
  app.add_option("--max-graphs", arguments->service.max_graphs, "Graphs held at once")
      .type_name("N")
      .check(between(1, 1e6))
      .capture_default_str();
  app.add_option("--max-graph-mib", arguments->max_graph_mib, "Memory of all graphs, in MiB")
      .type_name("MIB")
      .check(between(1, 1 << 20))
      .capture_default_str();
  app.add_option("--max-command-mib", arguments->max_command_mib,
                 "Memory of one command that a client asks for (ask), in MiB")
      .type_name("MIB")
      .check(between(64, 1 << 20))
      .capture_default_str();
  app.add_flag("--answer-command", arguments->answers_command).group("");
  app.add_option("--gpus", arguments->config.gpus, "GPUs to load; default: all")
      .type_name("GPU,...")
      .delimiter(',');
  add_overheads_option(app, arguments->overheads, kOverheadsHelp);
  app.add_option("--cached-prices", arguments->config.cached_prices,
                 "Kernel prices remembered per GPU, 192 bytes each")
      .type_name("N")
      .check(between(0, 1 << 26))
      .capture_default_str();
  add_models_option(app, arguments->config.models);
  return {app, [arguments] { return run_serve(*arguments); }};
}

}  // namespace perfmodel::cli
