#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "build_commands.hpp"
#include "cli_main.hpp"
#include "eval_arguments.hpp"
#include "train_arguments.hpp"

namespace perfmodel::cli {
namespace {

// Commands that need XGBoost are a program of their own beside this one: loading the library takes
// longer than a prediction.
Command of_other_program(CLI::App* command) {
  return {
      command, [] {
        return Result<void>(fail(ErrorCode::kImpossible,
                                 "expected the program perfpredict-train beside this one, found "
                                 "none (it is built where XGBoost is found)"));
      }};
}

struct NamedCommand {
  std::string_view name;
  Command (*make)(CLI::App&);
};
constexpr NamedCommand kCommands[] = {
    {"predict", predict_command},     {"trace", trace_command},     {"replay", replay_command},
    {"overheads", overheads_command}, {"kernels", kernels_command}, {"gpus", gpus_command},
    {"rewrite", rewrite_command},     {"whatif", whatif_command},   {"shard", shard_command},
    {"sweep", sweep_command},         {"suite", suite_command},     {"serve", serve_command},
    {"memory", memory_command},       {"layout", layout_command},   {"optimize", optimize_command},
    {"sync", sync_command},           {"gemm", gemm_command},       {"analyze", analyze_command},
    {"report", report_command}};

std::vector<Command> make_commands(CLI::App& app, std::string_view first) {
  std::vector<Command> commands;
  const auto* const asked = std::ranges::find(kCommands, first, &NamedCommand::name);
  if (asked != std::end(kCommands)) {
    commands.push_back(asked->make(app));
    return commands;
  }
  for (const NamedCommand& command : kCommands) commands.push_back(command.make(app));
  commands.push_back(of_other_program(add_train_command(app, std::make_shared<TrainArguments>())));
  commands.push_back(of_other_program(add_eval_command(app, std::make_shared<EvalArguments>())));
  commands.push_back(completion_command(app));
  commands.push_back(man_command(app));
  for (Command& command : build_commands(app)) commands.push_back(std::move(command));
  return commands;
}

void run_other_program(char** argv) {
  std::error_code failure;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", failure);
  if (failure) return;
  const std::string program = (self.parent_path() / "perfpredict-train").string();
  execv(program.c_str(), argv);  // returns only if there is none
}

// `shard TABLES` is `shard rank TABLES`, `layout MODEL` is `layout rank MODEL`.
std::vector<char*> with_default_command(int argc, char** argv) {
  static char rank[] = "rank";
  constexpr std::string_view kNamed[] = {"rank",  "eval",   "compare", "sweep",
                                         "study", "export", "-h",      "--help"};
  std::vector<char*> arguments(argv, argv + argc);
  const int place = command_place(argc, argv);
  const std::string_view command = place < argc ? argv[place] : "";
  if (argc > place + 1 && (command == "shard" || command == "layout") &&
      std::find(std::begin(kNamed), std::end(kNamed), argv[place + 1]) == std::end(kNamed)) {
    arguments.insert(arguments.begin() + place + 1, rank);
  }
  return arguments;
}

}  // namespace
}  // namespace perfmodel::cli

int main(int argc, char** argv) {
  const int place = perfmodel::cli::command_place(argc, argv);
  const std::string_view command = place < argc ? argv[place] : "";
  if (command == "train" || command == "eval") perfmodel::cli::run_other_program(argv);
  std::vector<char*> arguments = perfmodel::cli::with_default_command(argc, argv);
  return perfmodel::cli::cli_main(static_cast<int>(arguments.size()), arguments.data(),
                                  perfmodel::cli::make_commands, perfmodel::cli::suggest_preset);
}
