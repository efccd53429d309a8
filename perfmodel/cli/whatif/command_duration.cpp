#include <fmt/format.h>

#include <memory>

#include "cli/shared/arguments.hpp"
#include "cli/shared/command.hpp"
#include "cli/shared/field_flags.hpp"
#include "cli/shared/kernel_models_option.hpp"
#include "cli/shared/overheads_option.hpp"
#include "cli/shared/read_files.hpp"
#include "terminal/command_parser.hpp"
#include "terminal/field_table.hpp"
#include "terminal/output.hpp"
#include "whatif/job_duration_results.hpp"

namespace perfmodel::cli {
namespace {

struct DurationArguments : JobDurationQuestion {
  std::string graph, overheads, strategy, topology, models = "learned";
  std::optional<std::int64_t> batch, sequence;
  double host_scale = 1;
  ReadOptions reading;
  bool json = false;
};

using Asked = DurationArguments;
using DurationField = Field<Asked, std::vector<std::string>, std::vector<std::int64_t>>;

constexpr FieldRange kSize = {1, 1LL << 40};

constexpr DurationField kDurationFields[] = {
    {"gpus", &Asked::gpus, "Kinds of GPUs (default: all)", "GPU,..."},
    {"worlds",
     &Asked::worlds,
     "Numbers of GPUs of the job, each with the whole batch",
     "N,...",
     {1, 1 << 20}},
    {"samples", &Asked::samples, "Samples of the whole job", "N"},
    {"sequence", &Asked::sequence, "Tokens per sample (the graph's)", "N", kSize},
    {"tokens",
     &Asked::tokens,
     "Tokens of the whole job, of --sequence each sample",
     "N",
     {},
     {},
     nullptr,
     "sequence"},
    {"batch", &Asked::batch, "Samples per step of one GPU (the graph's)", "N", kSize},
    {"strategy", &Asked::strategy, "How several GPUs share the work (ddp)", "NAME", {}, "ddp fsdp"},
    {"topology", &Asked::topology, "How the GPUs are connected (the usual node)", "NAME"}};

std::string duration_text(const std::vector<JobDuration>& rows, bool has_length) {
  std::vector<std::string_view> columns = {"gpu",    "world",         "step_us",
                                           "low_us", "samples_per_s", "fits"};
  if (has_length) columns.insert(columns.end(), {"duration_s", "error"});
  std::string text = field_table(rows, kJobDurationFields, columns).text(bold_allowed());
  for (const JobDuration& row : rows) {
    if (row.error) text += fmt::format("  {} x {}: {}\n", row.world, row.gpu, row.error->message);
  }
  return text;
}

Result<void> run_duration(const DurationArguments& arguments) {
  JobDurationQuestion question = arguments;
  question.ask.batch = arguments.batch.value_or(0);
  question.ask.sequence = arguments.sequence.value_or(0);
  question.ask.topology = arguments.topology;
  question.ask.host_scale = arguments.host_scale;
  if (!arguments.strategy.empty()) {
    question.ask.strategy =
        arguments.strategy == "fsdp" ? ParallelStrategy::kFsdp : ParallelStrategy::kDdp;
  }
  question.threads = 0;
  PERFMODEL_TRY(predictor, Predictor::load({.gpus = arguments.gpus,
                                            .models = arguments.models,
                                            .overheads = arguments.overheads}));
  PERFMODEL_TRY(programs, read_programs({arguments.graph}, arguments.reading));
  PERFMODEL_TRY(graph, predictor->prepare(std::move(programs->front())));
  PERFMODEL_TRY(rows, job_durations(*predictor, *graph, question));
  if (arguments.json) {
    return print_document(schemas::kDuration,
                          OrderedJson{{"graph", file_name(arguments.graph)},
                                      {"rows", json_list(*rows, kJobDurationFields)}});
  }
  return print_report(duration_text(*rows, arguments.samples || arguments.tokens));
}

}  // namespace

Command duration_command(CommandParser parent) {
  auto arguments = std::make_shared<DurationArguments>();
  const CommandParser app = parent.add_subcommand(
      "duration", "Throughput, fit and length of a training job on kinds and numbers of GPUs");
  app.add_argument("GRAPH", arguments->graph,
                   "An execution graph, a Kineto trace or a known model");
  for (const DurationField& field : kDurationFields) add_field<Asked>(app, field, *arguments);
  app.option("--samples").excludes(app.option("--tokens"));
  app.option("--worlds").capture_default_str();
  add_scale_host(app, arguments->host_scale);
  add_overheads_option(app, arguments->overheads, kOverheadsHelp);
  add_models_option(app, arguments->models);
  add_reading(app, arguments->reading);
  app.add_flag("--json", arguments->json, "Print one JSON document");
  return {app, [arguments] { return run_duration(*arguments); }};
}

}  // namespace perfmodel::cli
