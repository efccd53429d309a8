#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/plain_text.hpp"
#include "base/progress_bar.hpp"
#include "cli/shared/arguments.hpp"
#include "cli/shared/command.hpp"
#include "cli/shared/kernel_models_option.hpp"
#include "cli/shared/overheads_option.hpp"
#include "cli/shared/prediction_parts.hpp"
#include "cli/shared/write_asked.hpp"
#include "perfmodel/data_files.hpp"
#include "perfmodel/suite/run_suite.hpp"
#include "suite/suite_plot.hpp"
#include "suite/suite_results.hpp"
#include "sweep_graphs.hpp"
#include "terminal/command_parser.hpp"
#include "terminal/field_table.hpp"
#include "terminal/output.hpp"

namespace perfmodel::cli {
namespace {

using suite::SuiteModelReport;
using suite::SuiteOutput;
using suite::SuiteRow;

constexpr double kSaturated = 0.9;  // share of the best throughput

// Three digits or more.
std::string figure(double value) {
  if (value == 0) return "0";
  if (value >= 1000) return grouped(std::llround(value));
  return fmt::format("{:.{}f}", value, value >= 100 ? 0 : value >= 10 ? 1 : 2);
}

std::string mib(double bytes) { return figure(bytes / (1 << 20)); }

// Numbers under the right end of their header.
std::string batch_cell(const SuiteModelReport& report, const SuiteRow& row) {
  return fmt::format("{:>{}}", row.batch, text_width(report.model.batch_unit));
}

std::string suite_title(const SuiteModelReport& report, bool bold) {
  const std::string name = plain_text(report.model.title);
  const std::string title = bold ? "\033[1m" + name + "\033[0m" : name;
  return fmt::format("  {}, {}: {} parameters\n", title, plain_text(report.model.domain),
                     grouped(report.parameters));
}

std::string table_of(const SuiteModelReport& report, bool bold) {
  TextTable table({report.model.batch_unit, report.model.unit + "/s", "step ms", "range ms", "GPU",
                   "FP32", report.uses_matrix_units() ? "matrix" : "", "CPU"});
  for (const SuiteRow& row : report.rows) {
    table.row({batch_cell(report, row), figure(row.throughput), milliseconds(row.step_us),
               milliseconds(row.low_us) + " to " + milliseconds(row.high_us),
               percent(row.gpu_utilization, 0), percent(row.fp32_utilization, 0),
               report.uses_matrix_units() ? percent(row.matrix_utilization, 0) : "",
               percent(row.cpu_utilization, 0)});
  }
  return table.text(bold);
}

// As far as it is shown.
bool same_memory(const SuiteRow& a, const SuiteRow& b) {
  return std::ranges::equal(a.memory, b.memory, [](const auto& x, const auto& y) {
    return x.name == y.name && mib(x.bytes) == mib(y.bytes);
  });
}

// A line if all batches hold as much, else a table.
std::string memory_of(const SuiteModelReport& report, bool bold) {
  const SuiteRow& first = report.rows.front();
  const bool same = std::ranges::all_of(
      report.rows, [&](const SuiteRow& row) { return same_memory(row, first); });
  if (same) {
    std::string text = fmt::format("memory {} MiB:", mib(first.needed_bytes));
    for (const suite::MemoryPurpose& purpose : first.memory) {
      text += fmt::format(" {} {},", purpose.name, mib(purpose.bytes));
    }
    text.pop_back();
    return wrapped(text, "  ", 2);
  }
  std::vector<std::string> headers = {report.model.batch_unit, "MiB"};
  std::vector<std::size_t> shown;  // purposes that any row has
  for (std::size_t i = 0; i < first.memory.size(); ++i) {
    const bool any = std::ranges::any_of(
        report.rows, [&](const SuiteRow& row) { return row.memory[i].bytes > 0; });
    if (!any) continue;
    shown.push_back(i);
    headers.emplace_back(first.memory[i].name);
  }
  TextTable table(headers);
  for (const SuiteRow& row : report.rows) {
    std::vector<std::string> cells = {batch_cell(report, row), mib(row.needed_bytes)};
    for (std::size_t i : shown) cells.push_back(mib(row.memory[i].bytes));
    table.row(std::move(cells));
  }
  return table.text(bold);
}

// "; the host sets the pace up to 16".
std::string host_bound(const SuiteModelReport& report) {
  const SuiteRow* last = nullptr;
  for (const SuiteRow& row : report.rows) {
    if (row.cpu_utilization > row.gpu_utilization) last = &row;
  }
  if (!last) return "";
  if (last == &report.rows.back()) return "; the host sets the pace throughout";
  return fmt::format("; the host sets the pace up to {}", last->batch);
}

// "best 212 images/s at 128, 90 % of it from 32 on: GPU 99 %, FP32 45 %, CPU 30 %; ...".
std::string summary_of(const SuiteModelReport& report) {
  const SuiteRow& best = report.best();
  std::string text =
      fmt::format("best {} {}/s at {}", figure(best.throughput), report.model.unit, best.batch);
  if (report.rows.size() > 1) {
    text += fmt::format(", {} of it from {} on", percent(kSaturated, 0),
                        report.first_to_reach(kSaturated).batch);
  }
  return wrapped(text + host_bound(report), "  ", 2);
}

std::size_t rows_out_of_range(const suite::SuiteReport& report) {
  std::size_t count = 0;
  for (const SuiteModelReport& model : report.models) {
    for (const SuiteRow& row : model.rows) count += row.kernels_out_of_range > 0;
  }
  return count;
}

std::string legend(const SuiteOutput& output) {
  const suite::SuiteReport& report = output.report;
  TextList list;
  list.row("suite", report.suite.title);
  list.row("GPU",
           fmt::format("{} ({}), {:.2f} TFLOP/s in fp32, {:.4g} GiB", report.gpu.title,
                       report.gpu.name, report.fp32_peak_flop_per_s / 1e12, report.gpu.dram_gb));
  list.row("host", output.host + (output.host_scale == 1
                                      ? ""
                                      : fmt::format(", its time times {:g}", output.host_scale)));
  list.row("GPU %", "time in which a kernel or copy runs / elapsed time");
  list.row(
      "FP32 %",
      "FLOP of the kernels in fp32 / what the fp32 peak would do while the GPU is busy; matrix "
      "the same of matrix units: counted FLOP, no counters of the pipes");
  list.row("CPU %", "time in which the host works / elapsed time, of one core");
  list.row("memory",
           "each purpose at its own peak; what is needed, at the common one (docs/memory.md)");
  if (const auto rows = rows_out_of_range(report); rows > 0) {
    list.row("ranges", fmt::format("{} of {} rows have kernels outside of what their model was "
                                   "checked on (kernels_out_of_range in --json)",
                                   rows, report.row_count()));
  }
  return list.text();
}

std::string suite_text(const SuiteOutput& output, bool bold) {
  std::string text = "\n";
  for (const std::string& warning : output.report.warnings) {
    text += wrapped(warning, "  warning: ", 4);
  }
  text += legend(output);
  for (const SuiteModelReport& report : output.report.models) {
    text += "\n" + suite_title(report, bold) + table_of(report, bold) + summary_of(report) +
            memory_of(report, bold);
  }
  return text + unmodelled_text(output.report.unmodelled_ops);
}

std::string suites_text(const std::vector<suite::Suite>& suites, bool bold) {
  std::string text;
  for (const suite::Suite& suite : suites) {
    text += fmt::format("\n  {}: {} (on {})\n", suite.name, suite.title, suite.gpu);
    text += field_table(suite.models, suite::kSuiteModelFields,
                        {"name", "title", "domain", "unit", "batches"})
                .text(bold);
  }
  return text;
}

constexpr const char* kList = "list";

struct SuiteArguments {
  std::string suite, overheads, csv, plot;
  suite::SuiteOptions options;
  bool json = false;
};

Result<void> list_suites(const SuiteArguments& arguments, const std::filesystem::path& data) {
  PERFMODEL_TRY(suites, suite::read_suites(data));
  if (arguments.json) return print_document(schemas::kSuites, suites_json(*suites));
  return print_report(suites_text(*suites, bold_allowed()));
}

Result<suite::SuiteReport> run(const SuiteArguments& arguments, const std::filesystem::path& data) {
  PERFMODEL_TRY(found, suite::find_suite(arguments.suite, data));
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
  PERFMODEL_TRY(data, find_data_folder());
  if (arguments.suite == kList) return list_suites(arguments, *data);
  PERFMODEL_TRY(report, run(arguments, *data));
  const SuiteOutput output{
      .report = std::move(*report),
      .kernel_models = arguments.options.kernel_models,
      .host = arguments.overheads.empty() ? "reference" : file_name(arguments.overheads),
      .host_scale = arguments.options.host_scale};
  PERFMODEL_TRY_TO(write_asked(plot_file(arguments, output), [&] { return suite_svg(output); }));
  PERFMODEL_TRY_TO(write_asked(arguments.csv, [&] { return suite_csv(output.report); }));
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
  app.add_argument("suite SUITE", arguments->suite,
                   "list: what there is; the name of a suite; or a file of one's own "
                   "(docs/suites.md)");
  app.add_option("--gpu NAME", arguments->options.gpu,
                 "A known name, or a GPU file (default: the suite's)");
  app.add_option("--only NAME,...", arguments->options.models,
                 "Models, as `suite list` names them");
  app.add_option("--batches B,...", arguments->options.batches,
                 "Batch sizes of all models instead of the suite's")
      .check(at_least(1));
  add_overheads_option(app, arguments->overheads, kOverheadsHelp);
  add_scale_host(app, arguments->options.host_scale);
  add_models_option(app, arguments->options.kernel_models);
  app.add_option("--threads N", arguments->options.threads,
                 "Threads (default: all that the machine has)")
      .check(at_least(1));
  app.add_option("--csv FILE", arguments->csv, "Write the rows as CSV");
  app.add_option("--plot FILE", arguments->plot,
                 "Draw throughput and utilisation: a file that ends in .svg, or a folder");
  app.add_flag("--json", arguments->json, "Print one JSON document");
  app.callback([arguments] { check_suite_flags(*arguments); });
  return {app, [arguments] { return run_suite_command(*arguments); }};
}

}  // namespace perfmodel::cli
