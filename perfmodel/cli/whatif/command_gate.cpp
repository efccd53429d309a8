#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <system_error>

#include "cli/shared/arguments.hpp"
#include "cli/shared/command.hpp"
#include "cli/shared/field_flags.hpp"
#include "cli/shared/kernel_models_option.hpp"
#include "cli/shared/overheads_option.hpp"
#include "cli/shared/read_files.hpp"
#include "gate/gate.hpp"
#include "terminal/command_parser.hpp"
#include "terminal/field_table.hpp"
#include "terminal/output.hpp"

namespace perfmodel::cli {
namespace {

struct GateArguments : GateQuestion {
  ReadOptions reading;
  bool json = false, markdown = false;
};

std::string gpu_text(const GateOnGpu& one, bool bold) {
  std::string text = fmt::format("\n  {}\n", one.gpu);
  const auto add = [&](const TextTable& table) {
    if (!table.empty()) text += table.text(bold);
  };
  add(field_table(one.cost.reasons, kGateReasonFields,
                  {"reason", "count_before", "count_after", "device_change_us", "host_change_us",
                   "wait_change_us", "cost_us"}));
  if (!one.cost.reasons.empty()) text += "  " + sum_sentence(one) + "\n";
  text += '\n';
  add(field_table(one.cost.sums, kGateSumFields, {"part", "before_us", "after_us", "change_us"}));
  return text;
}

std::string gate_text(const GateReport& report, bool bold) {
  std::string text = warnings_text(report.warnings) + "\n";
  TextList list;
  list.row("before", report.before.file);
  list.fact("  left out", report.before.left_out);
  list.row("after", report.after.file);
  list.fact("  left out", report.after.left_out);
  list.fact("steps", steps_sentence(report));
  text += list.text();
  if (report.kind == "predictions") {
    text += '\n' + field_table(report.gpus, kGateOnGpuFields,
                               {"gpu", "before_us", "after_us", "change_us", "change", "verdict"})
                       .text(bold);
  }
  for (const GateOnGpu& one : report.gpus) text += gpu_text(one, bold);
  return text + "\n" + wrapped(verdict_sentence(report), "  ", 2);
}

Result<GateReport> answer_gate(const GateArguments& arguments) {
  const bool before_is_log = is_step_log(arguments.before),
             after_is_log = is_step_log(arguments.after);
  const std::string& other = before_is_log ? arguments.after : arguments.before;
  std::error_code ignored;
  if (before_is_log != after_is_log && std::filesystem::exists(other, ignored)) {
    return decline("expected two logs, two traces or two graphs, found a log and another file",
                   other);
  }
  if (before_is_log || after_is_log) return gate_logs(arguments);
  PERFMODEL_TRY(programs, read_programs({arguments.before, arguments.after}, arguments.reading));
  return gate_programs(arguments, std::move(*programs));
}

Result<void> run_gate(const GateArguments& arguments, int& verdict) {
  PERFMODEL_TRY(report, answer_gate(arguments));
  verdict = exit_status(report->verdict);
  if (arguments.json) return print_document(schemas::kGate, gate_json(*report));
  if (arguments.markdown) return print(gate_markdown(*report));
  return print_report(gate_text(*report, bold_allowed()));
}

}  // namespace

Command gate_command(CommandParser parent) {
  auto arguments = std::make_shared<GateArguments>();
  auto verdict = std::make_shared<int>(0);
  const CommandParser app = parent.add_subcommand(
      "gate", "Did a change make the step slower? Exit status 0 pass, 3 slower, 4 cannot tell");
  app.add_argument("BASE", arguments->before, "Log of step times, Kineto trace or graph before");
  app.add_argument("NEW", arguments->after, "The same kind of file after the change");
  for (const GateField& field : gate_fields()) {
    add_field(app, field, static_cast<GateQuestion&>(*arguments));
  }
  add_overheads_option(app, arguments->overheads, kOverheadsHelp);
  add_models_option(app, arguments->models);
  add_reading(app, arguments->reading);
  app.add_flag("--markdown", arguments->markdown, "Print Markdown for a pull request");
  app.add_flag("--json", arguments->json, "Print one JSON document");
  app.footer(
      "perfpredict gate base.log new.log --threshold 3%\n"
      "perfpredict gate base.json new.json --gpus h100,a100,4090 --markdown >> "
      "$GITHUB_STEP_SUMMARY");
  return {app, [arguments, verdict] { return run_gate(*arguments, *verdict); }, verdict};
}

}  // namespace perfmodel::cli
