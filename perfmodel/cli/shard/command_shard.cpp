#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "base/plain_text.hpp"
#include "cli/shared/arguments.hpp"
#include "cli/shared/command.hpp"
#include "cli/shared/write_asked.hpp"
#include "report/shard_pictures.hpp"
#include "search_watch.hpp"
#include "shard_arguments.hpp"
#include "shard_report.hpp"
#include "sharding/study/load_study.hpp"
#include "sharding/study/plan_words.hpp"
#include "sharding/study/write_plan.hpp"
#include "terminal/command_parser.hpp"
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
  PERFMODEL_TRY_TO(write_asked(arguments.plot, [&] { return report_page::shard_svg(report); }));
  if (arguments.study.json) return print_document(shard_json(report));
  return print_report(shard_text(report, bold_allowed()));
}

Result<void> write_warned(const LoadedStudy& loaded, const std::vector<TablePlacement>& placements,
                          const ShardCommandArguments& arguments) {
  if (const std::string lost = lost_settings(loaded, placements, arguments.format); !lost.empty()) {
    warn(lost);
  }
  return write_plan(loaded, placements, arguments.format, arguments.output, arguments.module);
}

Result<void> rank(const ShardCommandArguments& arguments) {
  PERFMODEL_TRY(loaded,
                load_study_for(arguments.output.empty() ? "" : arguments.format, arguments.study));
  PERFMODEL_TRY(report, search_for_plans(*loaded, arguments.top, terminal_watch()));
  if (loaded->study.hashed && !arguments.study.compress.empty() && !loaded->is_torchrec) {
    PERFMODEL_TRY(compression, compare_compression(*loaded, terminal_watch()));
    report->compression = std::move(*compression);
  }
  if (!arguments.output.empty()) {
    PERFMODEL_TRY_TO(write_warned(*loaded, report->plans.front().placements, arguments));
  }
  return put_out(*report, arguments);
}

Result<std::vector<NamedPlacements>> given_plans(const LoadedStudy& loaded,
                                                 const ShardCommandArguments& arguments) {
  std::vector<NamedPlacements> plans;
  for (const std::string& file : arguments.plans) {
    PERFMODEL_TRY(placements, load_plan(file, loaded));
    plans.push_back({file_name(file), std::move(*placements)});
  }
  return plans;
}

Result<void> eval(const ShardCommandArguments& arguments) {
  PERFMODEL_TRY(loaded, load_study(arguments.study));
  return given_plans(*loaded, arguments)
      .and_then([&](const auto& plans) { return price_plans(*loaded, plans); })
      .and_then([&](const ShardReport& report) { return put_out(report, arguments); });
}

// Tables that two plans place differently.
std::string differences(const ShardReport& report, bool bold) {
  const PricedPlan& a = report.plans[0];
  const PricedPlan& b = report.plans[1];
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
  PERFMODEL_TRY(loaded, load_study(arguments.study));
  PERFMODEL_TRY(plans, given_plans(*loaded, arguments));
  if (plans->size() == 1) {
    PERFMODEL_TRY(found, search_for_plans(*loaded, 1, terminal_watch()));
    plans->push_back({"found", found->plans.front().placements});
  }
  PERFMODEL_TRY(report, price_plans(*loaded, *plans));
  if (arguments.study.json) return print_document(shard_json(*report));
  const double a = report->plans[0].cost(), b = report->plans[1].cost();
  const bool bold = bold_allowed();
  return print_report(shard_text(*report, bold) + "\n" +
                      fmt::format("{} against {}: {:+.1f} %\n", plain_text(report->plans[1].name),
                                  plain_text(report->plans[0].name), 100 * (b / a - 1)) +
                      differences(*report, bold));
}

