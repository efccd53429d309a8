#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>

#include "analyzed_inputs.hpp"
#include "cli/shared/anonymize_option.hpp"
#include "cli/shared/command.hpp"
#include "findings_report.hpp"
#include "terminal/command_parser.hpp"

namespace perfmodel::cli {
namespace {

struct AnalyzeArguments {
  AnalyzedArguments inputs;
  std::vector<std::string> rules;
  bool json = false, full = false;
};

Result<void> run_analyze(const AnalyzeArguments& arguments) {
  auto inputs = load_analyzed(arguments.inputs);
  if (!inputs) return Unexpected{inputs.error()};
  const AnalyzeOptions options{.rules = arguments.rules, .iterations = arguments.inputs.iterations};
  auto found = inputs->recorded
                   ? analyze(inputs->traces, inputs->gpu ? &*inputs->gpu : nullptr, options)
                   : analyze(inputs->rank_inputs(), *inputs->gpu, options);
  if (!found) return Unexpected{found.error()};
  for (const auto& rank : inputs->ranks) {
    if (auto readable = rank->chosen.check(); !readable) return readable;
  }
  for (const std::string& warning : inputs->warnings) {
    if (std::ranges::find(found->warnings, warning) == found->warnings.end()) {
      found->warnings.push_back(warning);
    }
  }
  FindingsReport report{.gpu = inputs->gpu_title(), .found = std::move(*found)};
  const auto& anonymizer = arguments.inputs.anonymizer;
  for (std::string& warning : report.found.warnings) warning = with_pseudonyms(warning, anonymizer);
  for (const std::string& file : arguments.inputs.files) {
    report.files.push_back(with_pseudonyms(file_name(file), anonymizer));
  }
  if (!arguments.json) return print_report(findings_text(report, arguments.full));
  Json json = document(schemas::kAnalyze);
  json.update(findings_keys(report));
  return print_document(json);
}

std::string rules_footer() {
  std::string text = "Rules:\n";
  for (const AnalyzeRule& rule : analyze_rules()) {
    text += fmt::format("  {:<22} {}\n", rule.name, rule.fires);
  }
  return text + "Gains are steps scheduled again with the repair; findings below 2 % are folded.";
}

}  // namespace

Command analyze_command(CommandParser parent) {
  auto arguments = std::make_shared<AnalyzeArguments>();
  const CommandParser app = parent.add_subcommand(
      "analyze", "What is wrong with a step, where, and what repairing it gains");
  app.add_option("INPUT", arguments->inputs.files,
                 "Kineto traces as recorded, or execution graphs to be predicted; several are "
                 "ranks of one job")
      .type_name("")
      .required();
  app.add_option("--rules", arguments->rules, "Only these rules (default: all)")
      .delimiter(',')
      .type_name("RULE,...");
  add_analyzed(app, arguments->inputs);
  app.add_flag("--full", arguments->full, "Findings that gain less than 2 % too");
  app.add_flag("--json", arguments->json, "Print one JSON document");
  app.footer(rules_footer());
  return {app, [arguments] { return run_analyze(*arguments); }};
}

}  // namespace perfmodel::cli
