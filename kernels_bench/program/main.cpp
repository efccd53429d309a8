#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <exception>

#include "commands.hpp"
#include "perfmodel/version.hpp"
#include "terminal/command_parser.hpp"
#include "terminal/output.hpp"

namespace kernels_bench {
namespace {

using perfmodel::cli::complain;
using perfmodel::cli::completion_command;
using perfmodel::cli::man_command;

enum ExitCode { kOk = 0, kBadInput = 1, kBadUsage = 2 };

constexpr const char* kPurpose = "measures kernels on a GPU, for models that predict them";

StopFlag stop = false;

void on_signal(int) { stop = true; }

// The row in hand is finished; a second signal ends the program at once.
void stop_at_signals() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

std::string joined(int argc, char** argv) {
  std::string line = "kernels_bench";
  for (int i = 1; i < argc; ++i) line += fmt::format(" {}", argv[i]);
  return line;
}

int exit_code_of(const perfmodel::Result<void>& done) {
  if (done) return kOk;
  complain(perfmodel::to_string(done.error()));
  return kBadInput;
}

int run(int argc, char** argv) {
  ProgramParser app("kernels_bench",
                    "Measures kernels on a GPU, for kernel models that predict them.",
                    "kernels_bench " + perfmodel::build_text());
  bool list = false;
  app.add_flag("--list", list, "Families, backends and their devices");
  app.require_subcommand(0, 1);
  app.footer("Exit status: 0 success, 1 bad input or impossible request, 2 bad usage.");
  const std::vector<Command> commands = {run_command(app, joined(argc, argv), stop),
                                         plan_command(app),
                                         bench_command(app),
                                         device_command(app),
                                         man_command(app, "kernels_bench", kPurpose),
                                         completion_command(app, "kernels_bench")};
  const ParsedWords parsed = app.parse({argv + std::min(argc, 1), argv + argc});
  if (parsed.kind == ParsedWords::Kind::kText) {
    return exit_code_of(perfmodel::cli::print(parsed.text));
  }
  if (parsed.kind == ParsedWords::Kind::kRefused) {
    complain(parsed.text + " (see --help)");
    return kBadUsage;
  }
  if (list) return exit_code_of(print_list());
  for (const Command& command : commands) {
    if (command.app.parsed()) return exit_code_of(command.run());
  }
  complain("A subcommand is required (see --help)");
  return kBadUsage;
}

}  // namespace
}  // namespace kernels_bench

int main(int argc, char** argv) {
  kernels_bench::stop_at_signals();
  try {
    return kernels_bench::run(argc, argv);
  } catch (const std::exception& error) {  // out of memory, a dependency's own
    perfmodel::cli::complain(error.what());
    return 1;
  }
}
