#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <span>

#include "arguments.hpp"
#include "command.hpp"
#include "memory_of_trace.hpp"
#include "memory_report.hpp"
#include "perfmodel/data_files.hpp"
#include "perfmodel/graph/read_execution_graph.hpp"
#include "perfmodel/graph/rewrites/resize.hpp"
#include "perfmodel/graph/rewrites/training.hpp"
#include "read_files.hpp"
#include "rewrite_options.hpp"
#include "terminal/cli11.hpp"
#include "terminal/output.hpp"

namespace perfmodel::cli {
namespace {

struct MemoryArguments {
  std::string graph, gpu, timeline, strategy;
  std::int64_t world = 1;
  std::optional<int> zero;
  std::vector<NamedRewrite> rewrites;
  ReadOptions reading;
  std::size_t largest = 10;
  bool json = false, max_batch = false, expandable_segments = false;
};

Result<std::optional<Gpu>> chosen_gpu(const std::string& name) {
  if (name.empty()) return std::nullopt;
  const auto data = find_data_folder();
  if (!data) return Unexpected{data.error()};
  auto gpu = find_gpu(name, *data / "gpus");
  if (!gpu) return Unexpected{gpu.error()};
  return std::move(*gpu);
}

// Ops whose tensors are not counted.
std::string uncounted_text(const MemoryReport& report) {
  constexpr std::size_t kNamed = 5;
  const auto& names = report.without_sizes;
  const std::size_t more = names.size() - std::min(kNamed, names.size());
  return fmt::format(
      "tensors of {}{} have no storage or no size in the graph: they are in the upper bound alone",
      fmt::join(std::span(names).first(names.size() - more), ", "),
      more > 0 ? fmt::format(" and {} more ops", more) : "");
}

// What each rank divides with the others. DDP divides nothing, but keeps buckets: a rewrite.
ZeroSharding sharding(const MemoryArguments& arguments) {
  const int stage = arguments.strategy == "fsdp" ? 3 : arguments.zero.value_or(0);
  return {.world = arguments.world, .stage = stage};
}

std::vector<NamedRewrite> all_rewrites(const MemoryArguments& arguments) {
  std::vector<NamedRewrite> rewrites = arguments.rewrites;
  if (arguments.strategy == "ddp") {
    rewrites.push_back({"strategy ddp", [world = arguments.world](const ExecutionGraph& graph) {
                          return rewrite_data_parallel(graph, {.world_size = world});
                        }});
  }
  return rewrites;
}

// What it would cost to fit, on one GPU, and when ops run.
Result<void> add_prices(const MemoryArguments& arguments, MemoryAnswer& made) {
  const bool lacks = made.gpu && !made.report.memory.fits() && arguments.world == 1;
  const bool wants_times = made.gpu && !arguments.timeline.empty();
  if (!lacks && !wants_times) return {};
  auto prices = MemoryPrices::load(*made.gpu);
  if (!prices) return Unexpected{prices.error()};
  if (lacks) {
    auto ways = prices->ways_to_fit(made.graph);
    if (!ways) return Unexpected{ways.error()};
    made.ways = std::move(*ways);
  }
  if (wants_times) {
    auto starts = prices->op_starts(made.graph);
    if (!starts) return Unexpected{starts.error()};
    made.op_starts = std::move(*starts);
  }
  return {};
}

// A trace tells what it recorded itself, and no more.
Result<MemoryOfTrace> answer_of_trace(const MemoryArguments& arguments,
                                      const RecordedProgram& program, std::optional<Gpu> gpu) {
  const auto check = [&](bool asked, std::string_view purpose) {
    return asked ? check_tensors_known(program.graph, purpose) : Result<void>();
  };
  for (const NamedRewrite& rewrite : all_rewrites(arguments)) {
    if (auto known = check(true, rewrite.name); !known) return Unexpected{known.error()};
  }
  if (auto known = check(arguments.world > 1, "--world"); !known) {
    return Unexpected{known.error()};
  }
  if (auto known = check(arguments.max_batch, "--max-batch"); !known) {
    return Unexpected{known.error()};
  }
  if (auto known = check(!arguments.timeline.empty(), "--timeline"); !known) {
    return Unexpected{known.error()};
  }
  return memory_of_trace(*program.trace, std::move(gpu));
}

Result<MemoryAnswer> answer(const MemoryArguments& arguments, const ExecutionGraph& source,
                            std::optional<Gpu> gpu) {
  MemoryAnswer made{
      .graph_file = file_name(arguments.graph), .gpu = std::move(gpu), .warnings = source.warnings};
  const auto in_file = [&](Error error) {
    error.file = arguments.graph;
    return Unexpected{std::move(error)};
  };
  auto graph = apply_rewrites(source, all_rewrites(arguments));
  if (!graph) return in_file(graph.error());
  made.graph = std::move(*graph);
  made.zero = sharding(arguments);
  made.report = memory_report(made.graph, made.gpu ? &*made.gpu : nullptr,
                              {.largest = arguments.largest,
                               .curve = !arguments.timeline.empty(),
                               .expandable_segments = arguments.expandable_segments,
                               .zero = made.zero});
  if (!made.report.without_sizes.empty()) made.warnings.push_back(uncounted_text(made.report));
  if (const auto batch = batch_size(made.graph)) made.batch = *batch;
  if (const auto bytes = bytes_per_sample(made.graph)) made.bytes_per_sample = *bytes;
  if (arguments.max_batch) {
    auto most = largest_batch(made.graph, *made.gpu, arguments.expandable_segments, made.zero);
    if (!most) return in_file(most.error());
    made.most = std::move(*most);
  }
  if (auto priced = add_prices(arguments, made); !priced) return in_file(priced.error());
  return made;
}

Result<void> run_memory(const MemoryArguments& arguments) {
  if (arguments.max_batch && arguments.gpu.empty()) {
    return fail(ErrorCode::kImpossible, "expected --gpu with --max-batch, found none");
  }
  auto gpu = chosen_gpu(arguments.gpu);
  if (!gpu) return Unexpected{gpu.error()};
  const auto programs = read_programs({arguments.graph}, arguments.reading);
  if (!programs) return Unexpected{programs.error()};
  const RecordedProgram& program = programs->front();
  if (program.trace) {
    const auto measured = answer_of_trace(arguments, program, std::move(*gpu));
    if (!measured) return Unexpected{measured.error()};
    return arguments.json ? print_document(memory_json(*measured))
                          : print_report(memory_text(*measured));
  }
  const auto made = answer(arguments, program.graph, std::move(*gpu));
  if (!made) return Unexpected{made.error()};
  if (!arguments.timeline.empty()) {
    auto drawn = memory_timeline(*made, arguments.timeline);
    if (!drawn) return Unexpected{drawn.error()};
    if (auto written = write_file(arguments.timeline, *drawn); !written) return written;
  }
  if (arguments.json) return print_document(memory_json(*made));
  return print_report(memory_text(*made));
}

}  // namespace

Command memory_command(CLI::App& parent) {
  auto arguments = std::make_shared<MemoryArguments>();
  CLI::App* memory = parent.add_subcommand(
      "memory",
      "Whether a training step fits into a GPU, what takes its memory, the largest batch");
  memory
      ->add_option(
          "graph", arguments->graph,
          "Execution graph of one step, or a Kineto trace, whose own records of memory are "
          "told")
      ->required()
      ->type_name("GRAPH");
  memory
      ->add_option("--gpu", arguments->gpu,
                   "Name of a GPU (`perfpredict gpus`), or a file; without it, what the step needs "
                   "of any")
      ->type_name("GPU");
  memory->add_flag("--max-batch", arguments->max_batch,
                   "Find the largest batch that fits, by rewriting the graph");
  memory->add_option("--largest", arguments->largest, "Tensors at the peak to list")
      ->capture_default_str()
      ->type_name("N");
  memory
      ->add_option("--timeline", arguments->timeline,
                   "Write the bytes of each purpose over the step: a chart (.svg) or a table "
                   "(.csv)")
      ->type_name("FILE");
  auto* world =
      memory->add_option("--world", arguments->world, "Data-parallel ranks; the graph is one's")
          ->check(at_least(1))
          ->type_name("N");
  auto* strategy =
      memory
          ->add_option("--strategy", arguments->strategy,
                       "How they share the model: ddp (all of it each, gradients in buckets) or "
                       "fsdp (a shard each)")
          ->check(CLI::IsMember({"ddp", "fsdp"}))
          ->needs(world);
  memory
      ->add_option("--zero", arguments->zero,
                   "What they divide, without buckets of copies: 0 nothing, 1 optimizer state, 2 "
                   "gradients too, 3 weights too (fsdp)")
      ->check(CLI::Range(0, 3))
      ->type_name("STAGE")
      ->needs(world)
      ->excludes(strategy);
  memory->add_flag("--expandable-segments", arguments->expandable_segments,
                   "PyTorch's allocator with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True");
  add_rewrite_options(*memory, arguments->rewrites);
  add_reading(*memory, arguments->reading);
  memory->add_flag("--json", arguments->json, "Print one JSON document");
  memory->footer("Rewrites are applied in the order of the flags, which may be repeated.");
  return {memory, [arguments] { return run_memory(*arguments); }};
}

}  // namespace perfmodel::cli
