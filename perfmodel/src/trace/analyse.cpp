#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "perfmodel/trace_analysis.hpp"
#include "trace/collective_table.hpp"
#include "trace/device_tables.hpp"
#include "trace/op_tables.hpp"
#include "trace/op_work.hpp"
#include "trace/trace_selection.hpp"

namespace perfmodel {
namespace {

using Point = TraceAnalysis::BandwidthPoint;

// Thins a long curve: the highest point of each run stays, and the last point.
void thin_bandwidth(std::vector<Point>& points) {
  constexpr std::size_t kMost = 2000;
  if (points.size() <= kMost) return;
  const std::size_t run = (points.size() + kMost - 2) / (kMost - 1);
  std::vector<Point> left;
  for (std::size_t i = 0; i < points.size(); i += run) {
    const auto begin = points.begin() + static_cast<std::ptrdiff_t>(i);
    const auto end = points.begin() + static_cast<std::ptrdiff_t>(std::min(i + run, points.size()));
    left.push_back(*std::max_element(
        begin, end, [](const Point& a, const Point& b) { return a.gb_per_s < b.gb_per_s; }));
  }
  if (left.back().time_us != points.back().time_us) left.push_back(points.back());
  points = std::move(left);
}

// Bandwidth of copies and sets by kind, one point per change.
std::vector<Point> copy_bandwidth(const Trace& trace, const TraceSelection& chosen) {
  // Bytes per nanosecond that begin and end to flow, by stamp.
  std::map<NameId, std::map<std::int64_t, double>> changes;
  std::map<NameId, std::map<std::int64_t, int>> running;
  for (std::size_t i = 0; i < trace.gpu.size(); ++i) {
    const GpuEvent& event = trace.gpu[i];
    if (event.kind == GpuKind::kKernel || !chosen.has_gpu(i)) continue;
    if (event.bytes <= 0 || event.duration_ns <= 0) continue;
    const double rate = static_cast<double>(event.bytes) / static_cast<double>(event.duration_ns);
    changes[event.name][event.start_ns] += rate;
    changes[event.name][event.end_ns()] -= rate;
    ++running[event.name][event.start_ns];
    --running[event.name][event.end_ns()];
  }
  std::vector<Point> made;
  for (const auto& [name, of_kind] : changes) {
    std::vector<Point> points;
    double rate = 0;
    int tasks = 0;
    for (const auto& [stamp, change] : of_kind) {
      tasks += running[name][stamp];
      rate = tasks > 0 ? rate + change : 0;  // sums of begins and ends leave crumbs
      points.push_back({.kind = std::string(trace.names.text(name)),
                        .time_us = static_cast<double>(stamp) / 1e3,
                        .gb_per_s = rate});
    }
    thin_bandwidth(points);
    made.insert(made.end(), std::make_move_iterator(points.begin()),
                std::make_move_iterator(points.end()));
  }
  return made;
}

// Counters of CUPTI over the ranges that begin in the chosen iterations.
std::vector<TraceAnalysis::Counter> counter_table(const Trace& trace,
                                                  const TraceSelection& chosen) {
  std::map<NameId, TraceAnalysis::Counter> by_name;
  for (const CounterRange& range : trace.counters) {
    if (chosen.restricted && !chosen.has_step(iteration_at(chosen.steps, range.start_ns))) continue;
    for (const auto& [name, value] : range.values) {
      TraceAnalysis::Counter& counter = by_name[name];
      counter.least = counter.ranges == 0 ? value : std::min(counter.least, value);
      counter.most = counter.ranges == 0 ? value : std::max(counter.most, value);
      ++counter.ranges;
      counter.total += value;
    }
  }
  std::vector<TraceAnalysis::Counter> made;
  for (auto& [name, counter] : by_name) {
    counter.name = trace.names.text(name);
    made.push_back(std::move(counter));
  }
  std::ranges::sort(made, {}, &TraceAnalysis::Counter::name);
  return made;
}

// Warns of gaps in the recording that make figures mean less than they seem to.
void warn_of_gaps(const Trace& trace, const TraceSelection& chosen, TraceAnalysis& analysis) {
  std::set<int> devices;
  bool blank_work = false;
  for (std::size_t i = 0; i < trace.gpu.size(); ++i) {
    if (!chosen.has_gpu(i)) continue;
    devices.insert(trace.gpu[i].device);
    blank_work = true;
  }
  if (devices.size() > 1) {
    std::string names;
    for (const int device : devices)
      names += fmt::format("{}{}", names.empty() ? "" : ", ", device);
    analysis.warnings.push_back(
        fmt::format("the trace has work of devices {}: the breakdown and its overlap join them, "
                    "tables by stream do not",
                    names));
  }
  if (trace.arguments.empty() && !analysis.ops.empty()) {
    analysis.warnings.push_back(
        "no shapes were recorded (record_shapes=True makes them): ops have no FLOP, bytes and "
        "roofline, and there is no table by shape");
  }
  if (!blank_work && chosen.restricted && !trace.gpu.empty()) {
    analysis.warnings.push_back("the chosen iterations launched no device work");
  }
}

}  // namespace

Result<TraceAnalysis> analyse(const Trace& trace,
                              const std::optional<std::pair<std::size_t, std::size_t>>& window,
                              const Gpu* gpu) {
  const TraceSelection chosen = select_events(trace, window);
  PERFMODEL_TRY_TO(check_window(trace, chosen, window));
  TraceAnalysis made;
  DeviceIntervals work;
  for (std::size_t i = 0; i < trace.gpu.size(); ++i) {
    if (chosen.has_gpu(i)) work.add(trace.gpu[i], chosen.is_collective[i]);
  }
  made.breakdown = device_breakdown(work);
  made.idle = idle_causes(trace, chosen);
  made.queue_length = queue_lengths(trace, chosen);
  made.launch = launch_delays(trace, chosen);
  made.copies = copies_by_kind(trace, chosen);
  made.copy_bandwidth = copy_bandwidth(trace, chosen);
  made.counters = counter_table(trace, chosen);
  made.splits = split_steps(trace, chosen);
  mean_occupancy(trace, chosen, made);
  made.collectives = collective_table(trace, chosen);
  const OpWorks works = op_works(trace, gpu);  // needs the most memory, so it comes first
  const TraceOps nesting = find_trace_ops(trace);
  const OpTree tree = op_tree(trace, nesting);
  add_op_tables(trace, chosen, nesting, tree, works, made);
  made.modules = module_table(trace, chosen);
  if (gpu) made.gpu = gpu->name;
  warn_of_gaps(trace, chosen, made);
  return made;
}

}  // namespace perfmodel
