#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/number_text.hpp"
#include "cli/shared/arguments.hpp"
#include "measured_memory_report.hpp"
#include "terminal/field_table.hpp"
#include "trace/trace_results.hpp"
#include "trace_output.hpp"

namespace perfmodel::cli {
namespace {

constexpr std::size_t kEveryRow = std::numeric_limits<std::size_t>::max();

std::string trace_stream_name(int device, std::int64_t stream) {
  return fmt::format("device {} stream {}", device, stream);
}

// The first rows as a table, and how many are left out, if `more` has a word for them.
template <class Rows, class Row>
std::string trace_rows_text(const Rows& rows, const ResultFields<Row>& fields,
                            const std::vector<std::string_view>& names, std::size_t top,
                            std::string_view more, bool bold) {
  const TextTable table = field_table(rows, fields, names, "", top);
  if (table.empty()) return {};
  std::string text = "\n" + table.text(bold);
  if (rows.size() > top && !more.empty()) {
    text += fmt::format("  ({} {})\n", rows.size() - top, more);
  }
  return text;
}

std::string trace_ops_text(const std::vector<TraceAnalysis::Op>& ops,
                           const ResultFields<TraceAnalysis::Op>& fields, std::size_t top,
                           bool bold) {
  return trace_rows_text(ops, fields,
                         {"name", "count", "device_self_us", "device_total_us", "host_self_us",
                          "tflop_per_s", "gb_per_s", "roofline_share"},
                         top, "more", bold);
}

std::string trace_head_text(const TraceReport& report) {
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
  return "\n" + head.text();
}

// Rows add up to the span.
std::string trace_breakdown_text(const TraceAnalysis& analysis, bool bold) {
  const TraceAnalysis::Breakdown& at = analysis.breakdown;
  if (at.span_us <= 0) return {};
  TextTable table{"GPU time", "ms", "share", "<"};
  const auto row = [&](const char* name, double us, std::string note = "") {
    table.row({name, milliseconds(us), percent_of(us, at.span_us), std::move(note)});
  };
  row("compute", at.compute_us);
  if (at.comm_us > 0) {
    row("communication, exposed", at.exposed_comm_us,
        fmt::format("of {} ms; {} under kernels", milliseconds(at.comm_us),
                    percent(at.comm_overlap_fraction.value_or(0))));
  }
  if (at.memcpy_us > 0) {
    row("copies, exposed", at.exposed_memcpy_us,
        fmt::format("of {} ms", milliseconds(at.memcpy_us)));
  }
  row("idle", at.idle_us);
  row("first start to last end", at.span_us);
  return "\n" + table.text(bold);
}

std::string trace_idle_text(const TraceAnalysis& analysis, bool full, bool bold) {
  constexpr std::size_t kStreams = 4;
  TextTable table{"Idle streams", "host late ms", "gap < 30 µs ms", "other ms",
                  "queue mean",   "max",          "full ms"};
  std::vector<const TraceAnalysis::Idle*> rows;
  for (const auto& idle : analysis.idle) rows.push_back(&idle);
  const std::size_t shown = full ? rows.size() : std::min(kStreams, rows.size());
  for (std::size_t i = 0; i < shown; ++i) {
    const auto& idle = *rows[i];
    const auto queue = std::ranges::find_if(analysis.queue_length, [&](const auto& at) {
      return at.device == idle.device && at.stream == idle.stream;
    });
    const bool known = queue != analysis.queue_length.end();
    table.row({trace_stream_name(idle.device, idle.stream), milliseconds(idle.host_wait_us),
               milliseconds(idle.kernel_wait_us), milliseconds(idle.other_us),
               known ? fmt::format("{:.1f}", queue->mean) : "",
               known ? std::to_string(queue->max) : "",
               known ? milliseconds(queue->at_limit_us) : ""});
  }
  if (table.empty()) return {};
  std::string text = "\n" + table.text(bold);
  if (shown < rows.size()) text += fmt::format("  ({} more streams)\n", rows.size() - shown);
  const auto& launch = analysis.launch;
  if (launch.count > 0) {
    text += wrapped(
        fmt::format("{}: {:.1f} µs to the start of the work (median; mean {:.1f}, at most {:.1f}); "
                    "{} take less time than their call",
                    counted(launch.count, "launching call"), launch.median_us, launch.mean_us,
                    launch.max_us, counted(launch.shorter_than_launch, "task")),
        "  ", 2);
  }
  return text;
}

std::string trace_collectives_text(const std::vector<TraceAnalysis::Collective>& collectives,
                                   std::size_t top, bool bold) {
  return trace_rows_text(collectives, kCollectiveFields,
                         {"name", "elements", "group_size", "count", "total_us",
                          "algorithm_gb_per_s", "bus_gb_per_s", "skew_us"},
                         top, "more", bold);
}

}  // namespace

std::string ranks_text(std::span<const TraceFindings> found, const TraceRanks& ranks,
                       std::size_t top, bool bold) {
  TextTable table{"Ranks",      "wall ms",  "compute ms",    "communication ms",
                  "exposed ms", "waits ms", "makes wait ms", "last"};
  for (std::size_t i = 0; i < ranks.ranks.size(); ++i) {
    const TraceRanks::Rank& rank = ranks.ranks[i];
    double wall = 0;
    for (const auto& iteration : found[i].report.iterations) wall += iteration.wall_us;
    table.row({file_name(rank.source), wall > 0 ? milliseconds(wall) : "",
               milliseconds(rank.compute_us), milliseconds(rank.comm_us),
               milliseconds(rank.exposed_comm_us), milliseconds(rank.waiting_us),
               milliseconds(rank.caused_us), std::to_string(rank.last_arrivals)});
  }
  std::vector<std::string> warnings = ranks.warnings;
  for (const TraceFindings& rank : found) {
    for (const std::string& warning : rank.warnings()) {
      warnings.push_back(file_name(rank.report.source) + ": " + warning);
    }
  }
  std::string text = warnings_text(warnings) + "\n" + table.text(bold);
  std::string sentence = fmt::format(
      "{} have all their ranks here, {} have no partner. The busiest rank computes {} more than "
      "the mean.",
      counted(ranks.matched, "collective"), ranks.unmatched, percent(ranks.compute_imbalance));
  if (ranks.straggler) {
    const TraceRanks::Rank& worst = ranks.ranks[*ranks.straggler];
    sentence += fmt::format(" {} makes the others wait most, {} ms in all.",
                            file_name(worst.source), milliseconds(worst.caused_us));
  }
  text += wrapped(sentence, "  ", 2);
  text += trace_collectives_text(ranks.collectives, top, bold);
  return text;
}

std::string trace_text(const TraceFindings& found, std::size_t top, bool full, bool bold) {
  const TraceAnalysis& analysis = found.analysis;
  std::string text =
      warnings_text(found.warnings()) + trace_head_text(found.report) +
      trace_breakdown_text(analysis, bold) + trace_ops_text(analysis.ops, kOpFields, top, bold) +
      trace_idle_text(analysis, full, bold) +
      trace_rows_text(traced_iterations(found), kTracedIterationColumns,
                      {"name", "wall_us", "gpu_busy_us", "busy_share", "kernels", "memcpy",
                       "memset", "runtime_us", "data_loader_us"},
                      top, "more iterations", bold) +
      trace_rows_text(found.report.top_kernels, kTopKernelFields,
                      {"name", "count", "total_us", "mean_us", "max_us"}, top, "more names", bold);
  if (full) {
    text +=
        trace_ops_text(analysis.ops_by_shape, kShapedOpFields, top, bold) +
        trace_collectives_text(analysis.collectives, top, bold) +
        trace_rows_text(analysis.modules, kModuleFields,
                        {"name", "count", "device_total_us", "host_total_us"}, top, "", bold) +
        trace_rows_text(analysis.copies, kCopyFields,
                        {"kind", "count", "total_us", "bytes", "gb_per_s"}, kEveryRow, "", bold) +
        trace_rows_text(analysis.counters, kCounterFields,
                        {"name", "ranges", "total", "mean", "min", "max"}, kEveryRow, "", bold) +
        trace_rows_text(found.report.streams, kStreamFields, {"stream", "tasks", "busy_us"},
                        kEveryRow, "", bold);
  }
  return text + measured_memory_text(found.report.memory, bold);
}

}  // namespace perfmodel::cli
