#pragma once

#include <functional>
#include <vector>

#include "perfmodel/result.hpp"
#include "terminal/command_parser.hpp"

namespace perfmodel::cli {

/// One sub-command: its parser and what to do once the arguments are parsed.
struct Command {
  CommandParser app;
  std::function<Result<void>()> run;
};

Command predict_command(CommandParser parent);
Command trace_command(CommandParser parent);
Command overheads_command(CommandParser parent);
Command gemm_command(CommandParser parent);
Command gpus_command(CommandParser parent);
Command kernels_command(CommandParser parent);
Command replay_command(CommandParser parent);
Command rewrite_command(CommandParser parent);
Command whatif_command(CommandParser parent);
Command memory_command(CommandParser parent);
Command optimize_command(CommandParser parent);
Command analyze_command(CommandParser parent);
Command report_command(CommandParser parent);
Command shard_command(CommandParser parent);
Command layout_command(CommandParser parent);
Command sweep_command(CommandParser parent);
Command suite_command(CommandParser parent);
Command sync_command(CommandParser parent);
Command serve_command(CommandParser parent);
Command train_command(CommandParser parent);
Command eval_command(CommandParser parent);
/// Not in --help: what packages install beside the program.
Command completion_command(CommandParser parent);
Command man_command(CommandParser parent);
/// `build` has one command per model family.
std::vector<Command> build_commands(CommandParser parent);

}  // namespace perfmodel::cli
