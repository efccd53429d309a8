#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "base/decimal_number.hpp"
#include "base/progress_bar.hpp"
#include "base/stop_point.hpp"
#include "cli/shared/arguments.hpp"
#include "cli/shared/command.hpp"
#include "cli/shared/interrupt_guard.hpp"
#include "cli/shared/open_team.hpp"
#include "perfmodel/data_files.hpp"
#include "perfmodel/sweep/run_sweep.hpp"
#include "perfmodel/version.hpp"
#include "sweep/sweep_results.hpp"
#include "sweep_graphs.hpp"
#include "terminal/command_parser.hpp"
#include "terminal/output.hpp"
#include "terminal/text_table.hpp"

namespace perfmodel::cli {
namespace {

using sweep::SweepOptions;
using sweep::SweepReport;

struct SweepCommandArguments {
  std::string spec, output;
  std::optional<std::size_t> threads;
  SweepOptions options;
  bool json = false;
};

// Exit status 1 without a line: rank 0 has one.
Unexpected quiet_failure() { return fail(ErrorCode::kCancelled, {}); }

Result<sweep::SweepSpec> read_spec(const std::string& file, const sweep::GraphToolbox& toolbox) {
  PERFMODEL_TRY(data, find_data_folder());
  return sweep::read_sweep_spec(file, toolbox, *data);
}

// The first rank that fails ends the others under mpirun: a rank reports its error while the team
// exists, whose end all ranks wait for.
Unexpected failure(const sweep::Team* team, const Error& error) {
  if (!team || error.message.empty()) return Unexpected{error};
  complain(to_string(error));
  return quiet_failure();
}

// An error of all ranks is reported once.
Result<sweep::SweepSpec> read_spec_together(const std::string& file,
                                            const sweep::GraphToolbox& toolbox, sweep::Team* team) {
  auto spec = read_spec(file, toolbox);
  if (!team) return spec;
  const auto all = team->gather(spec.has_value());
  if (!spec && (team->rank() == 0 || all[0] != 0)) return spec;
  if (std::ranges::find(all, 0U) != all.end()) return quiet_failure();
  return spec;
}

std::string numbers(const std::vector<std::size_t>& shards) {
  constexpr std::size_t kMost = 20;
  const auto shown = std::min(kMost, shards.size());
  return fmt::format("{}{}",
                     fmt::join(shards.begin(), shards.begin() + static_cast<long>(shown), ", "),
                     shown < shards.size() ? ", ..." : "");
}

std::string report_text(const SweepReport& report, const SweepCommandArguments& arguments) {
  TextList list;
  for (const std::string& warning : report.warnings) list.row("warning", warning);
  list.row("rows", fmt::format("{} in {}", grouped(report.rows), counted(report.chunks, "chunk")));
  list.row("finished before", grouped(report.finished_before));
  if (!arguments.options.dry_run) {
    list.row("predicted now", grouped(report.predicted));
    if (report.refused > 0) list.row("  of them refused", grouped(report.refused));
    if (report.too_large > 0) {
      list.row("  of them too large", grouped(report.too_large) +
                                          ": parameters, gradients and optimizer state do not fit "
                                          "into the GPU (static_bytes above device_bytes)");
    }
  }
  if (report.foreign > 0) {
    list.row("dropped", counted(report.foreign, "finished row") + " that this spec does not have");
  }
  if (report.repeated > 0) list.row("made twice", counted(report.repeated, "row"));
  if (report.torn_bytes > 0) {
    list.row("torn", counted(report.torn_bytes, "byte") + " of rows that were not finished");
  }
  if (report.missing > 0) {
    std::string missing = grouped(report.missing);
    if (!report.missing_shards.empty()) {
      missing += fmt::format(" (of shards {} of {})", numbers(report.missing_shards),
                             arguments.options.shards);
    }
    list.row("missing", missing);
  }
  if (report.merged) list.row("output", arguments.output);
  std::string text = "\n" + list.text();
  if (report.others_at_work) {
    text +=
        "\nAll rows are finished. Another process at work here is to merge them; else the same\n"
        "command without --shard does.\n";
  }
  return text;
}

Result<void> print_sweep(const SweepReport& report, const SweepCommandArguments& arguments) {
  if (report.stopped && !report.merged) {
    return fail(ErrorCode::kCancelled,
                fmt::format("stopped with {} of {} rows finished: the same command goes on from "
                            "{}.parts",
                            report.rows - report.missing, report.rows, arguments.output));
  }
  if (!arguments.json) return print_report(report_text(report, arguments));
  Json keys = json_object(report, sweep::kSweepReportFields);
  keys["output"] = report.merged ? Json(file_name(arguments.output)) : Json(nullptr);
  return print_document(schemas::kSweepReport, keys);
}

Result<void> run_sweep_command(const SweepCommandArguments& arguments) {
  PERFMODEL_TRY(team, open_team());
  const bool leads = !*team || (*team)->rank() == 0;
  const auto toolbox = sweep_toolbox();
  const auto spec = read_spec_together(arguments.spec, toolbox, team->get());
  if (!spec) return failure(team->get(), spec.error());
  const InterruptGuard guard(/*and_terminate=*/true);
  std::optional<ProgressBar> bar;
  SweepOptions options = arguments.options;
  options.output = arguments.output;
  options.version = version_text();
  options.threads = arguments.threads.value_or(*team ? 1 : 0);
  options.team = *team;
  options.stop = [rules = stop_rules()] {  // threads of a hosted run are not hosted themselves
    return (rules && rules->stopped()) || InterruptGuard::interrupted();
  };
  options.progress = [&bar](std::uint64_t done, std::uint64_t of) {
    if (!bar) bar.emplace("sweep", static_cast<std::size_t>(of));
    bar->update(static_cast<std::size_t>(done));
  };
  auto report = run_sweep(*spec, toolbox, std::move(options));
  if (bar) bar->finish();
  if (!report) {
    const bool is_reported = !leads && report.error().code == ErrorCode::kCancelled;
    return is_reported ? quiet_failure() : failure(team->get(), report.error());
  }
  if (!leads) return report->stopped ? quiet_failure() : Result<void>();
  const auto printed = print_sweep(*report, arguments);
  return printed ? printed : failure(team->get(), printed.error());
}

// "2/4": the second of four.
void parse_shard(const std::string& text, SweepCommandArguments& arguments) {
  std::size_t number = 0, count = 0;
  const std::string_view words = text;
  const std::size_t slash = words.find('/');
  const bool good = slash != words.npos && read_decimal(words.substr(0, slash), number) &&
                    read_decimal(words.substr(slash + 1), count);
  if (!good || number < 1 || number > count) {
    bad_usage("--shard", "expected I/N with I from 1 to N, found " + text);
  }
  arguments.options.shard = number - 1;
  arguments.options.shards = count;
}

void check_sweep_flags(const SweepCommandArguments& arguments) {
  const std::string& name = arguments.output;
  if (name.ends_with(".csv") || name.ends_with(".csv.gz")) return;
  bad_usage("--output", "expected a name that ends in .csv or .csv.gz, found " + name);
}

}  // namespace

Command sweep_command(CommandParser parent) {
  auto arguments = std::make_shared<SweepCommandArguments>();
  const CommandParser app = parent.add_subcommand(
      "sweep",
      "Predict graphs x rewrites x GPUs x topologies x strategies; goes on where it was "
      "stopped");
  app.add_argument("spec SPEC", arguments->spec, "What to cross (JSON, docs/sweep.md)");
  app.add_option("-o,--output OUT", arguments->output,
                 "Table to write (.csv or .csv.gz); finished rows wait in OUT.parts")
      .required();
  app.add_option("--threads N", arguments->threads,
                 "Threads of this process (default: all that the machine has, one under mpirun)")
      .check(at_least(1));
  app.add_option_function<std::string>(
      "--shard I/N", [arguments](const std::string& text) { parse_shard(text, *arguments); },
      "Predict only every N-th chunk, from the I-th on: one job of an array of N");
  app.add_option("--chunk ROWS", arguments->options.chunk_rows,
                 "Rows that are handed out and written at once (default: 128, fewer in small "
                 "sweeps); the same for all shards")
      .check(between(1, 10000));
  app.add_flag("--keep-parts", arguments->options.keep_parts, "Leave OUT.parts behind");
  app.add_flag("--dry-run", arguments->options.dry_run,
               "Count all, finished and missing rows; predict nothing");
  app.add_flag("--json", arguments->json, "Print one JSON document");
  app.footer(
      "After a stop, or with shards, the same command goes on with the rows that are missing. The\n"
      "table is written when none is missing. `mpirun -n N perfpredict sweep ...` divides the work "
      "among\n"
      "N processes.");
  app.callback([arguments] { check_sweep_flags(*arguments); });
  return {app, [arguments] { return run_sweep_command(*arguments); }};
}

}  // namespace perfmodel::cli
