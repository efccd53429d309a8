#pragma once

#include <vector>

#include "terminal/page_commands.hpp"

namespace perfmodel::cli {

Command predict_command(CommandParser parent);
Command trace_command(CommandParser parent);
Command overheads_command(CommandParser parent);
Command collective_command(CommandParser parent);
Command topology_command(CommandParser parent);
Command gemm_command(CommandParser parent);
Command gpus_command(CommandParser parent);
Command kernels_command(CommandParser parent);
Command replay_command(CommandParser parent);
Command rewrite_command(CommandParser parent);
Command whatif_command(CommandParser parent);
Command duration_command(CommandParser parent);
Command memory_command(CommandParser parent);
Command optimize_command(CommandParser parent);
Command analyze_command(CommandParser parent);
Command gate_command(CommandParser parent);
Command report_command(CommandParser parent);
Command shard_command(CommandParser parent);
Command diagnose_command(CommandParser parent);
Command layout_command(CommandParser parent);
Command sweep_command(CommandParser parent);
Command suite_command(CommandParser parent);
Command sync_command(CommandParser parent);
Command serve_command(CommandParser parent);
Command train_command(CommandParser parent);
Command eval_command(CommandParser parent);
/// `build` has one command per model family.
std::vector<Command> build_commands(CommandParser parent);

}  // namespace perfmodel::cli
