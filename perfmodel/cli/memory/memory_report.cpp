#include "memory_report.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <span>
#include <utility>

#include "base/number_text.hpp"
#include "memory/drawn_purposes.hpp"
#include "memory/memory_results.hpp"
#include "plot/area_plot.hpp"
#include "plot/svg_document.hpp"
#include "terminal/field_table.hpp"
#include "terminal/output.hpp"

namespace perfmodel::cli {
namespace {

constexpr double kGib = 1 << 30, kMib = 1 << 20;
constexpr std::size_t kMostWays = 3;

std::string verdict(const PredictedMemory& memory) {
  const double room = memory.headroom_bytes();
  return memory.fits() ? fmt::format("fits, {} GiB to spare", gib_text(room))
                       : fmt::format("does not fit by {} GiB", gib_text(-room));
}

std::string gpu_text(const Gpu& gpu, const PredictedMemory& memory) {
  return fmt::format("{} ({}), {} GiB", gpu.title, gpu.name, gib_text(memory.device_bytes));
}

std::string allocator_text(const PredictedMemory& memory) {
  return fmt::format("allocated {} GiB, reserved {} GiB at the peak",
                     gib_text(memory.peak_allocated_bytes), gib_text(memory.peak_reserved_bytes));
}

std::string all_warnings(const std::vector<std::string>& warnings) {
  std::string text;
  for (const std::string& warning : warnings) text += wrapped(warning, "  warning: ", 4);
  return text;
}

std::string ranks_text(const ZeroSharding& zero) {
  constexpr std::string_view kDivided[] = {"", ", that divide the optimizer state",
                                           ", that divide optimizer state and gradients",
                                           ", that divide optimizer state, gradients and weights"};
  return fmt::format("one of {}{}", zero.world, kDivided[zero.stage]);
}

std::string facts(const MemoryAnswer& answer) {
  const PredictedMemory& memory = answer.report.memory;
  TextList list;
  list.row("graph",
           answer.graph_file + (answer.batch ? fmt::format(", batch {}", *answer.batch) : ""));
  list.fact("rewritten by", fmt::format("{}", fmt::join(answer.rewrites, " ")));
  if (answer.gpu) list.row("GPU", gpu_text(*answer.gpu, memory));
  if (answer.zero.world > 1) list.row("rank", ranks_text(answer.zero));
  list.row("memory", fmt::format("{} GiB, from {} to {}{}", gib_text(memory.needed_bytes()),
                                 gib_text(memory.low_bytes()), gib_text(memory.high_bytes()),
                                 answer.gpu ? ": " + verdict(memory) : ""));
  list.row("PyTorch", allocator_text(memory));
  list.row("activations",
           fmt::format("{} GiB kept for the backward pass", gib_text(memory.activation_bytes)));
  if (!answer.report.peak_op.empty()) {
    list.row("peak",
             fmt::format("in {} (node {})", answer.report.peak_op, answer.report.peak_node));
  }
  if (answer.bytes_per_sample) {
    const double mib = *answer.bytes_per_sample / kMib;
    list.row("per sample",
             fmt::format("{} MiB at the peak", mib < 9999.5
                                                   ? fmt::format("{:.4g}", mib)
                                                   : grouped(static_cast<std::size_t>(mib + 0.5))));
  }
  if (answer.most) {
    const LargestBatch& most = *answer.most;
    const std::string next = gib_text(most.next.needed_bytes());
    list.row("largest batch",
             most.batch == 0
                 ? fmt::format("none: one sample needs {} GiB", next)
                 : fmt::format("{} ({} GiB); {} needs {} GiB", most.batch,
                               gib_text(most.memory.needed_bytes()), most.batch + 1, next));
  }
  return "\n" + list.text();
}

std::string purposes(const MemoryAnswer& answer) {
  const PredictedMemory& memory = answer.report.memory;
  TextTable table{"purpose", "at the peak, GiB", "share", "own peak, GiB"};
  for (std::size_t i = 0; i < kMemoryPurposes; ++i) {
    const auto purpose = static_cast<MemoryPurpose>(i);
    const double bytes = memory.by_purpose[i];
    const double own = std::max(bytes, answer.report.each_peak[i]);
    if (!(own > 0)) continue;
    table.row({std::string(to_string(purpose)), gib_text(bytes),
               percent_of(bytes, memory.needed_bytes()), gib_text(own)});
  }
  return "\n" + table.text(bold_allowed());
}

std::string largest(const MemoryAnswer& answer) {
  if (answer.report.largest.empty()) return "";
  const TextTable table = field_table(answer.report.largest, kLargeStorageFields,
                                      {"op", "bytes", "purpose", "shape", "node"});
  return "\n" + table.text(bold_allowed());
}

std::string ways_text(const MemoryAnswer& answer) {
  if (!answer.ways) return "";
  const WaysToFit& ways = *answer.ways;
  if (ways.fitting.empty()) {
    if (!ways.least) return "";
    return "\n" +
           wrapped(fmt::format("none of {} ways to fit is enough; {} needs the least, {} GiB",
                               ways.tried, ways.least->how,
                               gib_text(ways.least->answer.memory.needed_bytes())),
                   "  ", 2);
  }
  const TextTable table = field_table(
      ways.fitting, kWayFields, {"how", "needed_bytes", "batch", "e2e_us", "time_per_sample_ratio"},
      "", kMostWays);
  return "\n" + table.text(bold_allowed());
}

// Start of the top-level op around a node: the last one that begins before it.
double start_ms(const MemoryAnswer& answer, std::int32_t node) {
  const std::int64_t id = answer.graph.node(node).id;
  const auto behind =
      std::ranges::upper_bound(answer.op_starts, id, {}, &std::pair<std::int64_t, double>::first);
  return behind == answer.op_starts.begin() ? 0 : std::prev(behind)->second / 1000;
}

Result<std::string> timeline_svg(const MemoryAnswer& answer) {
  const bool timed = !answer.op_starts.empty();
  AreaPlot plot{.title = "Allocated memory over one step",
                .x_label = timed ? "host time in the step, ms" : "operation of the step",
                .y_label = "GiB"};
  for (const auto& [purpose, name] : drawn_purposes(answer.report.curve)) {
    AreaPlot::Layer& layer = plot.layers.emplace_back(AreaPlot::Layer{.name = name});
    for (const MemoryPoint& point : answer.report.curve) {
      layer.amounts.push_back(std::max(0.0, point.bytes[purpose] / kGib));
    }
  }
  double latest = 0;
  for (const MemoryPoint& point : answer.report.curve) {
    latest = std::max(latest, timed ? start_ms(answer, point.node) : point.node);
    plot.x.push_back(latest);
  }
  const PredictedMemory& memory = answer.report.memory;
  if (answer.gpu) {
    plot.level = {.name = "left for tensors",
                  .amount = (memory.device_bytes - memory.context_bytes) / kGib};
  }
  PERFMODEL_TRY(panel, area_panel(plot));
  return svg_document(
      "Memory: " + answer.graph_file,
      fmt::format("predicted by perfmodel{}; peak {} GiB allocated, {} GiB reserved",
                  answer.gpu ? " for " + answer.gpu->title : "",
                  gib_text(memory.peak_allocated_bytes), gib_text(memory.peak_reserved_bytes)),
      {*panel}, 1);
}

Result<std::string> timeline_csv(const MemoryAnswer& answer) {
  std::string text = "node,op,start_us";
  for (std::size_t i = 0; i < kMemoryPurposes; ++i) {
    text += fmt::format(",{}", to_string(static_cast<MemoryPurpose>(i)));
  }
  text += '\n';
  for (const MemoryPoint& point : answer.report.curve) {
    const Node& node = answer.graph.node(point.node);
    text += fmt::format("{},{},", node.id, answer.graph.name(node));
    if (!answer.op_starts.empty())
      text += fmt::format("{:.3f}", 1000 * start_ms(answer, point.node));
    for (double bytes : point.bytes) text += fmt::format(",{:.0f}", bytes);
    text += '\n';
  }
  return text;
}

}  // namespace

std::string memory_text(const MemoryAnswer& answer) {
  return all_warnings(answer.warnings) + facts(answer) + ways_text(answer) + purposes(answer) +
         largest(answer);
}

Result<std::string> memory_timeline(const MemoryAnswer& answer, const std::string& file) {
  if (file.ends_with(".svg")) return timeline_svg(answer);
  if (file.ends_with(".csv")) return timeline_csv(answer);
  return fail(ErrorCode::kFormat,
              fmt::format("expected a name that ends in .svg or .csv, found \"{}\"", file));
}

std::string memory_text(const MemoryOfTrace& recorded) {
  const PredictedMemory& memory = recorded.memory;
  TextList list;
  list.row("trace", recorded.measured() ? fmt::format("{}, {}", recorded.file, recorded.device)
                                        : recorded.file);
  if (recorded.gpu) list.row("GPU", gpu_text(*recorded.gpu, memory));
  if (const auto fits = recorded.fits()) {
    list.row("memory", fmt::format("{} GiB: {} {} GiB", gib_text(memory.needed_bytes()),
                                   *fits ? "fits, to spare" : "does not fit by",
                                   gib_text(std::abs(memory.headroom_bytes()))));
  }
  if (recorded.measured()) {
    list.row("PyTorch", allocator_text(memory));
  } else {
    list.row("memory", "not predicted");
  }
  if (!recorded.peak_op.empty()) list.row("peak", "in " + recorded.peak_op);
  return all_warnings(recorded.warnings) + "\n" + list.text();
}

}  // namespace perfmodel::cli
