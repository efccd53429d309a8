#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <memory>

#include "analyze/finding_results.hpp"
#include "analyzed_arguments.hpp"
#include "base/contains.hpp"
#include "base/plain_text.hpp"
#include "cli/rewrite/rewrite_flags.hpp"
#include "cli/shared/anonymize_option.hpp"
#include "cli/shared/command.hpp"
#include "rewrites/rewrite_input.hpp"
#include "terminal/command_parser.hpp"
#include "terminal/output.hpp"
#include "terminal/text_table.hpp"

namespace perfmodel::cli {
namespace {

struct AnalyzeArguments : AnalyzedArguments {
  std::vector<std::string> rules;
  bool json = false, full = false;
};

constexpr std::size_t kIndentOfFinding = 6;

std::string finding_lines(const Finding& finding, std::size_t number) {
  std::string gain = "no time";
  if (finding.gain_us) {
    gain = fmt::format("gains {:.1f} % ({:.3f} ms)", 100 * finding.gain_share,
                       *finding.gain_us / 1000);
  }
  std::string text = wrapped(fmt::format("{} [{}]", plain_text(finding.title), finding.rule),
                             fmt::format("  {:>2}. ", number), kIndentOfFinding);
  text += wrapped(fmt::format("{}, takes {:.1f} % itself, confidence {}", gain, 100 * finding.share,
                              to_string(finding.confidence)),
                  "      ", kIndentOfFinding);
  text += wrapped("where: " + plain_text(finding.where), "      ", kIndentOfFinding);
  text += wrapped(finding.advice, "      ", kIndentOfFinding);
  return text + "\n";
}

// "6 more gain less than 2 %: 4 blocking-waits, 2 far-below-roofline (--full)".
std::string folded_line(const std::vector<Finding>& findings) {
  std::map<std::string_view, std::size_t> counts;
  std::size_t folded = 0;
  for (const Finding& finding : findings) {
    if (!finding.folded) continue;
    ++counts[finding.rule];
    ++folded;
  }
  if (folded == 0) return "";
  std::vector<std::string> parts;
  for (const auto& [rule, count] : counts) parts.push_back(fmt::format("{} {}", count, rule));
  return wrapped(
      fmt::format("{} more, each gains less than 2 %: {} (--full)", folded, fmt::join(parts, ", ")),
      "  ", 2);
}

// `full`: findings below 2 %, too.
std::string findings_text(const FindingsReport& report, bool full) {
  const Findings& found = report.found;
  std::string text;
  if (!found.warnings.empty()) {
    text += "  Warnings\n";
    for (const std::string& warning : found.warnings) {
      text += wrapped(plain_text(warning), "  - ", 4);
    }
    text += "\n";
  }
  TextList list;
  list.row(report.files.size() == 1 ? "input" : "inputs",
           fmt::format("{}", fmt::join(report.files, ", ")));
  list.fact("rewritten by", fmt::format("{}", fmt::join(report.rewrites, " ")));
  list.row("GPU", report.gpu.empty() ? "not known" : report.gpu);
  std::string step = fmt::format("{:.3f} ms", found.step_us / 1000);
  if (found.measured_us) {
    step += fmt::format(" as scheduled again, {:.3f} as recorded", *found.measured_us / 1000);
  }
  list.row("step", step);
  text += list.text() + "\n";
  std::size_t number = 0;
  for (const Finding& finding : found.findings) {
    if (finding.folded && !full) continue;
    text += finding_lines(finding, ++number);
  }
  if (number == 0) text += "  No rule finds anything that gains 2 % of the step.\n";
  if (!full) text += folded_line(found.findings);
  if (number > 1) {
    text += wrapped(
        "Gains are each on its own: the step scheduled again with that repair. They do "
        "not add up.",
        "  ", 2);
  }
  return text;
}

Result<void> run_analyze(const AnalyzeArguments& arguments) {
  PERFMODEL_TRY(inputs, read_analyzed(arguments));
  PERFMODEL_TRY(found,
                inputs->find({.rules = arguments.rules, .iterations = arguments.iterations}));
  PERFMODEL_TRY_TO(inputs->check_models());
  add_each_once(found->warnings, inputs->warnings);
  FindingsReport report{.files = {},
                        .rewrites = rewrite_names(arguments.target.rewrites),
                        .gpu = inputs->gpu_title(),
                        .found = std::move(*found)};
  const auto& anonymizer = arguments.anonymizer;
  for (std::string& warning : report.found.warnings) warning = with_pseudonyms(warning, anonymizer);
  for (const std::string& file : arguments.files) {
    report.files.push_back(with_pseudonyms(file_name(file), anonymizer));
  }
  if (arguments.json) return print_document(schemas::kAnalyze, findings_json(report));
  return print_report(findings_text(report, arguments.full));
}

std::string rules_footer() {
  std::string text = "Rules:\n";
  for (const AnalyzeRule& rule : analyze_rules()) {
    text += wrapped(rule.fires, fmt::format("  {:<22} ", rule.name), 25);
  }
  return text +
         "Gains are steps scheduled again with the repair; findings below 2 % are folded.\n" +
         kRewritesRule;
}

}  // namespace

Command analyze_command(CommandParser parent) {
  auto arguments = std::make_shared<AnalyzeArguments>();
  const CommandParser app = parent.add_subcommand(
      "analyze", "What is wrong with a step, where, and what repairing it gains");
  app.add_argument("INPUT", arguments->files,
                   "Kineto traces as recorded, or execution graphs to be predicted; several are "
                   "ranks of one job");
  app.add_option("--rules RULE,...", arguments->rules, "Only these rules (default: all)");
  add_analyzed(app, *arguments);
  app.add_flag("--full", arguments->full, "Findings that gain less than 2 % too");
  app.add_flag("--json", arguments->json, "Print one JSON document");
  app.footer(rules_footer());
  return {app, [arguments] { return run_analyze(*arguments); }};
}

}  // namespace perfmodel::cli
