#include "commands.hpp"

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

#include "cli/build/build_commands.hpp"
#include "cli/train/eval_arguments.hpp"
#include "cli/train/train_arguments.hpp"
#include "cli_main.hpp"

namespace perfmodel::cli {
namespace {

// Commands that need XGBoost are in a separate program: loading the library takes longer than a
// prediction.
Command of_other_program(CommandParser command) {
  return {command, [] {
            return Result<void>(
                decline("expected the program perfpredict-train beside this one, found none (it is "
                        "built where XGBoost is found)"));
          }};
}

struct NamedCommand {
  std::string_view name;
  Command (*make)(CommandParser);
};
constexpr NamedCommand kCommands[] = {
    {"predict", predict_command},   {"trace", trace_command},
    {"replay", replay_command},     {"overheads", overheads_command},
    {"kernels", kernels_command},   {"gpus", gpus_command},
    {"rewrite", rewrite_command},   {"whatif", whatif_command},
    {"shard", shard_command},       {"sweep", sweep_command},
    {"suite", suite_command},       {"serve", serve_command},
    {"memory", memory_command},     {"layout", layout_command},
    {"optimize", optimize_command}, {"sync", sync_command},
    {"gemm", gemm_command},         {"analyze", analyze_command},
    {"report", report_command},     {"collective", collective_command},
    {"topology", topology_command}, {"duration", duration_command},
    {"gate", gate_command},         {"diagnose", diagnose_command}};

}  // namespace

std::vector<Command> make_commands(CommandParser app, std::string_view first) {
  std::vector<Command> commands;
  const auto* const asked = std::ranges::find(kCommands, first, &NamedCommand::name);
  if (asked != std::end(kCommands)) {
    commands.push_back(asked->make(app));
    return commands;
  }
  for (const NamedCommand& command : kCommands) commands.push_back(command.make(app));
  commands.push_back(of_other_program(add_train_command(app, std::make_shared<TrainArguments>())));
  commands.push_back(of_other_program(add_eval_command(app, std::make_shared<EvalArguments>())));
  commands.push_back(completion_command(app, "perfpredict"));
  commands.push_back(
      man_command(app, "perfpredict", "predicts the time of a training batch on a GPU"));
  for (Command& command : build_commands(app)) commands.push_back(std::move(command));
  return commands;
}

void add_default_command(std::vector<std::string>& words) {
  constexpr std::string_view kNamed[] = {"rank",   "eval",      "compare", "sweep", "study",
                                         "export", "calibrate", "-h",      "--help"};
  const std::size_t place = command_place(words);
  if (words.size() < place + 2 || (words[place] != "shard" && words[place] != "layout")) return;
  if (std::ranges::find(kNamed, words[place + 1]) == std::end(kNamed)) {
    const auto at = words.begin() + static_cast<std::ptrdiff_t>(place) + 1;
    if (words[place] == "shard")
      words.insert(at, "rank");
    else
      words.insert(at, {"rank", "--unnamed"});
  }
}

}  // namespace perfmodel::cli
