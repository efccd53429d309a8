#include <memory>
#include <optional>

#include "cli/rewrite/rewrite_flags.hpp"
#include "cli/shared/arguments.hpp"
#include "cli/shared/command.hpp"
#include "cli/shared/read_files.hpp"
#include "cli/shared/write_asked.hpp"
#include "job_memory.hpp"
#include "memory/memory_results.hpp"
#include "memory_report.hpp"
#include "perfmodel/data_files.hpp"
#include "perfmodel/graph/read_execution_graph.hpp"
#include "perfmodel/graph/rewrites/training.hpp"
#include "rewrites/rewrite_options.hpp"
#include "terminal/command_parser.hpp"
#include "terminal/output.hpp"

namespace perfmodel::cli {
namespace {

struct MemoryArguments : MemoryQuestion {
  std::string gpu, timeline, strategy;
  ReadOptions reading;
  bool json = false;
  GivenFields given;  // a job's flags
};

// FSDP divides everything. DDP divides nothing, but keeps buckets: a rewrite.
void complete(MemoryArguments& arguments) {
  arguments.over_time = !arguments.timeline.empty();
  if (arguments.strategy == "fsdp") arguments.zero.stage = 3;
  if (arguments.strategy != "ddp") return;
  arguments.rewrites.push_back(
      {"strategy ddp", [world = arguments.zero.world](const ExecutionGraph& graph) {
         return rewrite_data_parallel(graph, {.world_size = world});
       }});
}

Result<std::optional<Gpu>> chosen_gpu(const std::string& name) {
  if (name.empty()) return std::nullopt;
  PERFMODEL_TRY(data, find_data_folder());
  PERFMODEL_TRY(gpu, find_gpu(name, *data / "gpus"));
  return std::move(*gpu);
}

template <class Answer>
Result<void> print_memory(const MemoryArguments& arguments, const Answer& answer) {
  return arguments.json ? print_document(schemas::kMemory, memory_json(answer))
                        : print_report(memory_text(answer));
}

Result<RecordedProgram> read_program(const MemoryArguments& arguments) {
  PERFMODEL_TRY(programs, read_programs({arguments.graph}, arguments.reading));
  return std::move(programs->front());
}

// A job has no graph that could be changed or drawn.
Result<void> run_job_memory(const MemoryArguments& arguments) {
  const bool needs_graph = arguments.max_batch || !arguments.timeline.empty() ||
                           !arguments.strategy.empty() || !arguments.rewrites.empty();
  if (needs_graph) {
    return fail(ErrorCode::kImpossible,
                "expected a graph with --max-batch, --timeline, --strategy and rewrites, found a "
                "job (`layout` takes changes of jobs)",
                arguments.graph);
  }
  return print_job_memory(arguments.graph, arguments.gpu, arguments.given, arguments.json);
}

Result<void> run_memory(const MemoryArguments& arguments) {
  if (is_job(arguments.graph)) return run_job_memory(arguments);
  if (arguments.max_batch && arguments.gpu.empty()) {
    return fail(ErrorCode::kImpossible, "expected --gpu with --max-batch, found none");
  }
  PERFMODEL_TRY(gpu, chosen_gpu(arguments.gpu));
  PERFMODEL_TRY(read, read_program(arguments));
  const RecordedProgram& program = *read;
  if (program.trace) {
    PERFMODEL_TRY(recorded, memory_of_trace(arguments, program, std::move(*gpu)));
    return print_memory(arguments, *recorded);
  }
  PERFMODEL_TRY(made, answer_memory(arguments, program.graph, std::move(*gpu), rewrite_of));
  auto written =
      write_asked(arguments.timeline, [&] { return memory_timeline(*made, arguments.timeline); });
  if (!written) return written;
  return print_memory(arguments, *made);
}

}  // namespace

Command memory_command(CommandParser parent) {
  auto arguments = std::make_shared<MemoryArguments>();
  const CommandParser memory = parent.add_subcommand(
      "memory",
      "Whether a training step fits into a GPU, what takes its memory, the largest batch");
  memory
      .add_option("graph", arguments->graph,
                  "Execution graph of one step; a Kineto trace, whose own records of memory are "
                  "told; or a model's config.json, or a trainer's job file, as `layout` takes them")
      .required()
      .type_name("GRAPH");
  memory
      .add_option("--gpu", arguments->gpu,
                  "Name of a GPU (`perfpredict gpus`), or a file; without it, what the step needs "
                  "of any")
      .type_name("GPU");
  memory.add_flag("--max-batch", arguments->max_batch,
                  "Find the largest batch that fits, by rewriting the graph");
  memory.add_option("--largest", arguments->largest, "Tensors at the peak to list")
      .capture_default_str()
      .type_name("N");
  memory
      .add_option("--timeline", arguments->timeline,
                  "Write the bytes of each purpose over the step: a chart (.svg) or a table "
                  "(.csv)")
      .type_name("FILE");
  const Option world =
      memory.add_option("--world", arguments->zero.world, "Data-parallel ranks; the graph is one's")
          .check(at_least(1))
          .type_name("N");
  const Option strategy =
      memory
          .add_option("--strategy", arguments->strategy,
                      "How they share the model: ddp (all of it each, gradients in buckets) or "
                      "fsdp (a shard each)")
          .check(one_of({"ddp", "fsdp"}))
          .needs(world);
  memory
      .add_option("--zero", arguments->zero.stage,
                  "What they divide, without buckets of copies: 0 nothing, 1 optimizer state, 2 "
                  "gradients too, 3 weights too (fsdp)")
      .check(in_range(0, 3))
      .type_name("STAGE")
      .needs(world)
      .excludes(strategy);
  memory.add_flag("--expandable-segments", arguments->expandable_segments,
                  "PyTorch's allocator with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True");
  add_reading(memory, arguments->reading);
  memory.add_flag("--json", arguments->json, "Print one JSON document");
  add_rewrite_options(memory, arguments->rewrites, RewriteFlags::kFirst);
  memory.footer(kRewritesRule);
  memory.callback([arguments, memory] {
    complete(*arguments);
    for (const char* name : {"world", "zero"}) {
      const Option option = memory.option(std::string("--") + name);
      if (option.count() > 0) arguments->given[name] = option.values().back();
    }
  });
  return {memory, [arguments] { return run_memory(*arguments); }};
}

}  // namespace perfmodel::cli
