#include <fmt/format.h>

#include <memory>
#include <utility>

#include "analyzed_arguments.hpp"
#include "cli/rewrite/rewrite_flags.hpp"
#include "cli/shared/command.hpp"
#include "cli/shared/write_asked.hpp"
#include "report/report_content.hpp"
#include "report/report_document.hpp"
#include "report/report_exports.hpp"
#include "report/step_picture.hpp"
#include "terminal/command_parser.hpp"
#include "terminal/output.hpp"

namespace perfmodel::cli {
namespace {

struct ReportArguments {
  AnalyzedArguments inputs;  // without files
  report_page::ReportQuestion question;
  std::string compare_gpu, output, speedscope, timeline, csv, picture;
};

Result<void> read_runs(const AnalyzedArguments& arguments, const std::string& gpu_of_graphs,
                       report_page::ReportContent& content) {
  PERFMODEL_TRY(inputs, read_analyzed(arguments, gpu_of_graphs));
  return add_runs(std::move(*inputs), arguments, arguments.anonymizer.get(), content);
}

Result<void> read_kernel_list(const std::string& file, report_page::ReportContent& content) {
  PERFMODEL_TRY(account, report_page::account_of_kernel_list(file));
  content.accounts.push_back(std::move(*account));
  return {};
}

Result<void> read_inputs(const ReportArguments& arguments, report_page::ReportContent& content) {
  AnalyzedArguments runs = arguments.inputs;
  for (const std::string& file : arguments.question.files) {
    if (report_page::is_kernel_list(file)) {
      if (arguments.question.compare.empty()) {
        return decline("expected --compare with a list of kernels, which has no timeline", file);
      }
      PERFMODEL_TRY_TO(read_kernel_list(file, content));
    } else if (report_page::is_document(file)) {
      PERFMODEL_TRY(data, report_page::document_data(file));
      content.documents.push_back(std::move(*data));
    } else {
      runs.files.push_back(file);
    }
  }
  return runs.files.empty() ? Result<void>{} : read_runs(runs, {}, content);
}

// The other run: as recorded, or predicted on --compare-gpu, for a graph else on --gpu.
AnalyzedArguments other_arguments(const ReportArguments& arguments, const std::string& other) {
  AnalyzedArguments made = arguments.inputs;
  made.files = {other};
  made.target.gpu = arguments.compare_gpu;
  made.target.rewrites.clear();
  made.target.measured = {};
  if (!arguments.question.against.empty()) made.iterations.reset();
  return made;
}

Result<void> read_content(const ReportArguments& arguments, report_page::ReportContent& content) {
  PERFMODEL_TRY_TO(read_inputs(arguments, content));
  const std::string& compare = arguments.question.compare;
  const std::string& other = compare.empty() ? arguments.question.against : compare;
  if (other.empty()) return {};
  if (content.accounts.size() != 1) {
    return decline(
        fmt::format("expected one run to compare with {}, found {}",
                    compare.empty() ? "--against" : "--compare", content.accounts.size()),
        other);
  }
  PERFMODEL_TRY_TO(
      report_page::is_kernel_list(other)
          ? read_kernel_list(other, content)
          : read_runs(other_arguments(arguments, other), arguments.inputs.target.gpu, content));
  name_compared(arguments.question, content);
  return {};
}

Result<void> write_exports(const ReportArguments& arguments, const std::string& title,
                           const report_page::ReportContent& content) {
  PERFMODEL_TRY_TO(write_asked(arguments.speedscope, [&] {
    return to_text(report_page::speedscope_data(title, content.runs));
  }));
  if (!arguments.timeline.empty()) {
    PERFMODEL_TRY_TO(report_page::write_chrome_trace(content.runs, arguments.timeline));
  }
  if (!content.runs.empty()) {
    PERFMODEL_TRY_TO(write_asked(
        arguments.picture, [&] { return report_page::step_picture(title, content.runs.front()); }));
  }
  return write_asked(arguments.csv, [&] { return report_page::kernels_csv(content.runs); });
}

Result<void> run_report(const ReportArguments& arguments) {
  report_page::ReportContent content;
  PERFMODEL_TRY_TO(read_content(arguments, content));
  std::string title = report_page::title_of(arguments.question, content);
  Json data = document(schemas::kReport);
  data.update(report_page::page_data(arguments.question, content, title, recordings_json()));
  if (Anonymizer* anonymizer = arguments.inputs.anonymizer.get()) {
    data = report_page::anonymous_json(data, *anonymizer);
    anonymizer->replace(title);
  }
  PERFMODEL_TRY_TO(write_exports(arguments, title, content));
  PERFMODEL_TRY_TO(write_file(arguments.output, report_page::report_page(title, data)));
  return print(arguments.output + "\n");
}

void check_report_arguments(const ReportArguments& arguments) {
  if (!arguments.output.ends_with(".html")) {
    bad_usage("-o", "expected a file name that ends in .html, found " + arguments.output);
  }
}

}  // namespace

Command report_command(CommandParser parent) {
  auto arguments = std::make_shared<ReportArguments>();
  CommandParser app =
      parent.add_subcommand("report", "One page to look at: a self-contained HTML file");
  app.add_argument(
      "INPUT", arguments->question.files,
      "Kineto traces as recorded, or execution graphs to be predicted (several are ranks "
      "of one job), and documents that commands print with --json: whatif, shard, "
      "layout, memory, optimize and others");
  app.add_option("-o,--output FILE", arguments->output, "The page: FILE.html").required();
  app.add_option("--against TRACE", arguments->question.against,
                 "A trace of the same program beside the prediction, with their differences");
  const Option compare =
      app.add_option("--compare FILE", arguments->question.compare,
                     "Another run, with what changed by op, kernel and module: a trace, a graph, "
                     "or a list of kernels (NAME.kernels.json.gz)");
  compare.excludes(app.option("--against"));
  app.add_option("--compare-gpu NAME", arguments->compare_gpu,
                 "The GPU of the other run (default: as recorded; for a graph --gpu)")
      .needs(compare);
  app.add_option("--title TEXT", arguments->question.title, "Headline of the page");
  app.add_option("--slices N", arguments->question.slices,
                 "Ops and kernels that the timeline draws at most, the longest of each; sums count "
                 "all")
      .check(at_least(1))
      .capture_default_str();
  app.add_option("--speedscope FILE.json", arguments->speedscope,
                 "Also as a profile for speedscope.app");
  app.add_option("--timeline FILE", arguments->timeline,
                 "Also as a Chrome trace for ui.perfetto.dev (.json or .json.gz)");
  app.add_option("--csv FILE.csv", arguments->csv, "Also all kernels as a table");
  app.add_option("--picture FILE.svg", arguments->picture,
                 "Also the first run's step as a small picture");
  add_analyzed(app, arguments->inputs);
  app.footer(kRewritesRule);
  app.callback([arguments] { check_report_arguments(*arguments); });
  return {app, [arguments] { return run_report(*arguments); }};
}

}  // namespace perfmodel::cli
