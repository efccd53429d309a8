#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "cli/rewrite/rewrite_flags.hpp"
#include "cli/shared/anonymize_option.hpp"
#include "cli/shared/arguments.hpp"
#include "cli/shared/command.hpp"
#include "cli/shared/field_flags.hpp"
#include "cli/shared/kernel_models_option.hpp"
#include "cli/shared/measured_step_option.hpp"
#include "cli/shared/overheads_option.hpp"
#include "cli/shared/read_files.hpp"
#include "comparison_text.hpp"
#include "perfmodel/detail/timeline.hpp"
#include "perfmodel/graph/read_execution_graph.hpp"
#include "predict/prediction_fields.hpp"
#include "predict/prediction_json.hpp"
#include "predict/report_prediction.hpp"
#include "prediction_report.hpp"
#include "rewrites/rewrite_options.hpp"
#include "terminal/command_parser.hpp"
#include "terminal/output.hpp"

namespace perfmodel::cli {
namespace {

struct PredictArguments : PredictionQuestion {
  std::string use_name = "all", strategy_name, timeline, chakra, launch = "eager";
  std::shared_ptr<Anonymizer> pseudonyms;
  ReadOptions reading;
  bool json = false, full = false, burst = false, cuda_graphs = false, compiled = false;
  std::optional<std::size_t> top;
};

constexpr std::size_t kRowsOfFull = 10, kRowsOfAgainst = 8;

constexpr const char* kRules =
    "--iterations and --kernel-iterations count from 0; B is not included. Without "
    "--kernel-times,\n"
    "--iterations picks iterations of the graph. With --kernel-times it picks iterations of the\n"
    "trace, as --kernel-iterations does; give both to pick from the graph and from the trace.\n"
    "Files come first: a flag in front of them takes one value only.\n";

// Derives options from several flags together.
void complete(PredictArguments& arguments) {
  arguments.use = arguments.use_name == "comm" ? KernelTimes::Use::kComm : KernelTimes::Use::kAll;
  if (arguments.strategy_name == "ddp") arguments.strategy = ParallelStrategy::kDdp;
  if (arguments.strategy_name == "fsdp") arguments.strategy = ParallelStrategy::kFsdp;
  if (arguments.compiled || arguments.launch == "compiled") {
    arguments.launching = Launching::kCompiled;
  }
  if (arguments.cuda_graphs || arguments.launch == "graphs") {
    arguments.launching = Launching::kCudaGraphs;
  }
  arguments.sustained = !arguments.burst;
  arguments.keep_calls = !arguments.timeline.empty();
  arguments.keep_chakra = !arguments.chakra.empty();
  if (!arguments.full && !arguments.json) arguments.what_if_steps = 0;  // the screen shows none
  arguments.anonymizer = arguments.pseudonyms.get();
}

Result<PredictionReport> report_of(const PredictArguments& arguments) {
  const auto read_ranks = [&](const std::vector<std::string>& files) {
    const auto once =
        arguments.has_unlike_ranks() ? Result<void>() : all_different(arguments.graphs);
    return once ? read_programs(files, arguments.reading, arguments.anonymizer)
                : Unexpected{once.error()};
  };
  const auto read_trace = [&](const std::string& file) {
    return read_trace_file(file, arguments.reading, arguments.anonymizer);
  };
  return report_prediction(arguments, {.programs = read_ranks, .trace = read_trace});
}

Result<void> run_predict(const PredictArguments& arguments) {
  PERFMODEL_TRY(report, report_of(arguments));
  if (!arguments.timeline.empty()) {
    std::vector<const Prediction*> ranks;
    std::vector<TimelineTitle> titles;
    for (const RankPrediction& rank : report->ranks) {
      ranks.push_back(&rank.prediction);
      titles.push_back(
          {.graph = graph_title(rank), .gpu = rank.mixed ? rank.mixed->gpu : report->gpu.title});
    }
    PERFMODEL_TRY_TO(write_timeline(ranks, titles, report->slowest(), arguments.timeline));
  }
  if (!arguments.chakra.empty()) {
    // The graph of one rank, on --world of them that do the same.
    const bool alone = report->chakra.size() == 1 && arguments.world > 1;
    ChakraJobOptions job = report->chakra_groups;
    job.copies = alone ? static_cast<std::size_t>(arguments.world) : 1;
    PERFMODEL_TRY_TO(write_chakra(report->chakra, arguments.chakra, job));
  }
  if (arguments.json) return print_document(schemas::kPrediction, prediction_json(*report));
  const bool bold = bold_allowed();
  std::string text = arguments.full
                         ? full_prediction_text(*report, arguments.top.value_or(kRowsOfFull), bold)
                         : short_prediction_text(*report, arguments.top, bold);
  for (const RankPrediction& rank : report->ranks) {
    if (!rank.against) continue;
    text +=
        against_text(*rank.against, rank.against_file,
                     arguments.top.value_or(arguments.full ? kRowsOfFull : kRowsOfAgainst), bold);
  }
  return print_report(text);
}

/// Adds the fields from `first` to `last`, in the order of their table.
void add_fields(CommandParser app, PredictionQuestion& question, std::string_view first,
                std::string_view last) {
  const auto fields = prediction_fields();
  for (auto field = std::ranges::find(fields, first, &PredictionField::name);; ++field) {
    add_field(app, *field, question);
    if (field->name == last) return;
  }
}

}  // namespace

Command predict_command(CommandParser parent) {
  auto arguments = std::make_shared<PredictArguments>();
  const CommandParser app =
      parent.add_subcommand("predict", "Per-batch time of a graph on a GPU, and why");
  app.add_option("GRAPH", arguments->graphs,
                 "Execution graphs (PyTorch ET, .json or .json.gz) or Kineto traces; several are "
                 "ranks of one job");
  add_fields(app, *arguments, "gpu", "gpu");
  app.option("--gpu").required();
  add_overheads_option(app, arguments->overheads, kOverheadsHelp + ", or one per graph");
  add_as_recorded(app, arguments->as_recorded);
  add_measured_step(app, arguments->measured, add_scale_host(app, arguments->host_scale));
  for (const UnlikeRanksField& field : unlike_ranks_fields()) {
    add_field(app, field, arguments->unlike);
  }
  add_fields(app, *arguments, "kernel_times", "kernel_times");
  app.add_option("--use", arguments->use_name,
                 "What to take from it: collectives only, or everything")
      .check(one_of({"comm", "all"}))
      .capture_default_str()
      .needs(app.option("--kernel-times"));
  add_fields(app, *arguments, "iterations", "topology");
  app.add_option("--strategy", arguments->strategy_name,
                 "Run the graph of one rank on --world ranks: ddp (bucketed "
                 "all-reduce) or fsdp (sharded parameters)")
      .check(one_of({"ddp", "fsdp"}));
  add_fields(app, *arguments, "bucket_mb", "missing_collectives");
  app.option("--interference").capture_default_str();
  add_models_option(app, arguments->models);
  const Option captured = app.add_flag("--cuda-graphs", arguments->cuda_graphs, kCudaGraphsHelp);
  const Option compiled =
      app.add_flag("--compiled", arguments->compiled, kCompiledHelp).excludes(captured);
  app.add_option("--launch HOW", arguments->launch,
                 "How the host launches: eager (op by op), graphs (as --cuda-graphs) or compiled "
                 "(as --compiled)")
      .check(one_of({"eager", "graphs", "compiled"}))
      .capture_default_str()
      .excludes(captured)
      .excludes(compiled);
  app.add_flag("--burst", arguments->burst,
               "Ignore the board's power limit: every kernel runs as fast as a short burst");
  app.add_option(
      "--timeline FILE", arguments->timeline,
      "Write ranks, threads and streams, launches and the critical path as a Chrome trace, for "
      "ui.perfetto.dev");
  app.add_option(
      "--chakra PREFIX", arguments->chakra,
      "Write Chakra traces for network simulators, PREFIX.N.et, one per rank: of the graphs, "
      "of --world ranks that all run the one graph, or of --world ranks in --stages");
  app.add_flag("--full", arguments->full,
               "Print everything: host overheads and phases, all kernels, the critical path");
  app.add_option("--top N", arguments->top, "Rows of the long tables (default 5, with --full 10)")
      .check(at_least(0));
  add_reading(app, arguments->reading);
  add_anonymize(app, arguments->pseudonyms);
  app.add_flag("--json", arguments->json, "Print one JSON document");
  add_rewrite_options(app, arguments->rewrites, RewriteFlags::kFirst);
  app.footer(std::string(kRules) + kRewritesRule);
  app.callback([arguments] {
    for (auto* files : {&arguments->kernel_times, &arguments->against, &arguments->overheads}) {
      return_swallowed(arguments->graphs, *files, 1);
    }
    complete(*arguments);
    const auto problem = problem_of(*arguments);
    if (!problem) return;
    if (problem->message.empty()) missing_argument(problem->flag);
    bad_usage(problem->flag, problem->message);
  });
  return {app, [arguments] { return run_predict(*arguments); }};
}

}  // namespace perfmodel::cli
