#pragma once

#include <functional>
#include <vector>

#include "perfmodel/result.hpp"
#include "terminal/cli11.hpp"

namespace perfmodel::cli {

/// One sub-command: its parser and what to do once the arguments are parsed.
struct Command {
  CLI::App* app = nullptr;
  std::function<Result<void>()> run;
};

Command predict_command(CLI::App& parent);
Command trace_command(CLI::App& parent);
Command overheads_command(CLI::App& parent);
Command gemm_command(CLI::App& parent);
Command gpus_command(CLI::App& parent);
Command kernels_command(CLI::App& parent);
Command replay_command(CLI::App& parent);
Command rewrite_command(CLI::App& parent);
Command whatif_command(CLI::App& parent);
Command memory_command(CLI::App& parent);
Command optimize_command(CLI::App& parent);
Command analyze_command(CLI::App& parent);
Command report_command(CLI::App& parent);
Command shard_command(CLI::App& parent);
Command layout_command(CLI::App& parent);
Command sweep_command(CLI::App& parent);
Command suite_command(CLI::App& parent);
Command sync_command(CLI::App& parent);
Command serve_command(CLI::App& parent);
Command train_command(CLI::App& parent);
Command eval_command(CLI::App& parent);
/// Not in --help: what packages install beside the program.
Command completion_command(CLI::App& parent);
Command man_command(CLI::App& parent);
/// `build` has one command per model family.
std::vector<Command> build_commands(CLI::App& parent);

}  // namespace perfmodel::cli
