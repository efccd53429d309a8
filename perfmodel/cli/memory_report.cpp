#include "memory_report.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <span>
#include <utility>

#include "base/number_text.hpp"
#include "plot/area_plot.hpp"
#include "plot/svg_document.hpp"
#include "terminal/text_table.hpp"

namespace perfmodel::cli {
namespace {

constexpr double kGib = 1 << 30, kMib = 1 << 20;
constexpr std::size_t kMostWays = 3;

Json whole(double bytes) { return static_cast<std::int64_t>(std::llround(bytes)); }

std::string gib(double bytes) { return fmt::format("{:.2f}", bytes / kGib); }

std::string shape_text(const LargeStorage& storage) {
  return fmt::format("{} [{}]", to_string(storage.dtype), fmt::join(storage.shape, " "));
}

std::string verdict(const PredictedMemory& memory) {
  const double room = memory.headroom_bytes();
  return memory.fits() ? fmt::format("fits, {} GiB to spare", gib(room))
                       : fmt::format("does not fit by {} GiB", gib(-room));
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
  if (answer.gpu) {
    list.row("GPU", fmt::format("{} ({}), {} GiB", answer.gpu->title, answer.gpu->name,
                                gib(memory.device_bytes)));
  }
  if (answer.zero.world > 1) list.row("rank", ranks_text(answer.zero));
  list.row("memory", fmt::format("{} GiB, from {} to {}{}", gib(memory.needed_bytes()),
                                 gib(memory.low_bytes()), gib(memory.high_bytes()),
                                 answer.gpu ? ": " + verdict(memory) : ""));
  list.row("PyTorch",
           fmt::format("allocated {} GiB, reserved {} GiB at the peak",
                       gib(memory.peak_allocated_bytes), gib(memory.peak_reserved_bytes)));
  list.row("activations",
           fmt::format("{} GiB kept for the backward pass", gib(memory.activation_bytes)));
  if (!answer.report.peak_op.empty()) {
    list.row("peak",
             fmt::format("in {} (node {})", answer.report.peak_op, answer.report.peak_node));
  }
  if (answer.bytes_per_sample) {
    list.row("per sample", fmt::format("{:.4g} MiB at the peak", *answer.bytes_per_sample / kMib));
  }
  if (answer.most) {
    const LargestBatch& most = *answer.most;
    const std::string next = gib(most.next.needed_bytes());
    list.row("largest batch",
             most.batch == 0 ? fmt::format("none: one sample needs {} GiB", next)
                             : fmt::format("{} ({} GiB); {} needs {} GiB", most.batch,
                                           gib(most.memory.needed_bytes()), most.batch + 1, next));
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
    table.row({std::string(to_string(purpose)), gib(bytes),
               percent_of(bytes, memory.needed_bytes()), gib(own)});
  }
  return "\n" + table.text(bold_allowed());
}

std::string largest(const MemoryAnswer& answer) {
  if (answer.report.largest.empty()) return "";
  TextTable table{"largest at the peak", "GiB", "<purpose", "<tensor", "node"};
  for (const LargeStorage& storage : answer.report.largest) {
    table.row({storage.made_by.empty() ? "from outside" : storage.made_by, gib(storage.bytes),
               std::string(to_string(storage.purpose)), shape_text(storage),
               storage.node >= 0 ? std::to_string(storage.node) : ""});
  }
  return "\n" + table.text(bold_allowed());
}

std::string ways_text(const MemoryAnswer& answer) {
  if (!answer.ways) return "";
  const MemoryPrices::Ways& ways = *answer.ways;
  if (ways.fitting.empty()) {
    if (!ways.least) return "";
    return "\n" +
           wrapped(fmt::format("none of {} ways to fit is enough; {} needs the least, {} GiB",
                               ways.tried, ways.least->how,
                               gib(ways.least->answer.memory.needed_bytes())),
                   "  ", 2);
  }
  TextTable table{"ways to fit", "GiB", "batch", "step ms", "time per sample"};
  for (const auto& way : std::span(ways.fitting).first(std::min(kMostWays, ways.fitting.size()))) {
    table.row({way.how, gib(way.answer.memory.needed_bytes()),
               way.answer.batch ? std::to_string(*way.answer.batch) : "",
               fmt::format("{:.2f}", way.answer.e2e_us / 1000),
               fmt::format("{:+.1f} %", 100 * (way.slowdown - 1))});
  }
  return "\n" + table.text(bold_allowed());
}

Json ways_json(const MemoryPrices::Ways& ways) {
  Json list = Json::array();
  for (const auto& way : ways.fitting) {
    list.push_back({{"how", way.how},
                    {"needed_bytes", whole(way.answer.memory.needed_bytes())},
                    {"batch", way.answer.batch ? Json(*way.answer.batch) : Json()},
                    {"gpus", way.answer.ranks},
                    {"e2e_us", rounded(way.answer.e2e_us)},
                    {"time_per_sample_ratio", six_digits(way.slowdown)}});
  }
  return list;
}

// Of the top-level op around a node; behind the last one that begins before it.
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
  for (std::size_t i = 0; i < kMemoryPurposes; ++i) {
    AreaPlot::Layer layer{.name = std::string(to_string(static_cast<MemoryPurpose>(i)))};
    for (const MemoryPoint& point : answer.report.curve) {
      layer.amounts.push_back(std::max(0.0, point.bytes[i] / kGib));
    }
    const bool any = std::ranges::any_of(layer.amounts, [](double amount) { return amount > 0; });
    if (any) plot.layers.push_back(std::move(layer));
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
  const auto panel = area_panel(plot);
  if (!panel) return Unexpected{panel.error()};
  return svg_document(
      "Memory: " + answer.graph_file,
      fmt::format("predicted by perfmodel{}; peak {} GiB allocated, {} GiB reserved",
                  answer.gpu ? " for " + answer.gpu->title : "", gib(memory.peak_allocated_bytes),
                  gib(memory.peak_reserved_bytes)),
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
  std::string text;
  for (const std::string& warning : answer.warnings) text += wrapped(warning, "  warning: ", 4);
  return text + facts(answer) + ways_text(answer) + purposes(answer) + largest(answer);
}

Json memory_json(const MemoryAnswer& answer) {
  const PredictedMemory& memory = answer.report.memory;
  Json purposes = Json::object(), own = Json::object(), largest = Json::array();
  for (std::size_t i = 0; i < kMemoryPurposes; ++i) {
    const std::string name(to_string(static_cast<MemoryPurpose>(i)));
    purposes[name] = whole(memory.by_purpose[i]);
    own[name] = whole(std::max(memory.by_purpose[i], answer.report.each_peak[i]));
  }
  for (const LargeStorage& storage : answer.report.largest) {
    largest.push_back({{"bytes", whole(storage.bytes)},
                       {"purpose", to_string(storage.purpose)},
                       {"op", storage.made_by},
                       {"node", storage.node},
                       {"shape", storage.shape},
                       {"dtype", to_string(storage.dtype)}});
  }
  Json json = document(schemas::kMemory);
  json.update(
      {{"graph", answer.graph_file},
       {"gpu", answer.gpu ? Json(answer.gpu->name) : Json()},
       {"batch", answer.batch ? Json(*answer.batch) : Json()},
       {"world", answer.zero.world},
       {"zero", answer.zero.stage},
       {"peak_allocated_bytes", whole(memory.peak_allocated_bytes)},
       {"peak_reserved_bytes", whole(memory.peak_reserved_bytes)},
       {"context_bytes", whole(memory.context_bytes)},
       {"needed_bytes", whole(memory.needed_bytes())},
       {"low_bytes", whole(memory.low_bytes())},
       {"high_bytes", whole(memory.high_bytes())},
       {"device_bytes", answer.gpu ? whole(memory.device_bytes) : Json()},
       {"fits", answer.gpu ? Json(memory.fits()) : Json()},
       {"headroom_bytes", answer.gpu ? whole(memory.headroom_bytes()) : Json()},
       {"activation_bytes", whole(memory.activation_bytes)},
       {"activations", answer.report.activations},
       {"bytes_per_sample", answer.bytes_per_sample ? whole(*answer.bytes_per_sample) : Json()},
       {"by_purpose", std::move(purposes)},
       {"own_peaks", std::move(own)},
       {"peak", {{"op", answer.report.peak_op}, {"node", answer.report.peak_node}}},
       {"largest", std::move(largest)}});
  if (answer.most) {
    json["max_batch"] = answer.most->batch;
  }
  if (answer.ways) json["ways"] = ways_json(*answer.ways);
  json["warnings"] = answer.warnings;
  return json;
}

Result<std::string> memory_timeline(const MemoryAnswer& answer, const std::string& file) {
  if (file.ends_with(".svg")) return timeline_svg(answer);
  if (file.ends_with(".csv")) return timeline_csv(answer);
  return fail(ErrorCode::kFormat,
              fmt::format("expected a name that ends in .svg or .csv, found \"{}\"", file));
}

}  // namespace perfmodel::cli
