#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>

#include "arguments.hpp"
#include "base/plain_text.hpp"
#include "command.hpp"
#include "shard_export.hpp"
#include "shard_plans.hpp"
#include "shard_questions.hpp"
#include "shard_sweep.hpp"
#include "terminal/cli11.hpp"
#include "terminal/output.hpp"
#include "terminal/text_table.hpp"

namespace perfmodel::cli {
namespace {

using namespace sharding;

struct ShardCommandArguments {
  ShardArguments study;
  std::vector<std::string> plans;
  std::string plot, output, format = "torchrec";
  std::size_t top = 3;
  std::string module;
  SweepArguments sweep;
  QuestionArguments questions;
};

Result<void> put_out(const ShardReport& report, const ShardCommandArguments& arguments) {
  if (!arguments.plot.empty()) {
    const auto svg = shard_svg(report);
    if (!svg) return Unexpected{svg.error()};
    if (auto written = write_file(arguments.plot, *svg); !written) return written;
  }
  if (arguments.study.json) return print_document(shard_json(report));
  return print_report(shard_text(report, bold_allowed()));
}

// A plan that is written holds what its format has a place for: graphs of ranks never settings of
// single tables, other formats than TorchRec's only against a warning, where --choose asks.
Result<LoadedStudy> load_for(const ShardCommandArguments& arguments) {
  auto loaded = load_study(arguments.study);
  if (!loaded || arguments.output.empty() || arguments.format == "torchrec") return loaded;
  if (arguments.format == "graphs" || arguments.study.choose.empty()) {
    loaded->study.searched = {};
  }
  return loaded;
}

Result<void> rank(const ShardCommandArguments& arguments) {
  const auto loaded = load_for(arguments);
  if (!loaded) return Unexpected{loaded.error()};
  auto report = search_for_plans(*loaded, arguments.study, arguments.top);
  if (!report) return Unexpected{report.error()};
  if (loaded->study.hashed && !arguments.study.compress.empty() && !loaded->is_torchrec) {
    auto compression = compare_compression(*loaded, arguments.study);
    if (!compression) return Unexpected{compression.error()};
    report->compression = std::move(*compression);
  }
  if (!arguments.output.empty()) {
    if (auto written = export_plan(*loaded, report->plans.front().placements, arguments.format,
                                   arguments.output, arguments.module);
        !written) {
      return written;
    }
  }
  return put_out(*report, arguments);
}

Result<std::vector<NamedPlacements>> given_plans(const LoadedStudy& loaded,
                                                 const ShardCommandArguments& arguments) {
  std::vector<NamedPlacements> plans;
  for (const std::string& file : arguments.plans) {
    auto placements = load_plan(file, loaded);
    if (!placements) return Unexpected{placements.error()};
    plans.push_back({file_name(file), std::move(*placements)});
  }
  return plans;
}

Result<void> eval(const ShardCommandArguments& arguments) {
  const auto loaded = load_study(arguments.study);
  if (!loaded) return Unexpected{loaded.error()};
  const auto plans = given_plans(*loaded, arguments);
  if (!plans) return Unexpected{plans.error()};
  const auto report = price_plans(*loaded, arguments.study, *plans);
  if (!report) return Unexpected{report.error()};
  return put_out(*report, arguments);
}

// Tables that two plans place differently.
std::string differences(const ShardReport& report, bool bold) {
  const ReportedPlan& a = report.plans[0];
  const ReportedPlan& b = report.plans[1];
  TextTable table{"table", "<" + a.name, "<GPUs", "<" + b.name, "<GPUs"};
  constexpr std::size_t kWidth = 20;
  const std::int64_t world = *report.loaded->study.world;
  for (std::size_t t = 0; t < a.placements.size(); ++t) {
    if (a.placements[t] == b.placements[t]) continue;
    const auto way = [](const TablePlacement& placement) {
      const std::string settings = settings_of(placement);
      return std::string(to_string(placement.type)) + (settings.empty() ? "" : ", " + settings);
    };
    table.row({report.loaded->study.tables[t].name, way(a.placements[t]),
               shortened(ranks_text(a.placements[t], world), kWidth), way(b.placements[t]),
               shortened(ranks_text(b.placements[t], world), kWidth)});
  }
  if (table.empty()) return "The plans are the same.\n";
  return table.text(bold);
}

Result<void> compare(const ShardCommandArguments& arguments) {
  const auto loaded = load_study(arguments.study);
  if (!loaded) return Unexpected{loaded.error()};
  auto plans = given_plans(*loaded, arguments);
  if (!plans) return Unexpected{plans.error()};
  if (plans->size() == 1) {
    const auto found = search_for_plans(*loaded, arguments.study, 1);
    if (!found) return Unexpected{found.error()};
    plans->push_back({"found", found->plans.front().placements});
  }
  const auto report = price_plans(*loaded, arguments.study, *plans);
  if (!report) return Unexpected{report.error()};
  if (arguments.study.json) return print_document(shard_json(*report));
  const double a = report->plans[0].cost(), b = report->plans[1].cost();
  const bool bold = bold_allowed();
  return print_report(shard_text(*report, bold) + "\n" +
                      fmt::format("{} against {}: {:+.1f} %\n", plain_text(report->plans[1].name),
                                  plain_text(report->plans[0].name), 100 * (b / a - 1)) +
                      differences(*report, bold));
}

Result<void> export_command(const ShardCommandArguments& arguments) {
  const auto loaded = load_for(arguments);
  if (!loaded) return Unexpected{loaded.error()};
  std::vector<TablePlacement> placements;
  if (arguments.plans.empty()) {
    auto found = search_for_plans(*loaded, arguments.study, 1);
    if (!found) return Unexpected{found.error()};
    placements = std::move(found->plans.front().placements);
  } else {
    auto read = load_plan(arguments.plans.front(), *loaded);
    if (!read) return Unexpected{read.error()};
    placements = std::move(*read);
  }
  return export_plan(*loaded, placements, arguments.format, arguments.output, arguments.module);
}

Result<void> sweep(const ShardCommandArguments& arguments) {
  return run_sweep(arguments.study, arguments.sweep, arguments.plans);
}

Result<void> questions(const ShardCommandArguments& arguments) {
  return run_questions(arguments.study, arguments.questions);
}

void add_plot(CLI::App& app, ShardCommandArguments& arguments) {
  app.add_option("--plot", arguments.plot, "Write load and memory of every GPU as SVG")
      ->type_name("FILE");
}

void add_plans(CLI::App& app, ShardCommandArguments& arguments, int least, int most) {
  auto* option =
      app.add_option("--plan", arguments.plans, "Plan of TorchRec (JSON) or HugeCTR (shard_matrix)")
          ->type_name("FILE");
  if (least > 0) option->required();
  option->expected(std::max(1, least), most);
}

void add_format(CLI::App& app, ShardCommandArguments& arguments) {
  app.add_option("--format", arguments.format,
                 "torchrec, hugectr, hugectr-nodes, csv, or graphs (one per GPU, for predict)")
      ->check(CLI::IsMember({"torchrec", "hugectr", "hugectr-nodes", "csv", "graphs"}))
      ->type_name("FORMAT");
  app.add_option("--module", arguments.module,
                 "Path of the module in the model that holds the tables, for TorchRec's plans")
      ->type_name("PATH");
}

// The callback of a parent runs too: only the innermost command that was named counts.
using Action = Result<void> (*)(const ShardCommandArguments&);

}  // namespace

Command shard_command(CLI::App& parent) {
  auto arguments = std::make_shared<ShardCommandArguments>();
  auto action = std::make_shared<Action>(rank);
  CLI::App* app = parent.add_subcommand(
      "shard", "How to shard embedding tables over GPUs: time per batch, memory, what limits");
  const auto add = [&](const char* name, const char* help, Action run) {
    CLI::App* command = app->add_subcommand(name, help);
    add_shard_options(*command, arguments->study);
    command->callback([action, run] { *action = run; });
    return command;
  };
  CLI::App* ranked = add("rank", "Search for the fastest plans (the default)", rank);
  CLI::App* judged = add("eval", "Price given plans", eval);
  CLI::App* compared = add("compare", "Two plans side by side, or one beside the best", compare);
  CLI::App* swept = add("sweep", "The best (or a given) plan over values of one input", sweep);
  CLI::App* studied =
      add("study", "Ways to shard, types, networks and numbers of GPUs side by side", questions);
  CLI::App* exported = add("export", "Write a plan, or one graph per GPU", export_command);
  // Without a command, `shard TABLES` ranks: its options are those of `rank`.
  for (CLI::App* to : {ranked}) {
    to->add_option("--plans", arguments->top, "Plans to report (3)")
        ->check(between(1, 100))
        ->type_name("K");
    add_plot(*to, *arguments);
    add_format(*to, *arguments);
    to->add_option("-o,--output", arguments->output, "Write the best plan")->type_name("FILE");
  }
  add_plans(*judged, *arguments, 1, 64);
  add_plot(*judged, *arguments);
  add_plans(*compared, *arguments, 1, 2);
  add_plans(*swept, *arguments, 0, 1);
  add_sweep_options(*swept, arguments->sweep);
  add_question_options(*studied, arguments->questions);
  add_plans(*exported, *arguments, 0, 1);
  add_format(*exported, *arguments);
  exported->add_option("-o,--output", arguments->output, "File, or folder for graphs")
      ->required()
      ->type_name("FILE");
  app->require_subcommand(1);
  return {app, [arguments, action] { return (*action)(*arguments); }};
}

}  // namespace perfmodel::cli
