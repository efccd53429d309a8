#include "report/report_exports.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "explain/timeline_events.hpp"
#include "json/csv_file.hpp"

namespace perfmodel::report_page {
namespace {

using findings::DeviceKind;
using findings::KernelFact;
using findings::OpFact;

// A slice of a lane.
struct Slice {
  std::string_view name, category;
  double start_us = 0, end_us = 0;
};
struct Lane {
  std::string title;
  bool on_device = false;
  std::int64_t id = 0;
  std::vector<Slice> slices;  // by start, outer ones first
};

std::string_view category_of(const KernelFact& kernel) {
  switch (kernel.kind) {
    case DeviceKind::kCopy: return "gpu_memcpy";
    case DeviceKind::kSet: return "gpu_memset";
    default: return "kernel";
  }
}

// Zero length is none: parts of predicted ops that only show a call path.
std::vector<Lane> lanes_of(const findings::StepFacts& facts) {
  std::map<std::pair<bool, std::int64_t>, Lane> lanes;
  const auto lane = [&](bool on_device, std::int64_t id) -> Lane& {
    Lane& made = lanes[{on_device, id}];
    made.on_device = on_device;
    made.id = id;
    made.title = fmt::format("{} {}", on_device ? "stream" : "thread", id);
    return made;
  };
  for (const OpFact& op : facts.ops) {
    lane(false, op.thread)
        .slices.push_back({.name = op.name,
                           .category = op.is_frame   ? "python_function"
                                       : op.is_label ? "user_annotation"
                                                     : "cpu_op",
                           .start_us = op.start_us,
                           .end_us = op.end_us});
  }
  for (const KernelFact& kernel : facts.kernels) {
    lane(true, kernel.stream)
        .slices.push_back({.name = kernel.name,
                           .category = category_of(kernel),
                           .start_us = kernel.start_us,
                           .end_us = kernel.start_us + kernel.time_us});
  }
  std::vector<Lane> made;
  for (auto& [key, one] : lanes) {
    std::ranges::stable_sort(one.slices, [](const Slice& a, const Slice& b) {
      return std::pair(a.start_us, -a.end_us) < std::pair(b.start_us, -b.end_us);
    });
    made.push_back(std::move(one));
  }
  return made;
}

Json profile_of(const std::string& name, const Lane& lane, Names& frames) {
  Json events = Json::array();
  std::vector<std::pair<int, double>> open;
  double now = lane.slices.empty() ? 0 : lane.slices.front().start_us;
  const double begin = now;
  const auto close_until = [&](double us) {
    while (!open.empty() && open.back().second <= us) {
      now = std::max(now, open.back().second);
      events.push_back({{"type", "C"}, {"frame", open.back().first}, {"at", now}});
      open.pop_back();
    }
  };
  for (const Slice& slice : lane.slices) {
    close_until(slice.start_us);
    now = std::max(now, slice.start_us);
    // A slice that reaches beyond its parent (stamps are rounded) ends with it.
    const double end = open.empty() ? slice.end_us : std::min(slice.end_us, open.back().second);
    const int frame = frames.index(slice.name);
    events.push_back({{"type", "O"}, {"frame", frame}, {"at", now}});
    open.emplace_back(frame, std::max(end, now));
  }
  close_until(std::numeric_limits<double>::infinity());
  return {{"type", "evented"},   {"name", name},    {"unit", "microseconds"},
          {"startValue", begin}, {"endValue", now}, {"events", std::move(events)}};
}

}  // namespace

Json speedscope_data(const std::string& title, std::span<const Run> runs) {
  Names frames;
  Json profiles = Json::array();
  for (const Run& run : runs) {
    for (const Lane& lane : lanes_of(*run.facts)) {
      profiles.push_back(profile_of(run.name + ", " + lane.title, lane, frames));
    }
  }
  Json named = Json::array();
  for (const std::string& name : frames.all()) named.push_back({{"name", name}});
  return {{"$schema", "https://www.speedscope.app/file-format-schema.json"},
          {"name", title},
          {"exporter", "perfpredict"},
          {"activeProfileIndex", 0},
          {"shared", {{"frames", std::move(named)}}},
          {"profiles", std::move(profiles)}};
}

Result<void> write_chrome_trace(std::span<const Run> runs, const std::filesystem::path& file) {
  PERFMODEL_TRY(timeline, TimelineEvents::create(file, {}));
  std::int64_t process = 0;
  for (const Run& run : runs) {
    timeline->name_process(process, run.name, process);
    std::int64_t order = 0;
    for (const Lane& lane : lanes_of(*run.facts)) {
      const auto track = timeline->add_track(
          process, lane.on_device ? 1'000'000 + lane.id : lane.id, lane.title, order++);
      for (const Slice& slice : lane.slices) {
        timeline->slice({.track = track,
                         .name = slice.name,
                         .category = slice.category,
                         .start_us = slice.start_us,
                         .duration_us = std::max(0.0, slice.end_us - slice.start_us)});
      }
    }
    ++process;
  }
  return timeline->finish();
}

std::string kernels_csv(std::span<const Run> runs) {
  std::string made =
      "run,kernel,family,op,stream,start_us,time_us,low_us,high_us,roofline_us,in_range\n";
  for (const Run& run : runs) {
    for (const KernelFact& kernel : run.facts->kernels) {
      const std::string_view op = kernel.op < 0 ? "" : run.facts->ops[kernel.op].name;
      made +=
          fmt::format("{},{},{},{},{},{:.3f},{:.3f},{:.3f},{:.3f},{},{}\n", csv_cell(run.name),
                      csv_cell(kernel.name), to_string(kernel.family), csv_cell(op), kernel.stream,
                      kernel.start_us, kernel.time_us, kernel.low_us, kernel.high_us,
                      kernel.roofline_us ? fmt::format("{:.3f}", *kernel.roofline_us) : "",
                      kernel.in_range ? 1 : 0);
    }
  }
  return made;
}

}  // namespace perfmodel::report_page
