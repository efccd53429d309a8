#include "replay_export.hpp"

#include <fmt/format.h>

#include <map>
#include <unordered_map>

#include "chakra_export.hpp"
#include "explain/timeline_events.hpp"
#include "perfmodel/graph/detail/event_names.hpp"
#include "perfmodel/prediction.hpp"

namespace perfmodel {
namespace {

using TaskId = TaskGraph::TaskId;

std::string rank_name(const Trace& trace, std::size_t position) {
  return trace.rank >= 0 ? fmt::format("rank {}", trace.rank) : fmt::format("trace {}", position);
}

class Drawing {
 public:
  explicit Drawing(const ScheduledReplay& replay) : replay_(replay) {}

  JobTimeline draw(TaskId last) {
    made_.title = "replay";
    host_slice_.resize(replay_.traces.size());
    device_slice_.resize(replay_.traces.size());
    for (std::size_t r = 0; r < replay_.traces.size(); ++r) {
      made_.ranks.push_back(rank_name(replay_.traces[r], r));
      draw_host(r);
      draw_device(r);
    }
    draw_path(last);
    return std::move(made_);
  }

 private:
  double end(TaskId task) const { return replay_.schedule.end_us[task]; }
  double start(TaskId task) const { return replay_.schedule.start_us[task]; }

  std::uint32_t name(std::string_view text) {
    const auto [at, added] =
        names_.try_emplace(std::string(text), static_cast<std::uint32_t>(made_.names.size()));
    if (added) made_.names.emplace_back(text);
    return at->second;
  }

  std::uint32_t add_track(std::size_t rank, bool device, std::int64_t id, std::string text) {
    made_.tracks.push_back({.rank = rank, .device = device, .id = id, .name = std::move(text)});
    return static_cast<std::uint32_t>(made_.tracks.size()) - 1;
  }

  void draw_host(std::size_t r) {
    const Trace& trace = replay_.traces[r];
    const ReplayTasks& tasks = replay_.ranks[r];
    host_slice_[r].assign(trace.host.size(), -1);
    std::map<std::int32_t, std::uint32_t> tracks;
    for (std::size_t i = 0; i < trace.host.size(); ++i) {
      const HostEvent& event = trace.host[i];
      if (tasks.begins[i] < 0 || tasks.ends[i] < 0) continue;
      const auto [track, added] = tracks.try_emplace(event.thread, 0);
      if (added) {
        const auto& thread = trace.threads[event.thread];
        track->second = add_track(r, false, event.thread, "thread " + thread.thread_id);
      }
      const double begin = end(tasks.begins[i]);
      host_slice_[r][i] = static_cast<std::int32_t>(made_.slices.size());
      made_.slices.push_back({.track = track->second,
                              .name = name(trace.name(event)),
                              .category = category_of(event.kind),
                              .start_us = begin,
                              .duration_us = end(tasks.ends[i]) - begin});
    }
  }

  void draw_device(std::size_t r) {
    const Trace& trace = replay_.traces[r];
    const ReplayTasks& tasks = replay_.ranks[r];
    device_slice_[r].assign(trace.gpu.size(), -1);
    std::map<std::pair<std::int16_t, std::int64_t>, std::uint32_t> tracks;
    for (std::size_t i = 0; i < trace.gpu.size(); ++i) {
      const GpuEvent& event = trace.gpu[i];
      const auto [track, added] = tracks.try_emplace({event.device, event.stream}, 0);
      if (added) {
        track->second = add_track(r, true, event.stream, fmt::format("stream {}", event.stream));
      }
      const TaskId arrival = tasks.arrivals[i], task = tasks.device[i];
      draw_unrecorded(tasks, i, track->second);
      const auto slice = static_cast<std::uint32_t>(made_.slices.size());
      device_slice_[r][i] = static_cast<std::int32_t>(slice);
      made_.slices.push_back({.track = track->second,
                              .name = name(trace.name(event)),
                              .category = category_of(event.kind),
                              .start_us = start(arrival),
                              .duration_us = end(task) - start(arrival),
                              .waiting_us = arrival == task ? 0 : start(task) - end(arrival)});
      if (event.launch < 0) continue;
      const std::int32_t call = host_slice_[r][event.launch];
      if (call >= 0) made_.launches.emplace_back(static_cast<std::uint32_t>(call), slice);
    }
  }

