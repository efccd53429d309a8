#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "arguments.hpp"
#include "command.hpp"
#include "measured_memory_report.hpp"
#include "output.hpp"
#include "perfmodel/trace_report.hpp"
#include "read_files.hpp"
#include "snapshot_report.hpp"
#include "text_table.hpp"

namespace perfmodel::cli {
namespace {

struct TraceArguments {
  std::string trace, memory_curve;
  Window iterations;
  ReadOptions reading;
  bool json = false;
  std::size_t top = 10;
};

Json trace_json(const TraceReport& report) {
  Json json = document(schemas::kTrace);
  json.update({{"trace", file_name(report.source)},
               {"gpu", report.gpu},
               {"rank", report.rank >= 0 ? Json(report.rank) : Json(nullptr)},
               {"world_size", report.world_size >= 0 ? Json(report.world_size) : Json(nullptr)}});
  json["iterations"] = Json::array();
  for (const auto& iteration : report.iterations) {
    json["iterations"].push_back({{"name", iteration.name},
                                  {"wall_us", rounded(iteration.wall_us)},
                                  {"gpu_busy_us", rounded(iteration.gpu_busy_us)},
                                  {"kernels", iteration.kernels},
                                  {"memcpy", iteration.copies},
                                  {"memset", iteration.sets}});
  }
  json["events"] = report.events;
  json["host_ops"] = report.host_ops;
  json["calls"] = report.calls;
  json["annotations"] = report.annotations;
  json["threads"] = report.threads;
  json["kernels_total"] = report.kernels_total;
  json["memcpy_total"] = report.memcpy_total;
  json["memset_total"] = report.memset_total;
  json["gpu_without_launch"] = report.without_launch;
  json["gpu_busy_us"] = rounded(report.gpu_busy_us);
  json["compute_kernel_us"] = rounded(report.compute_kernel_us);
  json["comm_kernel_us"] = rounded(report.comm_kernel_us);
  json["memcpy_us"] = rounded(report.memcpy_us);
  json["memset_us"] = rounded(report.memset_us);
  json["streams"] = report.streams.size();
  json["stream_list"] = Json::array();
  for (const auto& stream : report.streams) {
    json["stream_list"].push_back({{"device", stream.device},
                                   {"stream", stream.stream},
                                   {"tasks", stream.tasks},
                                   {"busy_us", rounded(stream.busy_us)}});
  }
  json["memory"] = measured_memory_json(report.memory);
  json["top_kernels"] = Json::array();
  for (const auto& kernel : report.top_kernels) {
    json["top_kernels"].push_back({{"name", kernel.name},
                                   {"count", kernel.count},
                                   {"total_us", rounded(kernel.total_us)},
                                   {"mean_us", rounded(kernel.mean_us())},
                                   {"min_us", rounded(kernel.min_us)},
                                   {"max_us", rounded(kernel.max_us)},
                                   {"collective", kernel.collective}});
  }
  json["warnings"] = report.warnings;
  return json;
}

std::string trace_text(const TraceReport& report, std::size_t top, bool bold) {
  TextList head;
  head.row("trace", file_name(report.source));
  head.row("GPU", report.gpu.empty() ? "not named" : report.gpu);
  if (report.rank >= 0) {
    head.row("rank", report.world_size > 0 ? fmt::format("{} of {}", report.rank, report.world_size)
                                           : std::to_string(report.rank));
  }
  head.row("events", fmt::format("{}: {}, {}, {} on {}", grouped(report.events),
                                 counted(report.host_ops, "op"), counted(report.calls, "call"),
                                 counted(report.annotations, "annotation"),
                                 counted(report.threads, "host thread")));
  head.row(
      "GPU work",
      fmt::format("{} ({} ms compute, {} ms communication), {} ({} ms), {} ({} ms)",
                  counted(report.kernels_total, "kernel"), milliseconds(report.compute_kernel_us),
                  milliseconds(report.comm_kernel_us),
                  report.memcpy_total == 1 ? "1 copy" : grouped(report.memcpy_total) + " copies",
                  milliseconds(report.memcpy_us), counted(report.memset_total, "set"),
                  milliseconds(report.memset_us)));
  head.row("GPU busy", milliseconds(report.gpu_busy_us) + " ms");
  std::string text = "\n" + head.text();

  TextTable iterations{"Iterations", "wall ms", "GPU busy ms", "share",
                       "kernels",    "copies",  "sets"};
  for (const auto& iteration : report.iterations) {
    iterations.row(
        {iteration.name, milliseconds(iteration.wall_us), milliseconds(iteration.gpu_busy_us),
         percent_of(iteration.gpu_busy_us, iteration.wall_us), grouped(iteration.kernels),
         grouped(iteration.copies), grouped(iteration.sets)});
  }
  if (!iterations.empty()) text += "\n" + iterations.text(bold);

  TextTable streams{"Streams", "tasks", "busy ms"};
  for (const auto& stream : report.streams) {
    streams.row({fmt::format("device {} stream {}", stream.device, stream.stream),
                 grouped(stream.tasks), milliseconds(stream.busy_us)});
  }
  if (!streams.empty()) text += "\n" + streams.text(bold);

  text += measured_memory_text(report.memory, bold);

  TextTable kernels{"Kernels", "count", "total ms", "mean µs", "max µs"};
  for (std::size_t i = 0; i < std::min(top, report.top_kernels.size()); ++i) {
    const auto& kernel = report.top_kernels[i];
    kernels.row({kernel.name, grouped(kernel.count), milliseconds(kernel.total_us),
                 fmt::format("{:.1f}", kernel.mean_us()), fmt::format("{:.1f}", kernel.max_us)});
  }
  if (!kernels.empty()) {
    text += "\n" + kernels.text(bold);
    if (report.top_kernels.size() > top) {
      text += fmt::format("  ({} more names)\n", report.top_kernels.size() - top);
    }
  }
  if (!report.warnings.empty()) text += "\n  Warnings\n";
  for (const std::string& warning : report.warnings) text += wrapped(warning, "  - ", 4);
  return text;
}

Result<void> run_snapshot(SnapshotKind kind, const TraceArguments& arguments) {
  if (kind == SnapshotKind::kPickle) {
    return Unexpected{Error{.code = ErrorCode::kFormat,
                            .message = "found a pickle; as JSON it is read: python3 -c 'import "
                                       "json, pickle; json.dump(pickle.load(open(\"FILE\", "
                                       "\"rb\")), open(\"FILE.json\", \"w\"), default=str)'",
                            .file = arguments.trace}};
  }
  if (arguments.iterations) {
    return Unexpected{Error{.code = ErrorCode::kImpossible,
                            .message = "expected a trace for --iterations, found a snapshot of the "
                                       "allocator, which has none",
                            .file = arguments.trace}};
  }
  const auto snapshot = read_allocator_snapshot(arguments.trace);
  if (!snapshot) return Unexpected{snapshot.error()};
  if (!arguments.memory_curve.empty()) {
    auto written = write_memory_curves(curves(*snapshot), snapshot->source, arguments.memory_curve);
    if (!written) return written;
  }
  if (arguments.json) return print_document(snapshot_json(*snapshot));
  return print_report(snapshot_text(*snapshot, bold_allowed()));
}

Result<void> run_trace(const TraceArguments& arguments) {
  if (!arguments.memory_curve.empty()) {
    if (auto known = check_curve_name(arguments.memory_curve); !known) return known;
  }
  if (auto kind = snapshot_kind(arguments.trace); kind != SnapshotKind::kNone) {
    return run_snapshot(kind, arguments);
  }
  const auto trace = read_trace_file(arguments.trace, arguments.reading);
  if (!trace) return Unexpected{trace.error()};
  const auto content = report(*trace, arguments.iterations);
  if (!content) return Unexpected{content.error()};
  if (!arguments.memory_curve.empty()) {
    auto written = write_memory_curves(content->memory, content->source, arguments.memory_curve);
    if (!written) return written;
  }
  if (arguments.json) return print_document(trace_json(*content));
  return print_report(trace_text(*content, arguments.top, bold_allowed()));
}

}  // namespace

Command trace_command(CLI::App& parent) {
  auto arguments = std::make_shared<TraceArguments>();
  CLI::App* app = parent.add_subcommand("trace", "What a Kineto trace contains");
  app->add_option("TRACE", arguments->trace,
                  "Kineto trace, or snapshot of the CUDA allocator (.json or .json.gz)")
      ->type_name("")
      ->required();
  add_window(*app, "--iterations", arguments->iterations,
             "Only iterations A to B - 1, counted from 0");
  app->add_option("--top", arguments->top, "Rows of the kernel table (JSON has all)")
      ->check(at_least(0))
      ->capture_default_str()
      ->type_name("N");
  app->add_option("--memory-curve", arguments->memory_curve,
                  "Memory of each device over time: all records (.csv) or a chart (.svg)")
      ->type_name("FILE");
  add_reading(*app, arguments->reading);
  app->add_flag("--json", arguments->json, "Print one JSON document");
  return {app, [arguments] { return run_trace(*arguments); }};
}

}  // namespace perfmodel::cli
