#include "trace/recorded_tables.hpp"

#include <algorithm>
#include <map>

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

}  // namespace

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

}  // namespace perfmodel
