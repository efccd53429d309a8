#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/number_text.hpp"
#include "cli/predict/comparison_text.hpp"
#include "cli/shared/anonymize_option.hpp"
#include "cli/shared/arguments.hpp"
#include "cli/shared/command.hpp"
#include "cli/shared/read_files.hpp"
#include "explain/measured_memory_results.hpp"
#include "measured_memory_report.hpp"
#include "perfmodel/detail/allocator_snapshot.hpp"
#include "perfmodel/detail/output_file.hpp"
#include "perfmodel/detail/trace_comparison.hpp"
#include "perfmodel/detail/trace_ranks.hpp"
#include "terminal/command_parser.hpp"
#include "terminal/field_table.hpp"
#include "terminal/output.hpp"
#include "trace/comparison_results.hpp"
#include "trace_output.hpp"

namespace perfmodel::cli {
namespace {

std::string largest_blocks(const AllocatorSnapshot& snapshot, bool bold) {
  TextTable table{"Largest live blocks", "bytes", "<device"};
  for (const SnapshotDevice& device : snapshot.devices) {
    for (const auto& block : device.largest) {
      table.row({block.frame.empty() ? fmt::format("{:#x}", block.address) : block.frame,
                 grouped(block.bytes), device.memory.device});
    }
  }
  return table.empty() ? "" : "\n" + table.text(bold);
}

std::string snapshot_text(const AllocatorSnapshot& snapshot, bool bold) {
  TextList head;
  head.row("snapshot", file_name(snapshot.source));
  const TextTable at_the_end =
      field_table(snapshot.devices, kSnapshotDeviceFields,
                  {"device", "allocated_bytes", "reserved_bytes", "free_segment_bytes",
                   "inactive_split_bytes", "pending_free_bytes", "unused_bytes"});
  std::string text = "\n" + head.text() + measured_memory_text(curves(snapshot), bold) + "\n" +
                     at_the_end.text(bold) + largest_blocks(snapshot, bold);
  return text + warnings_text(snapshot.warnings);
}

struct TraceArguments {
  std::vector<std::string> traces;
  std::string memory_curve, compare, csv, timeline;
  std::shared_ptr<Anonymizer> anonymizer;
  Window iterations;
  ReadOptions reading;
  bool json = false, full = false;
  std::optional<std::size_t> top;
};

constexpr std::size_t kRowsOfScreen = 8, kRowsOfFullTables = 25, kAllRows = SIZE_MAX;

// Calls of Python name files.
void anonymize_snapshot(AllocatorSnapshot& snapshot, Anonymizer& anonymizer) {
  const auto visit = [&snapshot](const auto& change) {
    change(snapshot.source);
    for (std::string& warning : snapshot.warnings) change(warning);
    for (SnapshotDevice& device : snapshot.devices) {
      for (SnapshotDevice::Block& block : device.largest) change(block.frame);
      change(device.memory.peak_op);
    }
  };
  visit([&](const std::string& text) { anonymizer.learn(text); });
  visit([&](std::string& text) { anonymizer.replace(text); });
}

Result<void> run_snapshot(const TraceArguments& arguments) {
  if (arguments.iterations) {
    return decline(
        "expected a trace for --iterations, found a snapshot of the allocator, which has none",
        arguments.traces.front());
  }
  PERFMODEL_TRY(snapshot, read_allocator_snapshot(arguments.traces.front()));
  if (arguments.anonymizer) anonymize_snapshot(*snapshot, *arguments.anonymizer);
  if (!arguments.memory_curve.empty()) {
    PERFMODEL_TRY_TO(
        write_memory_curves(curves(*snapshot), snapshot->source, arguments.memory_curve));
  }
  if (arguments.json) return print_document(schemas::kAllocatorSnapshot, snapshot_json(*snapshot));
  return print_report(snapshot_text(*snapshot, bold_allowed()));
}

Result<void> run_comparison(const TraceArguments& arguments) {
  PERFMODEL_TRY(traces, read_trace_files({arguments.traces.front(), arguments.compare},
                                         arguments.reading, arguments.anonymizer.get()));
  PERFMODEL_TRY(comparison, compare_traces((*traces)[0], (*traces)[1], arguments.iterations));
  const std::string before =
                        with_pseudonyms(file_name(arguments.traces.front()), arguments.anonymizer),
                    after = with_pseudonyms(file_name(arguments.compare), arguments.anonymizer);
  if (arguments.json) {
    return print_document(schemas::kTraceComparison, comparison_json(*comparison, before, after));
  }
  return print_report(comparison_text(
      *comparison, before, after, arguments.top.value_or(arguments.full ? kAllRows : kRowsOfScreen),
      bold_allowed()));
}

Result<void> run_ranks(const TraceArguments& arguments) {
  PERFMODEL_TRY_TO(all_different(arguments.traces));
  PERFMODEL_TRY(traces,
                read_trace_files(arguments.traces, arguments.reading, arguments.anonymizer.get()));
  PERFMODEL_TRY(found, trace_findings(*traces, arguments.iterations));
  PERFMODEL_TRY(ranks, compare_ranks(*traces, arguments.iterations));
  if (!arguments.timeline.empty()) {
    PERFMODEL_TRY_TO(write_ranks_timeline(*traces, *ranks, arguments.timeline));
  }
  if (arguments.json) return print_document(schemas::kTrace, trace_ranks_json(*found, *ranks));
  return print_report(
      ranks_text(*found, *ranks, arguments.top.value_or(kRowsOfScreen), bold_allowed()));
}

Result<void> write_tables(const TraceFindings& found, const std::string& folder) {
  PERFMODEL_TRY_TO(make_folder(folder, "expected a folder for tables, "));
  for (const auto& [name, csv] : trace_tables(found)) {
    PERFMODEL_TRY_TO(write_file(std::filesystem::path(folder) / (name + ".csv"), csv));
  }
  return {};
}

Result<void> run_trace(const TraceArguments& arguments) {
  if (!arguments.memory_curve.empty()) PERFMODEL_TRY_TO(check_curve_name(arguments.memory_curve));
  if (arguments.traces.size() > 1) return run_ranks(arguments);
  const std::string& file = arguments.traces.front();
  if (is_allocator_snapshot(file)) return run_snapshot(arguments);
  if (!arguments.compare.empty()) return run_comparison(arguments);
  PERFMODEL_TRY(trace, read_trace_file(file, arguments.reading, arguments.anonymizer.get()));
  PERFMODEL_TRY(found, trace_findings(*trace, arguments.iterations));
  const TraceReport& content = found->report;
  if (!arguments.memory_curve.empty()) {
    PERFMODEL_TRY_TO(write_memory_curves(content.memory, content.source, arguments.memory_curve));
  }
  if (!arguments.csv.empty()) PERFMODEL_TRY_TO(write_tables(*found, arguments.csv));
  if (arguments.json) return print_document(schemas::kTrace, trace_json(*found));
  const std::size_t top =
      arguments.top.value_or(arguments.full ? kRowsOfFullTables : kRowsOfScreen);
  return print_report(trace_text(*found, top, arguments.full, bold_allowed()));
}

void check_trace_arguments(const TraceArguments& arguments) {
  if (arguments.traces.size() < 2) {
    if (arguments.timeline.empty()) return;
    bad_usage("--timeline", "expected traces of several ranks, found one");
  }
  const std::pair<const char*, bool> of_one_trace[] = {
      {"--compare", !arguments.compare.empty()},
      {"--csv", !arguments.csv.empty()},
      {"--memory-curve", !arguments.memory_curve.empty()}};
  for (const auto& [option, given] : of_one_trace) {
    if (!given) continue;
    bad_usage(option, "expected one trace, found " + std::to_string(arguments.traces.size()));
  }
}

}  // namespace

Command trace_command(CommandParser parent) {
  auto arguments = std::make_shared<TraceArguments>();
  const CommandParser app = parent.add_subcommand("trace", "Where the time of a Kineto trace went");
  app.add_argument("TRACE", arguments->traces,
                   "Kineto traces, several are ranks of one job; or a snapshot of the CUDA "
                   "allocator (.json or .json.gz)");
  add_window(app, "--iterations", arguments->iterations,
             "Only iterations A to B - 1, counted from 0");
  app.add_option("--compare TRACE", arguments->compare,
                 "What changed from TRACE to this trace of the same program, per step");
  app.add_flag("--full", arguments->full, "All tables, with more rows; of --compare all rows");
  app.add_option("--top N", arguments->top,
                 "Rows of the tables (default 8, with --full 25; JSON has all)")
      .check(at_least(0));
  app.add_option("--csv FOLDER", arguments->csv,
                 "Write every table whole, one CSV file each, here");
  app.add_option("--memory-curve FILE", arguments->memory_curve,
                 "Memory of each device over time: all records (.csv) or a chart (.svg)");
  app.add_option("--timeline FILE", arguments->timeline,
                 "Several traces: write all ranks on one clock as a Chrome trace (.json or "
                 ".json.gz)");
  add_reading(app, arguments->reading);
  add_anonymize(app, arguments->anonymizer);
  app.add_flag("--json", arguments->json, "Print one JSON document");
  app.callback([arguments] { check_trace_arguments(*arguments); });
  return {app, [arguments] { return run_trace(*arguments); }};
}

}  // namespace perfmodel::cli
