#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <memory>

#include "base/plain_text.hpp"
#include "cli/shared/arguments.hpp"
#include "cli/shared/command.hpp"
#include "cli/shared/overheads_option.hpp"
#include "cli/shared/read_files.hpp"
#include "overheads/anonymous_table.hpp"
#include "overheads/pool_overheads.hpp"
#include "perfmodel/choose_overheads.hpp"
#include "perfmodel/graph/read_execution_graph.hpp"
#include "perfmodel/overheads.hpp"
#include "terminal/command_parser.hpp"
#include "terminal/output.hpp"
#include "terminal/text_table.hpp"

namespace perfmodel::cli {
namespace {

struct OverheadsArguments {
  std::vector<std::string> traces, graphs;
  std::string method = "context", scale_to, output, host;
  double profiler_cost_us = 0;
  Window iterations;
  ReadOptions reading;
  bool json = false, pool = false, keep_names = false, as_recorded = false;
  std::vector<std::string> without_collector;
  std::size_t top = 10;
};

// File names without folders: the command names its inputs, not their places.
std::string command_line(const OverheadsArguments& arguments) {
  std::string text = "perfpredict overheads";
  if (arguments.pool) text += " --pool";
  if (!arguments.host.empty()) text += " --host " + arguments.host;
  for (const std::string& trace : arguments.traces) text += " " + file_name(trace);
  if (!arguments.graphs.empty()) text += " --graph";
  for (const std::string& graph : arguments.graphs) text += " " + file_name(graph);
  if (!arguments.pool) text += " --method " + arguments.method;
  if (arguments.profiler_cost_us > 0) {
    text += fmt::format(" --profiler-cost {}", arguments.profiler_cost_us);
  }
  if (arguments.as_recorded) text += " --as-recorded";
  if (!arguments.without_collector.empty()) {
    text += fmt::format(" --without-collector {}", fmt::join(arguments.without_collector, ","));
  }
  if (arguments.iterations) {
    text += fmt::format(" --iterations {}:{}", arguments.iterations->first,
                        arguments.iterations->second);
  }
  if (!arguments.scale_to.empty()) text += " --scale-to " + file_name(arguments.scale_to);
  return text;
}

Result<OverheadTable> learn(const OverheadsArguments& arguments) {
  PERFMODEL_TRY(method, parse_overhead_method(arguments.method));
  PERFMODEL_TRY(traces, read_trace_files(arguments.traces, arguments.reading));
  std::deque<ExecutionGraph> graphs;
  std::vector<OverheadSource> sources;
  for (const Trace& trace : *traces) sources.push_back({.trace = &trace});
  for (std::size_t i = 0; i < arguments.graphs.size(); ++i) {
    if (arguments.graphs[i] == "-") continue;
    PERFMODEL_TRY(graph, read_graph_file(arguments.graphs[i], arguments.reading));
    sources[i].graph = &graphs.emplace_back(std::move(*graph));
  }
  return learn_overheads(sources,
                         {.method = *method,
                          .profiler_cost_us = arguments.profiler_cost_us,
                          .iterations = arguments.iterations},
                         arguments.as_recorded);
}

std::vector<std::string> stats_row(std::string name, const OverheadStats& stats) {
  if (stats.count == 0) return {std::move(name), "0", "-", "-", "-"};
  const auto us = [](double value) { return fmt::format("{:.2f}", value); };
  return {std::move(name), grouped(stats.count), us(stats.mean_us), us(stats.median_us),
          us(stats.std_us)};
}

std::string overheads_text(const OverheadTable& table, const OverheadsArguments& arguments,
                           bool bold) {
  TextList head;
  head.row("GPU", table.gpu.empty() ? "not named" : table.gpu);
  head.row("method", std::string(to_string(table.method)));
  head.row("sources", fmt::format("{}", fmt::join(table.sources, ", ")));
  head.row("iterations", grouped(table.iterations));
  head.row("collector", std::string(to_string(table.collector)) +
                            (table.without_collector ? ", taken out" : ""));
  if (table.profiler_cost_us > 0) {
    head.row("profiler cost", fmt::format("{} µs per event, subtracted", table.profiler_cost_us));
  }
  std::string text;
  for (const RecordingFinding& finding : table.recording.findings) {
    text += wrapped(finding.sentence, "  warning: ", 4);
  }
  text += "\n" + head.text();

  TextTable programs{"Programs pooled", "GPU", "launch µs", "host ×", "shared"};
  for (const OverheadProgram& program : table.programs) {
    const bool out = !program.left_out.empty();
    programs.row({program.name, program.gpu, fmt::format("{:.2f}", program.launch_us),
                  out ? "left out" : fmt::format("{:.3f}", program.host_scale),
                  out ? "-" : percent(program.shared, 0)});
  }
  if (!programs.empty()) text += "\n" + programs.text(bold);

  TextTable terms{"Overheads", "count", "mean µs", "median µs", "std µs"};
  for (const HostTerm& host : kHostTerms) {
    auto row = stats_row(fmt::format("{}  {}", host.name, host.meaning),
                         host.figures ? (table.*host.figures).all : stats_of_all(table.t4));
    if (!host.figures && row[1] != "0") row[3] = row[4] = "";  // medians do not add up
    terms.row(std::move(row));
  }
  text += "\n" + terms.text(bold);

  TextTable gaps{"T1 by kind of gap", "count", "mean µs", "median µs", "std µs"};
  for (auto gap : {GapClass::kSibling, GapClass::kLabel, GapClass::kThread, GapClass::kIteration,
                   GapClass::kList}) {
    const auto at = table.t1.by_name.find(gap_class_key(gap));
    if (at != table.t1.by_name.end()) gaps.row(stats_row(at->second.name, at->second.stats));
  }
  if (!gaps.empty()) text += "\n" + gaps.text(bold);

  TextTable calls{"T4 by call", "count", "mean µs", "median µs", "std µs"};
  for (const auto& [call, stats] : table.t4) calls.row(stats_row(call, stats));
  if (!calls.empty()) text += "\n" + calls.text(bold);

  const auto ops = ops_by_host_time(table);
  TextTable longest{"Ops by host time", "count", "total ms", "mean µs"};
  for (std::size_t i = 0; i < std::min(arguments.top, ops.size()); ++i) {
    const auto& [name, stats] = ops[i];
    longest.row({name, grouped(stats.count), fmt::format("{:.3f}", total_us(stats) / 1e3),
                 fmt::format("{:.2f}", stats.mean_us)});
  }
  if (!longest.empty()) {
    text += "\n" + longest.text(bold);
    if (ops.size() > arguments.top) {
      text += fmt::format("  ({} more names)\n", ops.size() - arguments.top);
    }
  }
  if (!table.templates.lists.empty()) {
    text +=
        fmt::format("\n  {} of launches for {}\n", counted(table.templates.lists.size(), "list"),
                    counted(table.templates.by_key.back().size(), "op name"));
  }
  if (!arguments.output.empty())
    text += fmt::format("\n  Written to {}\n", plain_text(arguments.output));
  return text + warnings_text(table.warnings);
}

Result<void> run_overheads(const OverheadsArguments& arguments) {
  PERFMODEL_TRY(table, arguments.pool ? pool_overhead_files(arguments.traces, arguments.host,
                                                            arguments.without_collector)
                                      : learn(arguments));
  table->command = command_line(arguments);
  if (!arguments.scale_to.empty()) PERFMODEL_TRY_TO(scale_to_file(*table, arguments.scale_to));
  if (!arguments.keep_names) {
    Anonymizer anonymizer = Anonymizer::of_this_machine();
    anonymize(*table, anonymizer);
    if (anonymizer.count() > 0) {
      table->warnings.push_back(fmt::format(
          "{} with names of users, hosts, addresses or mails have pseudonyms in the table "
          "(--keep-names keeps them)",
          counted(anonymizer.count(), "text")));
    }
  }
  if (!arguments.output.empty()) PERFMODEL_TRY_TO(write_overheads(*table, arguments.output));
  if (arguments.json) return print(overheads_json(*table));
  return print_report(overheads_text(*table, arguments, bold_allowed()));
}

void check_counts(const OverheadsArguments& arguments) {
  if (arguments.traces.empty()) missing_argument("TRACE");
  if (!arguments.graphs.empty() && arguments.graphs.size() != arguments.traces.size()) {
    bad_usage("--graph", fmt::format("expected one graph per trace ({}, \"-\" for none), found {}",
                                     arguments.traces.size(), arguments.graphs.size()));
  }
}

}  // namespace

Command overheads_command(CommandParser parent) {
  auto arguments = std::make_shared<OverheadsArguments>();
  const CommandParser app = parent.add_subcommand(
      "overheads", "Learn the host overheads T1-T5, TX and launches from traces");
  app.add_option("TRACE", arguments->traces, "Kineto traces (.json or .json.gz)");
  app.add_option("--graph GRAPH", arguments->graphs,
                 "Execution graphs of the same programs, one per trace in order, - for none");
  const Option pool =
      app.add_flag("--pool", arguments->pool,
                   "The files are overhead tables of one program each: bring them to one "
                   "host and join them, programs weighing alike");
  app.add_option("--host NAME", arguments->host,
                 "With --pool: name of the table whose host the others are brought to (default: "
                 "the geometric mean of all)")
      .needs(pool);
  app.add_option("--method", arguments->method,
                 "context: without waits, by context; lin: Lin et al. 2022; raw: as recorded")
      .check(one_of({"context", "lin", "raw"}))
      .capture_default_str();
  app.add_option("--profiler-cost US", arguments->profiler_cost_us,
                 "With --method lin: microseconds to subtract per recorded event")
      .check(at_least(0));
  add_as_recorded(app, arguments->as_recorded);
  app.add_option("--without-collector measured|TERM=FACTOR,...", arguments->without_collector,
                 "With --pool: remove the time that recording added: by the measured cost of each "
                 "table's collector, or by factors of the terms")
      .needs(pool);
  add_window(app, "--iterations", arguments->iterations,
             "Only iterations A to B - 1 of each trace, counted from 0");
  app.add_option(
      "--scale-to TABLE", arguments->scale_to,
      "Scale all host times so that ops that this table has, too, take as long as there");
  app.add_option("-o,--output FILE", arguments->output, "Write the table as JSON");
  app.add_option("--top N", arguments->top, "Rows of the op table")
      .check(at_least(0))
      .capture_default_str();
  app.add_flag("--keep-names", arguments->keep_names,
               "Keep names of users, hosts, addresses and mails, which have pseudonyms otherwise, "
               "since tables are published");
  add_reading(app, arguments->reading);
  app.add_flag("--json", arguments->json, "Print the table as JSON, as -o writes it");
  app.callback([arguments] {
    return_swallowed(arguments->traces, arguments->graphs, arguments->graphs.size() / 2);
    check_counts(*arguments);
  });
  return {app, [arguments] { return run_overheads(*arguments); }};
}

}  // namespace perfmodel::cli