  // Under a name of its own and no category of Kineto's: readers of traces pass it over.
  void draw_unrecorded(const ReplayTasks& tasks, std::size_t event, std::uint32_t track) {
    const TaskId before = tasks.entries[event];
    if (before == tasks.arrivals[event]) return;
    made_.slices.push_back({.track = track,
                            .name = name(to_string(Term::kUnrecorded)),
                            .category = "unrecorded",
                            .start_us = start(before),
                            .duration_us = end(before) - start(before)});
  }

  // Arrows start at starts of slices, so a slice that began before the last one on the path is left
  // out.
  void draw_path(TaskId last) {
    auto path = replay_.schedule.critical_path(last);
    std::reverse(path.begin(), path.end());
    double latest = -1;
    for (TaskId task : path) {
      if (task >= replay_.first_task.back() || replay_.graph.op(task) < 0) continue;
      const std::size_t r = replay_.rank_of(task);
      const auto index = replay_.graph.op(task);
      const bool device = replay_.graph.lane(task) >= replay_.ranks[r].device_lane;
      const std::int32_t slice = device ? device_slice_[r][index] : host_slice_[r][index];
      if (slice < 0) continue;
      const auto at = static_cast<std::uint32_t>(slice);
      if (made_.slices[at].start_us < latest) continue;
      if (!made_.critical_path.empty() && made_.critical_path.back() == at) continue;
      latest = made_.slices[at].start_us;
      made_.critical_path.push_back(at);
    }
  }

  const ScheduledReplay& replay_;
  JobTimeline made_;
  std::unordered_map<std::string, std::uint32_t> names_;
  std::vector<std::vector<std::int32_t>> host_slice_, device_slice_;  // per rank and event
};

}  // namespace

JobTimeline replay_timeline(const ScheduledReplay& replay, TaskId last) {
  return Drawing(replay).draw(last);
}

namespace {

Result<void> check_sizes(const ScheduledReplay& replay,
                         std::span<const std::vector<RankCollective>> collectives) {
  for (std::size_t r = 0; r < collectives.size(); ++r) {
    const auto unknown = std::ranges::count_if(
        collectives[r], [](const RankCollective& at) { return at.largest_bytes() == 0; });
    if (unknown == 0) continue;
    return decline(
        fmt::format("expected the sizes of all collectives for a Chakra trace, found none of {} "
                    "out of {}; --graph gives the execution graph that knows them",
                    unknown, collectives[r].size()),
        replay.traces[r].source);
  }
  return {};
}

}  // namespace

Result<std::vector<ChakraTrace>> replay_chakra(
    const ScheduledReplay& replay, std::span<const std::vector<RankCollective>> collectives) {
  PERFMODEL_TRY_TO(check_sizes(replay, collectives));
  std::unordered_map<TaskId, const RankCollective*> by_task;
  for (std::size_t r = 0; r < collectives.size(); ++r) {
    for (const RankCollective& collective : collectives[r]) {
      by_task[replay.ranks[r].device[collective.event]] = &collective;
    }
  }
  const auto describe = [&](TaskId task) -> std::optional<ChakraTask> {
    if (task >= replay.first_task.back()) return {};
    const std::size_t r = replay.rank_of(task);
    const Trace& trace = replay.traces[r];
    const std::int32_t index = replay.graph.op(task);
    ChakraTask made{.rank = r, .on_host = replay.graph.lane(task) < replay.ranks[r].device_lane};
    if (made.on_host) {
      made.name = index < 0 ? "host" : std::string(trace.name(trace.host[index]));
      return made;
    }
    if (static_cast<Term>(replay.graph.term(task)) == Term::kUnrecorded) {
      made.name = std::string(to_string(Term::kUnrecorded));
      return made;
    }
    const GpuEvent& event = trace.gpu[index];
    made.name = std::string(trace.name(event));
    const auto known = by_task.find(task);
    if (known == by_task.end()) return made;
    made.collective = chakra_collective(known->second->kind);
    made.process_group = known->second->process_group;
    made.group_size = std::max<std::int64_t>(1, known->second->group_size);
    made.comm_bytes = known->second->largest_bytes();
    return made;
  };
  return chakra_traces(replay.graph, replay.schedule, {0, static_cast<TaskId>(replay.graph.size())},
                       replay.traces.size(), describe);
}

}  // namespace perfmodel
