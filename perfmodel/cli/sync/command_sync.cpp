#include <fmt/format.h>

#include <memory>

#include "cli/shared/arguments.hpp"
#include "cli/shared/command.hpp"
#include "cli/shared/field_flags.hpp"
#include "cli/shared/read_files.hpp"
#include "cli/shared/write_asked.hpp"
#include "sync/sync_results.hpp"
#include "sync_report.hpp"
#include "terminal/command_parser.hpp"
#include "terminal/output.hpp"

namespace perfmodel::cli {
namespace {

struct SyncArguments {
  std::string cases, plot;
  sync::SyncQuestion question;
  ReadOptions reading;
  bool full = false, json = false;
};

Result<void> answer_measured(const SyncArguments& arguments, const sync::SyncCases& read,
                             const sync::LossModel& loss) {
  PERFMODEL_TRY(constants, sync::fit_servers(read.measured));
  PERFMODEL_TRY(compared, sync::compare_runs(read.measured, *constants, loss));
  if (arguments.json) {
    return print_document(schemas::kSync, measured_sync_json(*constants, *compared, read.warnings));
  }
  return print_report(measured_sync_text(*constants, *compared, bold_allowed()));
}

Result<void> answer_file(const SyncArguments& arguments, const sync::LossModel& loss) {
  PERFMODEL_TRY(read, sync::read_sync_cases(arguments.cases));
  for (const std::string& warning : read->warnings) warn(warning);
  if (!read->measured.empty() && !read->cases.empty()) {
    return decline(fmt::format("{}: expected cases of one kind, found timelines and measured runs",
                               file_name(arguments.cases)));
  }
  if (!read->measured.empty()) return answer_measured(arguments, *read, loss);
  PERFMODEL_TRY(answers, sync::answer_cases(read->cases, loss));
  if (arguments.json)
    return print_document(schemas::kSync, sync_cases_json(*answers, read->warnings));
  return print_report(sync_cases_text(*answers, bold_allowed()));
}

Result<void> answer_job(const SyncArguments& arguments, const sync::LossModel& loss) {
  sync::SyncQuestion question = arguments.question;
  PERFMODEL_TRY(plan, sync::plan_of(question));
  std::optional<ExecutionGraph> graph;
  if (!question.graph.empty()) {
    PERFMODEL_TRY(read, read_graph_file(question.graph, arguments.reading));
    graph = std::move(*read);
  }
  PERFMODEL_TRY(planned, sync::plan_sync_job(*plan, graph ? &*graph : nullptr));
  if (!arguments.plot.empty() && question.slowdowns.empty()) {
    question.slowdowns = {1, 2, 3, 4, 6, 8};
  }
  PERFMODEL_TRY(report, sync::compare_schemes(question, std::move(*planned), loss));
  PERFMODEL_TRY_TO(write_asked(arguments.plot, [&] { return sync_svg(*report); }));
  if (arguments.json) return print_document(schemas::kSync, sync_json(*report));
  return print_report(sync_text(*report, arguments.full, bold_allowed()));
}

Result<void> run_sync_command(const SyncArguments& arguments) {
  sync::LossModel loss;
  if (const std::string& file = arguments.question.loss_model; !file.empty()) {
    PERFMODEL_TRY(read, sync::read_loss_model(file));
    loss = std::move(*read);
  }
  return arguments.cases.empty() ? answer_job(arguments, loss) : answer_file(arguments, loss);
}

void check_sync_flags(const SyncArguments& arguments) {
  const int sources = static_cast<int>(!arguments.cases.empty()) +
                      static_cast<int>(!arguments.question.workers.empty()) +
                      static_cast<int>(!arguments.question.gpus.empty());
  if (sources != 1) {
    bad_usage("sync", fmt::format("expected one of CASES, --workers and --gpu, "
                                  "found {}",
                                  sources == 0 ? "none" : "several"));
  }
}

}  // namespace

Command sync_command(CommandParser parent) {
  auto arguments = std::make_shared<SyncArguments>();
  const CommandParser app = parent.add_subcommand(
      "sync", "Synchronisation of mixed workers: BSP, ASP, SSP, local SGD, ADACOMM, ADSP");
  app.add_option("cases CASES", arguments->cases,
                 "Timelines to be computed, or measured runs of a job whose BSP run gives the "
                 "constants of the others (docs/sync.md)");
  for (const sync::SyncField& field : sync::sync_fields()) {
    add_field(app, field, arguments->question);
  }
  app.option("--period").capture_default_str();
  app.add_option("--plot FILE", arguments->plot, "Draw the sweep (default: 1,2,3,4,6,8) as SVG");
  app.add_flag("--full", arguments->full, "A table of the workers under each scheme");
  app.add_flag("--json", arguments->json, "Print one JSON document");
  app.callback([arguments] { check_sync_flags(*arguments); });
  return {app, [arguments] { return run_sync_command(*arguments); }};
}

}  // namespace perfmodel::cli
