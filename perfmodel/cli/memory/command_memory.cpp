#include <memory>
#include <optional>
#include <string>

#include "cli/layout/layout_text.hpp"
#include "cli/rewrite/rewrite_flags.hpp"
#include "cli/shared/arguments.hpp"
#include "cli/shared/command.hpp"
#include "cli/shared/read_files.hpp"
#include "cli/shared/write_asked.hpp"
#include "jobs/read_job.hpp"
#include "layout/layout_results.hpp"
#include "memory/memory_results.hpp"
#include "memory_report.hpp"
#include "perfmodel/data_files.hpp"
#include "perfmodel/graph/read_execution_graph.hpp"
#include "perfmodel/graph/rewrites/training.hpp"
#include "perfmodel/result.hpp"
#include "rewrites/rewrite_options.hpp"
#include "terminal/command_parser.hpp"
#include "terminal/output.hpp"

namespace perfmodel::cli {
namespace {

Json memory_document(const JobReading& reading, const LayoutReport& report) {
  const LayoutPrediction& price = report.layouts.front().prediction;
  Json parts = Json::object();
  for (const auto& [key, words, bytes] : kLayoutMemoryParts) {
    parts[std::string(key)] = price.*bytes;
  }
  Json json = document(schemas::kMemory);
  json.update({{"gpu", report.gpu},
               {"gpus", report.gpus},
               {"fits", price.fits},
               {"peak_allocated_bytes", price.allocated_bytes},
               {"peak_reserved_bytes", price.reserved_bytes},
               {"device_bytes", price.device_bytes},
               {"activation_bytes", price.activation_bytes},
               {"by_purpose", std::move(parts)},
               {"layout", json_object(report.layouts.front().layout, kParallelLayoutFields)},
               {"job", job_json(reading)},
               {"warnings", report.warnings}});
  return json;
}

// The memory of the layout that a trainer's job file names, on the fullest rank. Errors: no GPU,
// and as read_job() and the pricer of layouts have them.
Result<void> print_job_memory(const std::string& file, const std::string& gpu,
                              const GivenFields& given, bool json) {
  if (gpu.empty()) return decline("expected --gpu with a job, found none");
  LayoutInputs inputs;
  inputs.reads_files = true;
  inputs.machine.gpu = gpu;
  for (const auto& [name, text] : given)
    set_field<LayoutAsk>(inputs, *find_layout_field(name), text);
  PERFMODEL_TRY(reading, read_job(file, given, inputs));
  PERFMODEL_TRY(report, named_layout_report(inputs, warn));
  if (json) return print_document(memory_document(*reading, *report));
  return print_report(job_text(*reading) + layout_memory_text(*report, bold_allowed()));
}

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
    return decline(
        "expected a graph with --max-batch, --timeline, --strategy and rewrites, found a job "
        "(`layout` takes changes of jobs)",
        arguments.graph);
  }
  return print_job_memory(arguments.graph, arguments.gpu, arguments.given, arguments.json);
}

Result<void> run_memory(const MemoryArguments& arguments) {
  if (is_job(arguments.graph)) return run_job_memory(arguments);
  if (arguments.max_batch && arguments.gpu.empty()) {
    return decline("expected --gpu with --max-batch, found none");
  }
  PERFMODEL_TRY(gpu, chosen_gpu(arguments.gpu));
  PERFMODEL_TRY(read, read_program(arguments));
  const RecordedProgram& program = *read;
  if (program.trace) {
    PERFMODEL_TRY(recorded, memory_of_trace(arguments, program, std::move(*gpu)));
    return print_memory(arguments, *recorded);
  }
  PERFMODEL_TRY(made, answer_memory(arguments, program.graph, std::move(*gpu), rewrite_of));
  PERFMODEL_TRY_TO(
      write_asked(arguments.timeline, [&] { return memory_timeline(*made, arguments.timeline); }));
  return print_memory(arguments, *made);
}

}  // namespace

Command memory_command(CommandParser parent) {
  auto arguments = std::make_shared<MemoryArguments>();
  const CommandParser memory = parent.add_subcommand(
      "memory",
      "Whether a training step fits into a GPU, what takes its memory, the largest batch");
  memory.add_argument(
      "graph GRAPH", arguments->graph,
      "Execution graph of one step; a Kineto trace, whose own records of memory are "
      "told; or a model's config.json, or a trainer's job file, as `layout` takes them");
  memory.add_option(
      "--gpu GPU", arguments->gpu,
      "Name of a GPU (`perfpredict gpus`), or a file; without it, what the step needs "
      "of any");
  memory.add_flag("--max-batch", arguments->max_batch,
                  "Find the largest batch that fits, by rewriting the graph");
  memory.add_option("--largest N", arguments->largest, "Tensors at the peak to list")
      .capture_default_str();
  memory.add_option("--timeline FILE", arguments->timeline,
                    "Write the bytes of each purpose over the step: a chart (.svg) or a table "
                    "(.csv)");
  const Option world =
      memory
          .add_option("--world N", arguments->zero.world, "Data-parallel ranks; the graph is one's")
          .check(at_least(1));
  const Option strategy =
      memory
          .add_option("--strategy", arguments->strategy,
                      "How they share the model: ddp (all of it each, gradients in buckets) or "
                      "fsdp (a shard each)")
          .check(one_of({"ddp", "fsdp"}))
          .needs(world);
  memory
      .add_option("--zero STAGE", arguments->zero.stage,
                  "What they divide, without buckets of copies: 0 nothing, 1 optimizer state, 2 "
                  "gradients too, 3 weights too (fsdp)")
      .check(in_range(0, 3))
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
