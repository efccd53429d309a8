#include <fmt/format.h>

#include <memory>
#include <optional>

#include "cli/rewrite/rewrite_flags.hpp"
#include "cli/shared/anonymize_option.hpp"
#include "cli/shared/arguments.hpp"
#include "cli/shared/command.hpp"
#include "cli/shared/kernel_models_option.hpp"
#include "cli/shared/overheads_option.hpp"
#include "cli/shared/read_files.hpp"
#include "cli/trace/trace_output.hpp"
#include "measured_step_option.hpp"
#include "perfmodel/detail/timeline.hpp"
#include "perfmodel/graph/read_execution_graph.hpp"
#include "predict/report_prediction.hpp"
#include "prediction_report.hpp"
#include "terminal/command_parser.hpp"

namespace perfmodel::cli {
namespace {

struct PredictArguments : PredictionQuestion {
  std::string use_name = "all", strategy_name, timeline, chakra;
  std::shared_ptr<Anonymizer> pseudonyms;
  ReadOptions reading;
  bool json = false, full = false, burst = false, cuda_graphs = false, compiled = false;
  std::optional<std::size_t> top;
};

constexpr std::size_t kRowsOfFull = 10, kRowsOfAgainst = 8;
constexpr double kMostRanks = 1 << 20, kMostInterference = 1000;
constexpr double kLatestStartUs = 1e16;  // epoch stamps are 1.7e15

constexpr const char* kIterationsRule =
    "--iterations and --kernel-iterations count from 0; B is not included. Without "
    "--kernel-times,\n"
    "--iterations picks iterations of the graph. With --kernel-times it picks iterations of the\n"
    "trace, as --kernel-iterations does; give both to pick from the graph and from the trace.\n"
    "Files come first: a flag in front of them takes one value only.";

// What a job of unlike ranks has no answer to.
void check_mixed(const PredictArguments& arguments) {
  const auto refuse = [](bool given, const char* flag) {
    if (!given) return;
    bad_usage(flag,
              "expected ranks that are alike, found several GPUs or times "
              "and links per rank");
  };
  refuse(!arguments.kernel_times.empty(), "--kernel-times");
  refuse(!arguments.against.empty(), "--against");
  refuse(!arguments.rank_start_us.empty(), "--rank-start");
  refuse(!arguments.chakra.empty(), "--chakra");
  refuse(arguments.measured.us.has_value(), "--measured-step");
  refuse(arguments.iterations.has_value(), "--iterations");
  refuse(arguments.strategy_name == "fsdp", "--strategy fsdp");
  if (arguments.overheads.size() > 1) {
    bad_usage("--overheads", "expected one for all ranks, found several");
  }
}

void check_counts(const PredictArguments& arguments) {
  if (arguments.has_unlike_ranks()) check_mixed(arguments);
  const std::size_t graphs = arguments.graphs.size();
  if (graphs == 0) missing_argument("GRAPH");
  const auto refuse = [](bool wrong, const char* flag, const std::string& message) {
    if (wrong) bad_usage(flag, message);
  };
  const auto check = [&](const char* flag, std::size_t count, std::size_t for_all,
                         const char* expected) {
    refuse(count > for_all && count != graphs, flag,
           fmt::format("expected {} per graph ({}), found {}", expected, graphs, count));
  };
  const std::string several =
      fmt::format("expected the graph of one rank, found {} graphs", graphs);
  refuse(arguments.measured.us && graphs > 1, "--measured-step", several);
  check("--overheads", arguments.overheads.size(), 1, "one file for all graphs or one");
  check("--kernel-times", arguments.kernel_times.size(), 1, "one file for all graphs or one");
  check("--against", arguments.against.size(), 0, "one trace");
  check("--rank-start", arguments.rank_start_us.size(), 0, "one start");
  const std::string& strategy = arguments.strategy_name;
  if (!strategy.empty() && arguments.world == 0 && !arguments.names_several_gpus()) {
    missing_argument("--world");
  }
  refuse(strategy == "ddp" && arguments.unit_mb, "--unit-mb",
         "expected --strategy fsdp, found ddp");
  refuse(strategy == "fsdp" && arguments.bucket_mb, "--bucket-mb",
         "expected --strategy ddp, found fsdp");
  refuse(!strategy.empty() && graphs > 1, "--strategy", several);
}

// What several flags say together.
void complete(PredictArguments& arguments) {
  arguments.use = arguments.use_name == "comm" ? KernelTimes::Use::kComm : KernelTimes::Use::kAll;
  if (arguments.strategy_name == "ddp") arguments.strategy = ParallelStrategy::kDdp;
  if (arguments.strategy_name == "fsdp") arguments.strategy = ParallelStrategy::kFsdp;
  if (arguments.compiled) arguments.launching = Launching::kCompiled;
  if (arguments.cuda_graphs) arguments.launching = Launching::kCudaGraphs;
  arguments.sustained = !arguments.burst;
  arguments.keep_calls = !arguments.timeline.empty();
  arguments.keep_chakra = !arguments.chakra.empty();
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
  auto report = report_of(arguments);
  if (!report) return Unexpected{report.error()};
  if (!arguments.timeline.empty()) {
    std::vector<const Prediction*> ranks;
    std::vector<TimelineTitle> titles;
    for (const RankPrediction& rank : report->ranks) {
      ranks.push_back(&rank.prediction);
      titles.push_back(
          {.graph = graph_title(rank), .gpu = rank.mixed ? rank.mixed->gpu : report->gpu.title});
    }
    const auto written = write_timeline(ranks, titles, report->slowest(), arguments.timeline);
    if (!written) return written;
  }
  if (!arguments.chakra.empty()) {
    // The graph of one rank, on --world of them that do the same.
    const bool alone = report->chakra.size() == 1 && arguments.world > 1;
    const std::size_t copies = alone ? static_cast<std::size_t>(arguments.world) : 1;
    if (auto written = write_chakra(report->chakra, arguments.chakra, {.copies = copies});
        !written) {
      return written;
    }
  }
  if (arguments.json) return print_document(prediction_json(*report));
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

void add_mixed_flags(CommandParser app, UnlikeRanks& unlike) {
  app.add_option("--host-scale", unlike.host_scales,
                 "Multiplies the host's own time: one value, or one per rank")
      .delimiter(',')
      .check(between(1 / kMostHostScale, kMostHostScale))
      .type_name("X,...");
  app.add_option("--slowdown", unlike.slowdowns,
                 "Multiplies all times of a rank but those of collectives: one value, or one per "
                 "rank")
      .delimiter(',')
      .check(between(1 / kMostHostScale, kMostHostScale))
      .type_name("X,...");
  app.add_option("--link-gb-per-s", unlike.links_gb_per_s,
                 "What a rank's link to the others carries in one direction, where that is less "
                 "than the topology's: one value, or one per rank")
      .delimiter(',')
      .check(between(1e-6, 1e6))
      .type_name("X,...");
  const Option straggler = app.add_option("--straggler", unlike.straggler,
                                          "Distribution of a rank's times, drawn for each step: "
                                          "lognormal:DEVIATION, uniform:SHARE, exponential:SHARE, "
                                          "pause:PROBABILITY:FACTOR")
                               .type_name("TEXT");
  app.add_option("--seed", unlike.seed, "Seed of the stragglers (default: 0)")
      .needs(straggler)
      .type_name("N");
  app.add_option("--draws", unlike.draws, "Steps that are drawn (default: 1000)")
      .check(between(1, 1e7))
      .needs(straggler)
      .type_name("N");
}

}  // namespace

Command predict_command(CommandParser parent) {
  auto arguments = std::make_shared<PredictArguments>();
  const CommandParser app =
      parent.add_subcommand("predict", "Per-batch time of a graph on a GPU, and why");
  app.add_option("GRAPH", arguments->graphs,
                 "Execution graphs (PyTorch ET, .json or .json.gz) or Kineto traces; several are "
                 "ranks of one job")
      .type_name("");
  app.add_option("--gpu", arguments->gpu,
                 "Name of a known GPU (see `gpus`), or a GPU file; NAME:COUNT,... or one name per "
                 "rank for a job on several kinds")
      .required()
      .type_name("NAME");
  add_overheads_option(app, arguments->overheads, kOverheadsHelp + ", or one per graph");
  add_as_recorded(app, arguments->as_recorded);
  add_measured_step(app, arguments->measured, add_scale_host(app, arguments->host_scale));
  add_mixed_flags(app, arguments->unlike);
  const Option times =
      app.add_option("--kernel-times", arguments->kernel_times,
                     "Take durations from a trace of the same program: one for all "
                     "graphs or one per graph")
          .type_name("TRACE");
  app.add_option("--use", arguments->use_name,
                 "What to take from it: collectives only, or everything")
      .check(one_of({"comm", "all"}))
      .capture_default_str()
      .needs(times);
  add_window(app, "--iterations", arguments->iterations, "Iterations to use (see below)");
  add_window(app, "--kernel-iterations", arguments->kernel_iterations,
             "Iterations of the trace to take durations from")
      .needs(times);
  const Option against =
      app.add_option("--against", arguments->against,
                     "Print the prediction beside what a trace of the same program "
                     "measured, one trace per graph")
          .type_name("TRACE");
  add_window(app, "--against-iterations", arguments->against_iterations,
             "Iterations of that trace to compare with")
      .needs(against);
  app.add_option("--world", arguments->world,
                 "Number of ranks, for --strategy and for collectives whose group size is not "
                 "recorded")
      .check(between(1, kMostRanks))
      .type_name("N");
  app.add_option("--topology", arguments->topology,
                 "How GPUs and nodes are connected: a name of data/topologies/ or a file "
                 "(default: the usual node of this GPU)")
      .type_name("NAME");
  const Option strategy =
      app.add_option("--strategy", arguments->strategy_name,
                     "Run the graph of one rank on --world ranks: ddp (bucketed "
                     "all-reduce) or fsdp (sharded parameters)")
          .check(one_of({"ddp", "fsdp"}));
  app.add_option("--bucket-mb", arguments->bucket_mb,
                 "DDP: MiB of gradients per all-reduce (default 25, the first one 1)")
      .check(at_least(0))
      .needs(strategy)
      .type_name("MIB");
  app.add_option("--unit-mb", arguments->unit_mb, "FSDP: MB of parameters per unit (default 100)")
      .check(at_least(0))
      .needs(strategy)
      .type_name("MB");
  app.add_option(
         "--interference", arguments->interference,
         "Multiply the time of collectives on the wire by this: compute beside them slows it")
      .check(between(1, kMostInterference))
      .capture_default_str()
      .type_name("X");
  app.add_option("--rank-start", arguments->rank_start_us,
                 "Time at which each rank begins the step, in microseconds on one clock: predicts "
                 "this one step instead of the steady state")
      .check(between(-kLatestStartUs, kLatestStartUs))
      .type_name("US");
  app.add_flag("--missing-collectives", arguments->missing_collectives,
               "Go on where a rank lacks a collective that others have");
  add_models_option(app, arguments->models);
  const Option captured = app.add_flag("--cuda-graphs", arguments->cuda_graphs, kCudaGraphsHelp);
  app.add_flag("--compiled", arguments->compiled, kCompiledHelp).excludes(captured);
  app.add_flag("--burst", arguments->burst,
               "Ignore the board's power limit: every kernel runs as fast as a short burst");
  app.add_option(
         "--timeline", arguments->timeline,
         "Write ranks, threads and streams, launches and the critical path as a Chrome trace, for "
         "ui.perfetto.dev")
      .type_name("FILE");
  app.add_option(
         "--chakra", arguments->chakra,
         "Write Chakra traces for network simulators, PREFIX.N.et, one per rank: of the graphs, "
         "or of --world ranks that all run the one graph")
      .type_name("PREFIX");
  app.add_flag("--full", arguments->full,
               "Print everything: host overheads and phases, all kernels, the critical path");
  app.add_option("--top", arguments->top, "Rows of the long tables (default 5, with --full 10)")
      .check(at_least(0))
      .type_name("N");
  add_reading(app, arguments->reading);
  add_anonymize(app, arguments->pseudonyms);
  app.add_flag("--json", arguments->json, "Print one JSON document");
  app.footer(kIterationsRule);
  app.callback([arguments] {
    for (auto* files : {&arguments->kernel_times, &arguments->against, &arguments->overheads}) {
      return_swallowed(arguments->graphs, *files, 1);
    }
    check_counts(*arguments);
    complete(*arguments);
  });
  return {app, [arguments] { return run_predict(*arguments); }};
}

}  // namespace perfmodel::cli
