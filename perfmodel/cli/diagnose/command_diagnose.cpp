#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "base/progress_bar.hpp"
#include "cli/layout/layout_arguments.hpp"
#include "cli/layout/layout_text.hpp"
#include "cli/shared/arguments.hpp"
#include "cli/shared/command.hpp"
#include "cli/shared/field_flags.hpp"
#include "cli/shared/overheads_option.hpp"
#include "cli/shared/read_files.hpp"
#include "diagnose/diagnosis_question.hpp"
#include "diagnose/diagnosis_results.hpp"
#include "diagnose/run_models.hpp"
#include "jobs/read_job.hpp"
#include "terminal/command_parser.hpp"
#include "terminal/field_table.hpp"
#include "terminal/output.hpp"
#include "terminal/text_table.hpp"

namespace perfmodel::cli {
namespace {

struct DiagnoseArguments : LayoutArguments {
  DiagnosisAsk figures;
  std::string strategy, host;
  std::int64_t batch = 0;
  bool delay_allreduce = false;
  ReadOptions reading;
};

/// A run with the words that describe it, and the trace that it was read from.
struct DescribedRun {
  RunModel model;
  std::string words;
  std::string head = {};  ///< settings of a job
  std::shared_ptr<const Trace> trace = {};
};

/// The argument or --job names a trainer's job, or a flag says what only a layout has.
bool is_layout(const DiagnoseArguments& arguments) {
  const bool has_job = !arguments.job.empty() || is_job(arguments.model);
  return has_job || arguments.global_batch || arguments.model.empty();
}

Result<DescribedRun> layout_run(DiagnoseArguments arguments) {
  std::string head;
  const bool is_argument = arguments.job.empty() && is_job(arguments.model);
  const std::string file = is_argument ? std::exchange(arguments.model, "") : arguments.job;
  if (!file.empty()) {
    GivenFields given = arguments.given;
    if (!arguments.model.empty()) given["model"] = arguments.model;
    PERFMODEL_TRY(reading, read_job(file, given, arguments));
    head = job_text(*reading);
  }
  PERFMODEL_TRY(report, named_layout_report(arguments, warn));
  PERFMODEL_TRY(predictor, layout_predictor(arguments.machine.gpu));
  const ParallelLayout& layout = report->layouts.front().layout;
  PERFMODEL_TRY(model, layout_run_model(*predictor, arguments.machine, report->job, layout));
  model->warnings = report->warnings;
  return DescribedRun{std::move(*model),
                      fmt::format("{} on {} {}: {}, batch {}, by {}", report->job.model.name,
                                  layout.gpus(), report->gpu, layout_words(layout),
                                  report->job.global_batch, software_words(*report)),
                      std::move(head)};
}

// Flags of layouts say nothing of a graph.
Result<void> refuse_layout_flags(const GivenFields& given) {
  constexpr std::string_view kOfGraphs[] = {"world", "sequence"};
  for (const auto& [name, value] : given) {
    if (std::ranges::find(kOfGraphs, name) != std::end(kOfGraphs)) continue;
    return decline(fmt::format("{}: expected a layout (--global-batch, or a job), found a graph",
                               flag_of(name)));
  }
  return {};
}

AskOptions graph_options(const DiagnoseArguments& arguments) {
  AskOptions asked{.batch = arguments.batch,
                   .sequence = arguments.sequence.value_or(0),
                   .world = arguments.world.value_or(0),
                   .topology = arguments.machine.topology,
                   .delay_allreduce = arguments.delay_allreduce,
                   .host_scale = arguments.machine.host_scale};
  if (arguments.strategy == "ddp") asked.strategy = ParallelStrategy::kDdp;
  if (arguments.strategy == "fsdp") asked.strategy = ParallelStrategy::kFsdp;
  return asked;
}

Result<DescribedRun> graph_run(const DiagnoseArguments& arguments) {
  PERFMODEL_TRY_TO(refuse_layout_flags(arguments.given));
  PERFMODEL_TRY(programs, read_programs({arguments.model}, arguments.reading));
  const auto predictor =
      Predictor::load({.gpus = {arguments.machine.gpu}, .overheads = arguments.host});
  if (!predictor) return Unexpected{predictor.error()};
  const AskOptions asked = graph_options(arguments);
  std::shared_ptr<const Trace> trace = programs->front().trace;
  PERFMODEL_TRY(model, graph_run_model(*predictor, std::move(programs->front()),
                                       arguments.machine.gpu, asked));
  const std::int64_t world = model->setting.world, batch = model->setting.batch;
  std::string words = fmt::format("{}, batch {}, on {} {}{}", file_name(arguments.model), batch,
                                  world, arguments.machine.gpu,
                                  arguments.strategy.empty() ? "" : ", " + arguments.strategy);
  return DescribedRun{std::move(*model), std::move(words), {}, std::move(trace)};
}

// Figures of flags, and the terms of a trace: --trace, else the trace that is diagnosed.
Result<AskedFigures> figures_of(const DiagnoseArguments& arguments, const DescribedRun& run) {
  PERFMODEL_TRY(asked, asked_figures(arguments.figures, run.model));
  std::vector<RunFigure>& figures = asked->figures;
  std::optional<Trace> read;
  if (!arguments.figures.trace.empty()) {
    PERFMODEL_TRY(trace, read_trace_file(arguments.figures.trace, arguments.reading));
    read = std::move(*trace);
  }
  const Trace* const trace = read ? &*read : run.trace.get();
  if (!trace) return asked;
  const bool has_step = std::ranges::any_of(
      figures, [](const RunFigure& one) { return one.what == RunMeasure::kStep; });
  PERFMODEL_TRY(terms, figures_of_trace(*trace, !has_step));
  figures.insert(figures.end(), terms->begin(), terms->end());
  return asked;
}

std::string diagnosis_text(const DescribedRun& run, const RunDiagnosis& found, bool bold) {
  TextList list;
  for (const std::string& warning : found.warnings) list.row("warning", warning);
  list.row("run", run.words);
  for (const CheckedFigure& figure : found.figures) list.row("measured", figure_words(figure));
  list.row("verdict", verdict_words(found));
  std::string text = run.head + list.text();
  if (found.is_normal) return text;
  constexpr double kSeldom = 0.005;
  std::vector<CauseFinding> likely;
  for (const CauseFinding& one : found.causes) {
    if (one.probability >= kSeldom) likely.push_back(one);
  }
  text += "\n" + field_table(likely, kCauseFields, {"cause", "probability", "sentence"}).text(bold);
  TextList next;
  next.fact("next", next_words(found));
  next.fact("left out", fmt::format("{}", fmt::join(found.left_out, "; ")));
  return text + "\n" + next.text();
}

Result<void> run_diagnose(const DiagnoseArguments& arguments) {
  PERFMODEL_TRY(run, is_layout(arguments) ? layout_run(arguments) : graph_run(arguments));
  ProgressBar bar("diagnose", 0, ProgressBar::Unit::kTries);
  run->model.ask = [&bar, ask = run->model.ask](const RunChange& change, const RunSetting& at) {
    bar.advance();
    return ask(change, at);
  };
  PERFMODEL_TRY(figures, figures_of(arguments, *run));
  auto found = diagnose(run->model, figures->figures);
  bar.finish();
  if (!found) return Unexpected{found.error()};
  found->warnings.insert(found->warnings.end(), figures->warnings.begin(), figures->warnings.end());
  if (!arguments.json) return print_report(diagnosis_text(*run, *found, bold_allowed()));
  Json json = {{"run", run->words}};
  json.update(diagnosis_json(*found));
  return print_document(schemas::kDiagnose, json);
}

}  // namespace

Command diagnose_command(CommandParser parent) {
  auto arguments = std::make_shared<DiagnoseArguments>();
  const CommandParser app = parent.add_subcommand(
      "diagnose",
      "Is that speed normal, and if not, why: causes of a slow run by their likelihood");
  add_layout_question(app, *arguments);
  app.option("--gpu").type_name("GPU");
  for (const DiagnosisField& field : diagnosis_fields()) {
    add_field(app, field, arguments->figures);
  }
  for (const char* flag : {"--measured", "--measured-step"}) app.option(flag).take_all();
  app.add_option("--batch N", arguments->batch, "Samples of one GPU's step (the graph's)")
      .check(at_least(1));
  app.add_option("--strategy", arguments->strategy, "Run the graph on --world GPUs: ddp or fsdp")
      .check(one_of({"ddp", "fsdp"}));
  app.add_flag("--delay-allreduce", arguments->delay_allreduce,
               "DDP reduces all gradients after the backward pass (Apex)");
  add_overheads_option(app, arguments->host, kOverheadsHelp);
  add_reading(app, arguments->reading);
  app.add_flag("--json", arguments->json, "Print one JSON document");
  app.footer(
      "MODEL may be an execution graph, a Kineto trace or a model of `build`, too; with "
      "--global-batch\nit is a layout.\n"
      "perfpredict diagnose llama3-8b --gpu h100 --world 8 --global-batch 64 --measured "
      "40000tokens/s\n"
      "perfpredict diagnose gpt2 --gpu a100-80gb --batch 8 --measured-step 2s --memory-gb 30");
  app.callback([arguments, app] { arguments->given = given_fields(app); });
  return {app, [arguments] { return run_diagnose(*arguments); }};
}

}  // namespace perfmodel::cli
