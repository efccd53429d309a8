#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "base/progress_bar.hpp"
#include "cli/shared/command.hpp"
#include "cli/shared/interrupt_guard.hpp"
#include "cli/shared/open_team.hpp"
#include "cli/shared/write_asked.hpp"
#include "layout/deadline_search.hpp"
#include "layout/layout_traces.hpp"
#include "layout_arguments.hpp"
#include "layout_text.hpp"
#include "terminal/command_parser.hpp"
#include "terminal/output.hpp"

namespace perfmodel::cli {
namespace {

struct LayoutSweepArguments {
  std::string axis, csv;
  std::vector<std::string> values;
};

struct LayoutCommandArguments {
  LayoutArguments layout;
  std::size_t top = 10;
  std::vector<std::string> layouts;  // of `compare`
  std::string table, output;
  LayoutSweepArguments sweep;
  std::optional<JobReading> job;
  bool is_unnamed = false;  // `layout` without a further command
  std::string timeline;     // of `export`
  bool every_rank = false;  // the same
};

// Takes Ctrl-C while it lives, and draws a bar.
struct WatchedRun {
  explicit WatchedRun(std::string name) : title(std::move(name)) {}
  LayoutRunHooks hooks() {
    return {.warn = cli::warn,
            .is_stopped = InterruptGuard::interrupted,
            .progress = [this](std::size_t done, std::size_t all) {
              if (!bar) bar.emplace(title, all);
              bar->update(done);
            }};
  }

