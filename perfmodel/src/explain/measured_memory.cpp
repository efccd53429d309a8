#include "perfmodel/detail/measured_memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include "perfmodel/graph/detail/trace_ops.hpp"

namespace perfmodel {
namespace {

using Records = std::vector<const MemoryRecord*>;

// c10::DeviceType; a type without a name here keeps its number.
std::string device_text(const MemoryRecord& event) {
  static const std::map<int, const char*> kNames = {{0, "cpu"},           {1, "cuda"}, {6, "hip"},
                                                    {12, "xpu"},          {13, "mps"}, {15, "hpu"},
                                                    {20, "privateuseone"}};
  const auto known = kNames.find(event.device_type);
  std::string name =
      known == kNames.end() ? fmt::format("type-{}", event.device_type) : known->second;
  if (event.device >= 0 && event.device_type != 0) name += fmt::format(":{}", event.device);
  return name;
}

// Innermost op open on the thread at that time, or empty.
std::string op_at(const Trace& trace, std::int32_t thread, std::int64_t time_ns) {
  const auto after = std::ranges::upper_bound(
      trace.host, std::pair(thread, time_ns), std::ranges::less{},
      [](const HostEvent& event) { return std::pair(event.thread, event.start_ns); });
  const auto begin =
      std::ranges::lower_bound(trace.host, thread, std::ranges::less{}, &HostEvent::thread);
  for (auto at = after; at != begin;) {
    --at;
    if (at->kind == HostKind::kOp && time_ns < at->end_ns()) return std::string(trace.name(*at));
  }
  return {};
}

// Levels without totals: sums of allocations and frees, moved so that the lowest one is 0.
void level_by_changes(MeasuredMemory& memory, const Records& records) {
  constexpr std::int64_t kMost = std::int64_t{1} << 61;  // sums of any records stay in 64 bits
  std::int64_t level = 0, lowest = 0;
  for (std::size_t i = 0; i < records.size(); ++i) {
    level = std::clamp(level + records[i]->bytes, -kMost, kMost);
    lowest = std::min(lowest, level);
    memory.curve[i].allocated_bytes = level;
  }
  for (auto& point : memory.curve) point.allocated_bytes -= lowest;
}

MeasuredMemory of_device(const Trace& trace, const Records& records) {
  MeasuredMemory memory;
  memory.device = device_text(*records.front());
  memory.on_host = records.front()->device_type == 0;
  memory.totals_recorded =
      std::ranges::all_of(records, [](const MemoryRecord* event) { return event->allocated >= 0; });
  for (const MemoryRecord* event : records) {
    MeasuredMemory::Point point{.time_us = static_cast<double>(event->time_ns) / 1e3,
                                .allocated_bytes = event->allocated};
    if (event->reserved >= 0 && !memory.on_host) point.reserved_bytes = event->reserved;
    if (point.reserved_bytes) {
      memory.reserved_bytes = std::max(memory.reserved_bytes.value_or(0), *point.reserved_bytes);
    }
    memory.curve.push_back(point);
  }
  if (!memory.totals_recorded) level_by_changes(memory, records);
  const auto peak = std::ranges::max_element(memory.curve, std::ranges::less{},
                                             &MeasuredMemory::Point::allocated_bytes);
  const MemoryRecord& event = *records[peak - memory.curve.begin()];
  memory.peak_bytes = peak->allocated_bytes;
  memory.peak_us = peak->time_us;
  memory.peak_op = op_at(trace, event.thread, event.time_ns);
  return memory;
}

}  // namespace

std::vector<MeasuredMemory> measured_memory(
    const Trace& trace,
    const std::optional<std::vector<std::pair<std::int64_t, std::int64_t>>>& spans_ns) {
  const auto inside = [&](std::int64_t time_ns) {
    return !spans_ns || std::ranges::any_of(*spans_ns, [&](const auto& span) {
      return span.first <= time_ns && time_ns < span.second;
    });
  };
  std::map<std::pair<int, int>, Records> by_device;
  for (const MemoryRecord& event : trace.memory) {
    if (inside(event.time_ns)) by_device[{event.device_type, event.device}].push_back(&event);
  }
  std::vector<MeasuredMemory> devices;
  for (const auto& [key, records] : by_device) devices.push_back(of_device(trace, records));
  std::ranges::stable_sort(devices, std::ranges::greater{}, [](const MeasuredMemory& device) {
    return std::tuple(!device.on_host, device.totals_recorded, device.peak_bytes);
  });
  return devices;
}

std::vector<MeasuredMemory::Point> thinned(const std::vector<MeasuredMemory::Point>& curve,
                                           std::size_t most) {
  if (curve.size() <= most) return curve;
  const std::size_t runs = std::max<std::size_t>(1, most / 3);
  std::vector<MeasuredMemory::Point> kept;
  for (std::size_t run = 0; run < runs; ++run) {
    const std::size_t first = curve.size() * run / runs, last = curve.size() * (run + 1) / runs;
    std::array<std::size_t, 3> chosen = {first, first, first};  // low, high, most reserved
    for (std::size_t i = first; i < last; ++i) {
      if (curve[i].allocated_bytes < curve[chosen[0]].allocated_bytes) chosen[0] = i;
      if (curve[i].allocated_bytes > curve[chosen[1]].allocated_bytes) chosen[1] = i;
      if (curve[i].reserved_bytes > curve[chosen[2]].reserved_bytes) chosen[2] = i;
    }
    std::ranges::sort(chosen);
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      if (i == 0 || chosen[i] != chosen[i - 1]) kept.push_back(curve[chosen[i]]);
    }
  }
  return kept;
}

}  // namespace perfmodel
