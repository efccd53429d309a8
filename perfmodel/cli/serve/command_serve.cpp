#include <unistd.h>

#include <atomic>
#include <csignal>
#include <memory>
#include <variant>

#include "cli/shared/arguments.hpp"
#include "cli/shared/command.hpp"
#include "cli/shared/field_flags.hpp"
#include "cli/shared/kernel_models_option.hpp"
#include "cli/shared/overheads_option.hpp"
#include "serve/command_process.hpp"
#include "serve/mcp.hpp"
#include "serve/run_command.hpp"
#include "serve/serve_question.hpp"
#include "terminal/command_parser.hpp"

namespace perfmodel::cli {
namespace {

constexpr int kStoppedAtOnce = 1;

struct ServeArguments : serve::ServeQuestion {
  std::string overheads;
  bool answers_command = false;  // the process of one command of a client
  bool mcp = false;
};

// The data of a signal handler.
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
  if (arguments.answers_command) return serve::answer_in_process(serve::run_request);
  arguments.predictor.overheads = arguments.overheads;
  const serve::CommandLimits limits{.memory_bytes = arguments.max_command_mib << 20};
  arguments.run_command = [limits](const serve::CommandQuestion& question) {
    return serve::run_in_process(question, limits);
  };
  if (arguments.mcp) {
    return serve::with_service(arguments, [&](serve::Service& service) {
      return serve::serve_mcp(service, arguments.max_request);
    });
  }
  return serve::with_server(arguments, [&](serve::Server& server) {
    stop_on_signals(server, arguments.socket_path);
    auto served = server.run();
    serving = nullptr;
    return served;
  });
}

}  // namespace

Command serve_command(CommandParser parent) {
  auto arguments = std::make_shared<ServeArguments>();
  const CommandParser app = parent.add_subcommand(
      "serve", "Answers questions, one JSON object per line, on standard input or a socket");
  for (const serve::ServeField& field : serve::serve_fields()) {
    add_field<serve::ServeQuestion>(app, field, *arguments);
    const bool has_default =
        std::holds_alternative<std::size_t serve::ServeQuestion::*>(field.member) ||
        std::holds_alternative<double serve::ServeQuestion::*>(field.member);
    if (has_default) app.option(flag_of(field.name)).capture_default_str();
  }
  app.option("--listen").excludes(app.option("--socket"));
  app.callback([arguments, app] {
    // One client, whose messages are answered in order.
    for (const char* flag :
         {"--threads", "--costly-threads", "--max-clients", "--max-connections", "--max-rate"}) {
      if (arguments->mcp && app.option(flag).count() > 0) {
        bad_usage(flag, "expected no --mcp with it, which serves one client in order");
      }
    }
    if (!arguments->allow_files.empty() && arguments->socket_path.empty() &&
        arguments->listen.empty()) {
      bad_usage("--allow-files", "expected --socket or --listen with it");
    }
  });
  app.add_flag("--mcp", arguments->mcp,
               "Speak the Model Context Protocol on standard input, for agents")
      .excludes(app.option("--socket"))
      .excludes(app.option("--listen"));
  app.add_flag("--answer-command", arguments->answers_command).group("");
  app.add_option("--gpus GPU,...", arguments->predictor.gpus, "GPUs to load; default: all");
  add_overheads_option(app, arguments->overheads, kOverheadsHelp);
  app.add_option("--cached-prices N", arguments->predictor.cached_prices,
                 "Kernel prices remembered per GPU, 192 bytes each")
      .check(between(0, 1 << 26))
      .capture_default_str();
  add_models_option(app, arguments->predictor.models);
  return {app, [arguments] { return run_serve(*arguments); }};
}

}  // namespace perfmodel::cli