  const InterruptGuard guard;
  const std::string title;
  std::optional<ProgressBar> bar;
};

Json full_document(const Schema& schema, const Json& content) {
  Json json = document(schema);
  json.update(content);
  return json;
}

std::string job_text_of(const LayoutCommandArguments& arguments) {
  return arguments.job ? job_text(*arguments.job) : "";
}

Json layout_document(const LayoutCommandArguments& arguments, const LayoutReport& report) {
  Json json = full_document(schemas::kLayout, layout_json(report));
  if (arguments.job) json["job"] = job_json(*arguments.job);
  return json;
}

Result<void> print_layout(const LayoutCommandArguments& arguments, const LayoutReport& report) {
  if (arguments.layout.json) return print_document(layout_document(arguments, report));
  return print_report(job_text_of(arguments) + layout_text(report, bold_allowed()));
}

Unexpected quiet_failure_of_team() { return fail(ErrorCode::kCancelled, {}); }

// Under mpirun all ranks read the same question; what is wrong with it is said by rank 0, while the
// team stands, whose end all ranks wait for.
Unexpected failure_of_team(const sweep::Team* team, const Error& error) {
  if (!team) return Unexpected{error};
  if (team->rank() == 0) complain(to_string(error));
  return quiet_failure_of_team();
}

Result<TrainingRunQuestion> run_question(const LayoutCommandArguments& arguments,
                                         const LayoutReport& report) {
  return training_run_question(arguments.layout.run, report.job, report.gpu, report.gpu_power_w);
}

// Searches at the GPU count that is given, else for the fewest that meet the deadline.
Result<void> rank_for_run(const LayoutCommandArguments& arguments, sweep::Team* team,
                          LayoutReport& report) {
  PERFMODEL_TRY(run, run_question(arguments, report));
  WatchedRun watched("search layouts");
  if (run->deadline_s && !arguments.layout.world) {
    return find_fewest_gpus(report, arguments.layout, *run, watched.hooks());
  }
  const auto ranked =
      report_ranking(arguments.layout, arguments.top, watched.hooks(), team, report);
  if (ranked && run->is_asked() && !report.layouts.empty()) {
    report.run = training_run(*run, report.job, report.layouts.front());
  }
  return ranked;
}

Result<void> rank_layout(const LayoutCommandArguments& arguments) {
  PERFMODEL_TRY(team, open_team());
  auto report = load_layout(arguments.layout, warn);
  const bool all_did = !*team || std::ranges::count((*team)->gather(report.has_value()), 0U) == 0;
  if (!report) return failure_of_team(team->get(), report.error());
  if (!all_did) return quiet_failure_of_team();
  const auto ranked = rank_for_run(arguments, team->get(), *report);
  if (!ranked) return failure_of_team(team->get(), ranked.error());
  if (*team && (*team)->rank() > 0) return {};
  return print_layout(arguments, *report);
}

Result<void> price_table(const LayoutCommandArguments& arguments) {
  if (!arguments.layout.model.empty()) {
    return decline("expected a MODEL or --table, found both");
  }
  PERFMODEL_TRY(predictor, layout_predictor(arguments.layout.machine.gpu));
  PERFMODEL_TRY_TO(refuse_row_fields(arguments.layout));
  WatchedRun run("price layouts");
  const auto text = price_layout_rows(*predictor, arguments.layout, arguments.table, run.hooks());
  run.bar.reset();
  if (!text) return Unexpected{text.error()};
  if (!arguments.layout.json) return print_or_write(*text, arguments.output);
  if (!arguments.output.empty()) PERFMODEL_TRY_TO(write_file(arguments.output, *text));
  const auto rows = layout_rows_json(*text);
  return rows ? print_document(schemas::kLayoutTable, *rows) : Unexpected{rows.error()};
}

Result<void> eval_layout(const LayoutCommandArguments& arguments) {
  if (!arguments.table.empty()) return price_table(arguments);
  PERFMODEL_TRY(report, named_layout_report(arguments.layout, warn));
  PERFMODEL_TRY(run, run_question(arguments, *report));
  if (run->is_asked()) report->run = training_run(*run, report->job, report->layouts.front());
  return print_layout(arguments, *report);
}

Result<void> compare_layouts(const LayoutCommandArguments& arguments) {
  PERFMODEL_TRY(report, load_layout(arguments.layout, warn));
  std::vector<RankedLayout>& layouts = report->layouts;
  for (const std::string& text : arguments.layouts) {
    const auto added =
        parse_layout(text, arguments.layout.world).and_then([&](const ParallelLayout& layout) {
          return add_layout(layout, *report);
        });
    if (!added) return added;
  }
  if (layouts.size() == 1) {
    PERFMODEL_TRY(found, search_layouts(*report, arguments.layout, arguments.top,
                                        WatchedRun("search layouts").hooks()));
    layouts.push_back(found->best.front());
  }
  add_layout_warnings(*report);
  if (layouts[0].layout.gpus() != layouts[1].layout.gpus()) {
    report->warnings.push_back(fmt::format("the layouts have {} and {} GPUs",
                                           layouts[0].layout.gpus(), layouts[1].layout.gpus()));
  }
  if (arguments.layout.json) return print_layout(arguments, *report);
  return print_report(job_text_of(arguments) + layout_comparison_text(*report, bold_allowed()));
}

Result<void> export_layout(const LayoutCommandArguments& arguments) {
  PERFMODEL_TRY(report, named_layout_report(arguments.layout, warn));
  const ParallelLayout& layout = report->layouts.front().layout;
  PERFMODEL_TRY(traces, report->pricer.traces(report->job, layout, arguments.every_rank));
  PERFMODEL_TRY(files, write_layout_traces(*traces, arguments.output, arguments.timeline));
  const double step_ms = traces->step_us * 1e-3;
  const std::int64_t stage_ranks = layout.dp * layout.tp;
  if (arguments.layout.json) {
    Json json = layout_document(arguments, *report);
    json["exported"] = {{"files", files->names},
                        {"ranks", traces->ranks.size()},
                        {"ranks_per_file", arguments.every_rank ? 1 : stage_ranks},
                        {"nodes", files->nodes},
                        {"step_ms", six_digits(step_ms)}};
    return print_document(json);
  }
  return print_report(
      job_text_of(arguments) + layout_text(*report, bold_allowed()) +
      fmt::format("\n  {} nodes in {} (.0.et to .{}.et, {}); their step takes {:.2f} ms\n",
                  files->nodes, arguments.output, traces->ranks.size() - 1,
                  arguments.every_rank ? std::string("one per rank")
                                       : fmt::format("one per stage of {} ranks", stage_ranks),
                  step_ms));
}

Result<void> sweep_layout(const LayoutCommandArguments& arguments) {
  PERFMODEL_TRY(predictor, layout_predictor(
                               arguments.sweep.axis == "gpu" ? "" : arguments.layout.machine.gpu));
  const LayoutSweepArguments& sweep = arguments.sweep;
  WatchedRun run("layouts");
  const auto rows =
      sweep_layouts(*predictor, arguments.layout, sweep.axis, sweep.values, run.hooks());
  run.bar.reset();
  if (!rows) return Unexpected{rows.error()};
  PERFMODEL_TRY_TO(write_asked(sweep.csv, [&] { return layout_sweep_csv(sweep.axis, *rows); }));
  if (arguments.layout.json) {
    return print_document(
        full_document(schemas::kLayoutSweep, layout_sweep_json(sweep.axis, *rows)));
  }
  return print_report(layout_sweep_text(sweep.axis, *rows, bold_allowed()));
}

Result<void> calibrate_layout(const LayoutCommandArguments& arguments) {
  PERFMODEL_TRY(machine, calibrate_machine(arguments.layout, arguments.output, warn));
  const Json json = full_document(schemas::kMeasuredMachine, machine->file);
  PERFMODEL_TRY_TO(write_asked(arguments.output, [&] { return to_text(json); }));
  if (arguments.layout.json) return print_document(json);
  return print_report(fit_text(machine->fit, bold_allowed()));
}

void add_sweep_options(CommandParser app, LayoutSweepArguments& arguments) {
  app.add_option("--axis NAME", arguments.axis, "What changes")
      .required()
      .check(one_of({"world", "gpu", "global-batch", "sequence", "topology", "host"}));
  app.add_option("--values V,V,...", arguments.values, "Values of the axis").required();
  app.add_option("--csv FILE", arguments.csv, "Write the rows as CSV");
}

// The callback of a parent runs too: only the innermost command that was named counts.
using LayoutAction = Result<void> (*)(const LayoutCommandArguments&);

// Reads the job that `--job`, or the argument MODEL, names. Searches choose the layout themselves.
Result<void> take_job(LayoutCommandArguments& arguments, bool searches) {
  LayoutArguments& layout = arguments.layout;
  const bool is_argument = layout.job.empty() && may_be_job(layout.model);
  const std::string file = is_argument ? std::exchange(layout.model, "") : layout.job;
  if (file.empty()) return {};
  const LayoutInputs asked = layout;
  GivenFields given = layout.given;
  if (!layout.model.empty()) given["model"] = layout.model;
  if (searches) std::erase_if(given, [](const auto& one) { return is_of_layout(one.first); });
  PERFMODEL_TRY(reading, read_job(file, given, layout));
  if (searches) copy_layout(asked, layout);
  arguments.job = std::move(*reading);
  return {};
}

// A job has one layout: without a further command that one is priced.
Result<void> run_layout(LayoutCommandArguments& arguments, LayoutAction action) {
  const bool has_one = action == eval_layout || action == export_layout;
  PERFMODEL_TRY_TO(take_job(arguments, !has_one && !arguments.is_unnamed));
  return arguments.is_unnamed && arguments.job ? eval_layout(arguments) : action(arguments);
}

}  // namespace

Command layout_command(CommandParser parent) {
  auto arguments = std::make_shared<LayoutCommandArguments>();
  auto action = std::make_shared<LayoutAction>(rank_layout);
  const CommandParser app = parent.add_subcommand(
      "layout",
      "Parallel training of a transformer: which layout, how fast, does it fit, what limits it");
  const auto add = [&](const char* name, const char* help, LayoutAction run) {
    const CommandParser command = app.add_subcommand(name, help);
    add_layout_options(command, arguments->layout);
    command.callback([action, run, command, arguments] {
      *action = run;
      arguments->layout.given = given_fields(command);
    });
    return command;
  };
  CommandParser ranked =
      add("rank", "Search for the fastest layouts that fit (the default)", rank_layout);
  const CommandParser judged =
      add("eval", "Price one layout, or every row of a table", eval_layout);
  CommandParser compared =
      add("compare", "Two layouts term by term, or one beside the best", compare_layouts);
  CommandParser exported =
      add("export", "Write one layout's step as Chakra traces and as a timeline", export_layout);
  const CommandParser swept =
      add("sweep", "The best layout over values of one input", sweep_layout);
  const CommandParser calibrated = add(
      "calibrate", "Learn a machine from measured steps and write it to a file", calibrate_layout);
  calibrated.add_option("-o,--output FILE", arguments->output,
                        "Write the machine here; --measured takes it again (only a report)");
  ranked.add_option("--top K", arguments->top, "Layouts to report (10)")
      .check(in_range(std::size_t{1}, std::size_t{1000}));
  ranked.add_flag("--unnamed", arguments->is_unnamed).group("");  // see add_default_command()
  add_run_options(ranked, arguments->layout.run);
  add_run_options(judged, arguments->layout.run);
  judged.option("--gpu").required(false);
  judged.add_option("--table FILE", arguments->table, "Rows to price (CSV), instead of MODEL");
  judged.add_option("-o,--output FILE", arguments->output,
                    "Where the table goes (standard output)");
  compared
      .add_option("--layout PARTS", arguments->layouts,
                  "tp=8,pp=4,vp=2,micro_batch=1,zero=1,recompute=full; once or twice")
      .required()
      .expected(1, 2);
  exported
      .add_option("-o,--output PREFIX", arguments->output,
                  "Write PREFIX.N.et, Chakra traces for network simulators; N counts stages")
      .required();
  exported.add_flag("--every-rank", arguments->every_rank, "A trace of every rank; N is the rank");
  exported.add_option("--timeline FILE", arguments->timeline,
                      "Write a rank of each stage as a Chrome trace, for ui.perfetto.dev");
  add_sweep_options(swept, arguments->sweep);
  swept.option("--gpu").required(false);
  app.require_subcommand(1);
  return {app, [arguments, action] { return run_layout(*arguments, *action); }};
}

}  // namespace perfmodel::cli
