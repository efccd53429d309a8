#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "explain/timeline_events.hpp"
#include "perfmodel/detail/trace_ranks.hpp"
#include "perfmodel/version.hpp"

namespace perfmodel {
namespace {

// Host threads first, then streams; stream ids are distinct from thread ids.
constexpr std::int64_t kFirstStreamId = 1'000'000;

void write_rank(TimelineEvents& out, const Trace& trace, std::int64_t process, double shift_us) {
  const auto on_clock = [&](std::int64_t ns) { return static_cast<double>(ns) / 1e3 + shift_us; };
  out.name_process(process, fmt::format("rank {}", trace.rank >= 0 ? trace.rank : process),
                   process);
  std::vector<TimelineTrack> threads;
  for (std::size_t i = 0; i < trace.threads.size(); ++i) {
    const std::string& name = trace.threads[i].name;
    const auto number = static_cast<std::int64_t>(i);
    threads.push_back(out.add_track(
        process, number + 1, name.empty() ? "thread " + trace.threads[i].thread_id : name, number));
  }
  std::vector<TimelinePoint> calls(trace.host.size());
  for (std::size_t i = 0; i < trace.host.size(); ++i) {
    const HostEvent& event = trace.host[i];
    if (event.thread < 0) continue;
    calls[i] = out.slice({.track = threads[event.thread],
                          .name = trace.name(event),
                          .category = category_of(event.kind),
                          .start_us = on_clock(event.start_ns),
                          .duration_us = static_cast<double>(event.duration_ns) / 1e3});
  }
  std::map<std::pair<std::int16_t, std::int64_t>, TimelineTrack> streams;
  for (const GpuEvent& event : trace.gpu) {
    const auto next = kFirstStreamId + static_cast<std::int64_t>(streams.size());
    auto at = streams.find({event.device, event.stream});
    if (at == streams.end()) {
      const std::string name = fmt::format("GPU {}, stream {}", event.device, event.stream);
      const TimelineTrack track = out.add_track(process, next, name, next);
      at = streams.emplace(std::pair(event.device, event.stream), track).first;
    }
    const TimelinePoint work =
        out.slice({.track = at->second,
                   .name = trace.name(event),
                   .category = category_of(event.kind),
                   .start_us = on_clock(event.start_ns),
                   .duration_us = static_cast<double>(event.duration_ns) / 1e3});
    if (event.launch >= 0) {
      out.flow(kLaunchFlow, calls[event.launch], work);
    }
  }
}

}  // namespace

Result<void> write_ranks_timeline(std::span<const Trace> traces, const TraceRanks& ranks,
                                  const std::filesystem::path& file) {
  std::vector<double> shifts;
  for (std::size_t r = 0; r < traces.size(); ++r) {
    const double base = static_cast<double>(traces[r].base_ns - traces.front().base_ns) / 1e3;
    shifts.push_back(base - ranks.ranks[r].clock_offset_us);
  }
  const double first = *std::ranges::min_element(shifts);
  const std::string made_by = "perfmodel " + version_text();
  const TimelineArg facts[] = {{"made_by", std::string_view(made_by)}};
  PERFMODEL_TRY(out, TimelineEvents::create(file, {.other_data = facts}));
  for (std::size_t r = 0; r < traces.size(); ++r) {
    write_rank(*out, traces[r], static_cast<std::int64_t>(r), shifts[r] - first);
  }
  return out->finish();
}

}  // namespace perfmodel
