#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <optional>

#include "base/progress_bar.hpp"
#include "cli/shared/arguments.hpp"
#include "cli/shared/command.hpp"
#include "cli/shared/kernel_models_option.hpp"
#include "cli/shared/overheads_option.hpp"
#include "cli/shared/write_asked.hpp"
#include "perfmodel/data_files.hpp"
#include "perfmodel/suite/run_suite.hpp"
#include "suite/suite_plot.hpp"
#include "suite_report.hpp"
#include "sweep_graphs.hpp"
#include "terminal/command_parser.hpp"
#include "terminal/output.hpp"

namespace perfmodel::cli {
namespace {

constexpr const char* kList = "list";

struct SuiteArguments {
  std::string suite, overheads, csv, plot;
  suite::SuiteOptions options;
  bool json = false;
};

Result<void> list_suites(const SuiteArguments& arguments, const std::filesystem::path& data) {
  const auto suites = suite::read_suites(data);
  if (!suites) return Unexpected{suites.error()};
  if (arguments.json) return print_document(schemas::kSuites, suites_json(*suites));
  return print_report(suites_text(*suites, bold_allowed()));
}

Result<suite::SuiteReport> run(const SuiteArguments& arguments, const std::filesystem::path& data) {
  const auto found = suite::find_suite(arguments.suite, data);
  if (!found) return Unexpected{found.error()};
  suite::SuiteOptions options = arguments.options;
  options.data = data;
  options.overheads = arguments.overheads;
  std::optional<ProgressBar> bar;
  options.progress = [&bar](std::size_t done, std::size_t of) {
    if (!bar) bar.emplace("suite", of);
    bar->update(done);
  };
  auto report = suite::run_suite(*found, sweep_toolbox().build, options);
  if (bar) bar->finish();
  return report;
}

// A name that ends in .svg, or a folder; empty: nothing is drawn.
std::filesystem::path plot_file(const SuiteArguments& arguments, const SuiteOutput& output) {
  const std::filesystem::path asked = arguments.plot;
  return asked.empty() || asked.extension() == ".svg" ? asked
                                                      : asked / (output.report.suite.name + ".svg");
}

Result<void> run_suite_command(const SuiteArguments& arguments) {
  const auto data = find_data_folder();
  if (!data) return Unexpected{data.error()};
  if (arguments.suite == kList) return list_suites(arguments, *data);
  auto report = run(arguments, *data);
  if (!report) return Unexpected{report.error()};
  const SuiteOutput output{
      .report = std::move(*report),
      .kernel_models = arguments.options.kernel_models,
      .host = arguments.overheads.empty() ? "reference" : file_name(arguments.overheads),
      .host_scale = arguments.options.host_scale};
  auto written = write_asked(plot_file(arguments, output), [&] { return suite_svg(output); });
  if (written) written = write_asked(arguments.csv, [&] { return suite_csv(output.report); });
  if (!written) return written;
  if (arguments.json) return print_document(schemas::kSuiteReport, suite_json(output));
  return print_report(suite_text(output, bold_allowed()));
}

void check_suite_flags(const SuiteArguments& arguments) {
  const bool draws = !arguments.plot.empty() || !arguments.csv.empty();
  if (arguments.suite == kList && draws) {
    bad_usage("suite", "expected a suite with --csv or --plot, found list");
  }
}

}  // namespace

Command suite_command(CommandParser parent) {
  auto arguments = std::make_shared<SuiteArguments>();
  const CommandParser app = parent.add_subcommand(
      "suite", "A training benchmark on a GPU: throughput, utilisation and memory over the batch");
  app.add_option("suite", arguments->suite,
                 "list: what there is; the name of a suite; or a file of one's own "
                 "(docs/suites.md)")
      .required()
      .type_name("SUITE");
  app.add_option("--gpu", arguments->options.gpu,
                 "A known name, or a GPU file (default: the suite's)")
      .type_name("NAME");
  app.add_option("--only", arguments->options.models, "Models, as `suite list` names them")
      .delimiter(',')
      .type_name("NAME,...");
  app.add_option("--batches", arguments->options.batches,
                 "Batch sizes of all models instead of the suite's")
      .delimiter(',')
      .check(at_least(1))
      .type_name("B,...");
  add_overheads_option(app, arguments->overheads, kOverheadsHelp);
  add_scale_host(app, arguments->options.host_scale);
  add_models_option(app, arguments->options.kernel_models);
  app.add_option("--threads", arguments->options.threads,
                 "Threads (default: all that the machine has)")
      .check(at_least(1))
      .type_name("N");
  app.add_option("--csv", arguments->csv, "Write the rows as CSV").type_name("FILE");
  app.add_option("--plot", arguments->plot,
                 "Draw throughput and utilisation: a file that ends in .svg, or a folder")
      .type_name("FILE");
  app.add_flag("--json", arguments->json, "Print one JSON document");
  app.callback([arguments] { check_suite_flags(*arguments); });
  return {app, [arguments] { return run_suite_command(*arguments); }};
}

}  // namespace perfmodel::cli