Result<void> export_command(const ShardCommandArguments& arguments) {
  PERFMODEL_TRY(loaded, load_study_for(arguments.format, arguments.study));
  std::vector<TablePlacement> placements;
  if (arguments.plans.empty()) {
    PERFMODEL_TRY(found, search_for_plans(*loaded, 1, terminal_watch()));
    placements = std::move(found->plans.front().placements);
  } else {
    PERFMODEL_TRY(read, load_plan(arguments.plans.front(), *loaded));
    placements = std::move(*read);
  }
  return write_warned(*loaded, placements, arguments);
}

Result<void> sweep(const ShardCommandArguments& arguments) {
  SweepArguments asked = arguments.sweep;
  asked.base = arguments.study;
  if (!arguments.plans.empty()) asked.plan = arguments.plans.front();
  return run_sweep(asked, arguments.study.json);
}

Result<void> questions(const ShardCommandArguments& arguments) {
  QuestionArguments asked = arguments.questions;
  asked.base = arguments.study;
  return run_questions(asked, arguments.study.json);
}

void add_plot(CommandParser app, ShardCommandArguments& arguments) {
  app.add_option("--plot FILE", arguments.plot, "Write load and memory of every GPU as SVG");
}

void add_plans(CommandParser app, ShardCommandArguments& arguments, int least, int most) {
  const Option option = app.add_option("--plan FILE", arguments.plans,
                                       "Plan of TorchRec (JSON) or HugeCTR (shard_matrix)");
  if (least > 0) option.required();
  option.expected(std::max(1, least), most);
}

void add_format(CommandParser app, ShardCommandArguments& arguments) {
  app.add_option("--format FORMAT", arguments.format,
                 "torchrec, hugectr, hugectr-nodes, csv, or graphs (one per GPU, for predict)")
      .check(one_of({"torchrec", "hugectr", "hugectr-nodes", "csv", "graphs"}));
  app.add_option("--module PATH", arguments.module,
                 "Path of the module in the model that holds the tables, for TorchRec's plans");
}

// The callback of a parent runs too: only the innermost command that was named counts.
using Action = Result<void> (*)(const ShardCommandArguments&);

}  // namespace

Command shard_command(CommandParser parent) {
  auto arguments = std::make_shared<ShardCommandArguments>();
  auto action = std::make_shared<Action>(rank);
  const CommandParser app = parent.add_subcommand(
      "shard", "How to shard embedding tables over GPUs: time per batch, memory, what limits");
  const auto add = [&](const char* name, const char* help, Action run) {
    const CommandParser command = app.add_subcommand(name, help);
    add_shard_options(command, arguments->study);
    command.callback([action, run] { *action = run; });
    return command;
  };
  CommandParser ranked = add("rank", "Search for the fastest plans (the default)", rank);
  const CommandParser judged = add("eval", "Price given plans", eval);
  const CommandParser compared =
      add("compare", "Two plans side by side, or one beside the best", compare);
  const CommandParser swept =
      add("sweep", "The best (or a given) plan over values of one input", sweep);
  CommandParser studied =
      add("study", "Ways to shard, types, networks and numbers of GPUs side by side", questions);
  const CommandParser exported =
      add("export", "Write a plan, or one graph per GPU", export_command);
  // Without a command, `shard TABLES` ranks, with the options of `rank`.
  ranked.add_option("--plans K", arguments->top, "Plans to report (3)").check(between(1, 100));
  add_plot(ranked, *arguments);
  add_format(ranked, *arguments);
  ranked.add_option("-o,--output FILE", arguments->output, "Write the best plan");
  add_plans(judged, *arguments, 1, 64);
  add_plot(judged, *arguments);
  add_plans(compared, *arguments, 1, 2);
  add_plans(swept, *arguments, 0, 1);
  add_sweep_options(swept, arguments->sweep);
  add_question_options(studied, arguments->questions);
  add_plans(exported, *arguments, 0, 1);
  add_format(exported, *arguments);
  exported.add_option("-o,--output FILE", arguments->output, "File, or folder for graphs")
      .required();
  app.require_subcommand(1);
  return {app, [arguments, action] { return (*action)(*arguments); }};
}

}  // namespace perfmodel::cli
