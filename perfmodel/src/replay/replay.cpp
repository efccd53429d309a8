#include "perfmodel/replay.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/stop_point.hpp"
#include "collective_notes.hpp"
#include "microseconds.hpp"
#include "perfmodel/detail/trace_ranks.hpp"
#include "perfmodel/graph/detail/event_names.hpp"
#include "perfmodel/graph/rewrite.hpp"
#include "perfmodel/prediction.hpp"
#include "program/invariants.hpp"
#include "record/match_collectives.hpp"
#include "replay_export.hpp"
#include "replay_scaled.hpp"
#include "replay_tasks.hpp"
#include "replayed_job.hpp"

namespace perfmodel {
namespace {

using TaskId = TaskGraph::TaskId;

// PyTorch's names of element types, as its notes on collectives have them; 0: not known.
std::int64_t element_bytes(std::string_view dtype) {
  constexpr std::pair<std::string_view, std::int64_t> kBytes[] = {
      {"Double", 8}, {"Long", 8},     {"Float", 4}, {"Int", 4},  {"Half", 2},
      {"Short", 2},  {"BFloat16", 2}, {"Byte", 1},  {"Char", 1}, {"Bool", 1}};
  for (const auto& [name, bytes] : kBytes) {
    if (name == dtype) return bytes;
  }
  return dtype.starts_with("Float8") ? 1 : 0;
}

// Begin and end of an iteration on the host.
struct Marks {
  TraceIteration iteration;
  TaskId begin = -1, end = -1;
};

Unexpected negative(const Trace& trace, std::string_view name, std::int64_t ns) {
  return decline(
      fmt::format("expected durations of at least 0 us, found {} for \"{}\"", us(ns), name),
      trace.source);
}

Result<void> check_traces(std::span<const Trace> traces) {
  for (const Trace& trace : traces) {
    if (trace.host.empty()) {
      return decline("expected host events, found none", trace.source);
    }
    for (const GpuEvent& event : trace.gpu) {
      if (event.duration_ns < 0) return negative(trace, trace.name(event), event.duration_ns);
    }
    for (const HostEvent& event : trace.host) {
      if (event.duration_ns < 0) return negative(trace, trace.name(event), event.duration_ns);
    }
  }
  return check_ranks_of_job(traces);
}

Unexpected out_of_range(const Trace& trace, std::size_t count, const ReplayOptions& options) {
  return decline(fmt::format("expected iterations within 0:{}, found {}:{}", count,
                             options.iterations->first, options.iterations->second),
                 trace.source);
}

// The whole trace as one iteration.
Result<Marks> whole_trace(const Trace& trace, const ReplayTasks& tasks) {
  Marks whole{.iteration = {.name = "whole trace"}};
  for (std::size_t i = 0; i < trace.host.size(); ++i) {
    if (tasks.ends[i] < 0 || trace.host[i].end_ns() < whole.iteration.end_ns) continue;
    whole.iteration.end_ns = trace.host[i].end_ns();
    whole.end = tasks.ends[i];
  }
  for (std::size_t i = 0; i < trace.host.size(); ++i) {
    if (tasks.begins[i] < 0) continue;
    if (whole.begin < 0 || trace.host[i].start_ns < whole.iteration.begin_ns) {
      whole.iteration.begin_ns = trace.host[i].start_ns;
      whole.begin = tasks.begins[i];
    }
  }
  if (whole.end < 0) {
    return decline("expected ops, annotations or launches, found none", trace.source);
  }
  return whole;
}

Result<std::vector<Marks>> marks_of(const Trace& trace, const ReplayTasks& tasks,
                                    const ReplayOptions& options) {
  std::vector<TraceIteration> found = iterations(trace);
  if (found.empty()) {
    PERFMODEL_TRY(whole, whole_trace(trace, tasks));
    if (options.iterations && *options.iterations != std::pair<std::size_t, std::size_t>(0, 1)) {
      return out_of_range(trace, 1, options);
    }
    return std::vector<Marks>{std::move(*whole)};
  }
  const std::size_t first = options.iterations ? options.iterations->first : 0;
  const std::size_t last = options.iterations ? options.iterations->second : found.size();
  if (first >= last || last > found.size()) return out_of_range(trace, found.size(), options);
  std::vector<Marks> marks;
  for (TraceIteration& iteration : found) marks.push_back({.iteration = std::move(iteration)});
  for (std::size_t i = 0; i < trace.host.size(); ++i) {
    const HostEvent& event = trace.host[i];
    if (event.kind != HostKind::kAnnotation || tasks.ends[i] < 0) continue;
    const bool step = is_profiler_step(trace.name(event));
    if (!step && !trace.name(event).starts_with("Optimizer.step#")) continue;
    for (Marks& mark : marks) {
      if (step && mark.iteration.name == trace.name(event) &&
          mark.iteration.begin_ns == event.start_ns) {
        mark.begin = tasks.begins[i];
        mark.end = tasks.ends[i];
      } else if (!step && mark.iteration.begin_ns == event.end_ns() && mark.begin < 0) {
        mark.begin = tasks.ends[i];
      } else if (!step && mark.iteration.end_ns == event.end_ns() && mark.end < 0) {
        mark.end = tasks.ends[i];
      }
    }
  }
  return marks;
}

// Stamps of all ranks count from the earliest base, so that a double resolves them.
double base_us(std::span<const Trace> traces, std::size_t rank) {
  std::int64_t least = traces[0].base_ns;
  for (const Trace& trace : traces) least = std::min(least, trace.base_ns);
  return us(traces[rank].base_ns - least);
}

// `base_us`: added to the trace's own stamps.
std::vector<RankCollective> collectives_of(const Trace& trace, double base_us) {
  std::vector<RankCollective> collectives;
  for (std::size_t i = 0; i < trace.gpu.size(); ++i) {
    const GpuEvent& event = trace.gpu[i];
    if (event.kind != GpuKind::kKernel || !is_collective_kernel(trace.name(event))) continue;
    RankCollective collective{.kind = canonical_collective(trace.name(event)),
                              .start_us = base_us + us(event.start_ns),
                              .end_us = base_us + us(event.end_ns()),
                              .event = static_cast<std::int32_t>(i)};
    if (event.collective >= 0) {
      const auto& note = trace.collectives[event.collective];
      collective.kind = canonical_collective(trace.names.text(note.kind));
      collective.process_group = trace.names.text(note.process_group);
      collective.sequence = note.sequence;
      collective.in_elements = note.in_elements;
      collective.element_bytes = element_bytes(trace.names.text(note.dtype));
      collective.out_elements = note.out_elements;
      collective.group_size = note.group_size;
    }
    collectives.push_back(std::move(collective));
  }
  std::stable_sort(collectives.begin(), collectives.end(),
                   [](const auto& a, const auto& b) { return a.start_us < b.start_us; });
  return collectives;
}

struct Meeting {
  TaskId hub = -1;
  std::vector<std::int32_t> tasks;  // per rank: GPU event, or -1
};

// The tasks of all ranks, before they are scheduled.
struct ReplayJob {
  std::span<const Trace> traces;
  std::vector<std::string> names;                        // files of the traces
  std::vector<std::vector<RankCollective>> collectives;  // per rank
  CollectiveMatch match;
  TaskGraph graph;
  std::vector<ReplayTasks> ranks;
  std::vector<TaskId> first_task;  // per rank, and one after the last
  std::vector<Meeting> meetings;
  std::vector<std::vector<std::int32_t>> arrival_edges;  // per rank, to the meetings
  std::vector<std::vector<Marks>> marks;

  std::size_t rank_of(TaskId task) const {
    const auto after = std::upper_bound(first_task.begin(), first_task.end(), task);
    const auto rank = static_cast<std::size_t>(after - first_task.begin()) - 1;
    return std::min(rank, traces.size() - 1);
  }

  bool is_meeting(TaskId task) const { return task >= first_task.back(); }

  bool is_unrecorded(TaskId task) const {
    return static_cast<Term>(graph.term(task)) == Term::kUnrecorded;
  }

  bool on_device(TaskId task, std::size_t rank) const {
    return graph.lane(task) >= ranks[rank].device_lane;
  }

  NameId name_id(TaskId task, std::size_t rank) const {
    const auto index = graph.op(task);
    return on_device(task, rank) ? traces[rank].gpu[index].name : traces[rank].host[index].name;
  }

  std::string rank_label(std::size_t r) const {
    return traces[r].rank >= 0 ? fmt::format("rank {}", traces[r].rank) : names[r];
  }
};

std::function<std::uint64_t(TaskId)> op_key(const ReplayJob& job) {
  if (job.traces.size() == 1) return {};
  return [&job](TaskId task) -> std::uint64_t {
    if (job.is_meeting(task)) return ~std::uint64_t{0};
    if (job.graph.op(task) < 0 || job.is_unrecorded(task)) return 0;
    const std::size_t rank = job.rank_of(task);
    return hash_text(job.traces[rank].names.text(job.name_id(task, rank)));
  };
}

TaskNames task_names(const ReplayJob& job) {
  return {.key = [&job](TaskId task) -> std::uint64_t {
            if (job.is_meeting(task)) return ~std::uint64_t{0};
            const std::size_t rank = job.rank_of(task);
            const auto term = static_cast<std::uint64_t>(job.graph.term(task));
            if (job.graph.op(task) < 0 || job.is_unrecorded(task)) {
              return rank << 36 | term << 32 | 0xFFFFFFFF;
            }
            return rank << 36 | term << 32 | job.name_id(task, rank);
          },
          .op = [&job](TaskId task) -> std::string {
            if (job.is_meeting(task)) return "(last rank's arrival)";
            const std::size_t rank = job.rank_of(task);
            std::string name(job.is_unrecorded(task) ? "(not in the trace)"
                             : job.graph.op(task) < 0
                                 ? "(outside of ops)"
                                 : job.traces[rank].names.text(job.name_id(task, rank)));
            if (job.traces.size() > 1) name += fmt::format(" [{}]", job.rank_label(rank));
            return name;
          },
          .category = [&job](TaskId task) -> std::string {
            if (job.is_meeting(task)) return "collective";
            const auto term = static_cast<Term>(job.graph.term(task));
            if (term != Term::kKernel) return std::string(to_string(term));
            const std::size_t rank = job.rank_of(task);
            const auto family =
                kernel_family_of_name(job.traces[rank].names.text(job.name_id(task, rank)));
            return std::string(family ? to_string(*family) : to_string(term));
          },
          .op_key = op_key(job)};
}

class JobBuilder {
 public:
  JobBuilder(std::span<const Trace> traces, const ReplayOptions& options, Replay& replay)
      : traces_(traces), options_(options), replay_(replay), job_{.traces = traces} {}

  Result<ReplayJob> build() {
    for (const Trace& trace : traces_) {
      job_.names.push_back(std::filesystem::path(trace.source).filename().string());
    }
    PERFMODEL_TRY_TO(check_traces(traces_));
    const std::int64_t world = traces_[0].world_size;
    if (traces_.size() > 1 && world > static_cast<std::int64_t>(traces_.size())) {
      replay_.warnings.push_back(fmt::format(
          "{} of {} ranks are given; the others are taken to arrive no later than these",
          traces_.size(), world));
    }
    PERFMODEL_TRY_TO(match());
    add_tasks();
    for (std::size_t r = 0; r < traces_.size(); ++r) {
      stop_point();
      PERFMODEL_TRY(marks, marks_of(traces_[r], job_.ranks[r], options_));
      job_.marks.push_back(std::move(*marks));
    }
    return std::move(job_);
  }

 private:
  Result<void> match() {
    for (std::size_t r = 0; r < traces_.size(); ++r) {
      job_.collectives.push_back(collectives_of(traces_[r], base_us(traces_, r)));
    }
    if (traces_.size() == 1) return {};
    PERFMODEL_TRY(matched, match_collectives(job_.collectives, job_.names,
                                             {.missing_ranks = options_.missing_ranks}));
    job_.match = std::move(*matched);
    for (const std::string& warning : job_.match.warnings) replay_.warnings.push_back(warning);
    return {};
  }

  // Kernels launched before their rank's window stay as given: when they arrived is not known.
  bool meets(std::size_t rank, std::int32_t position) const {
    if (position < 0) return false;
    const std::int32_t event = job_.collectives[rank][position].event;
    return traces_[rank].gpu[event].launch >= 0;
  }

  void add_tasks() {
    std::vector<std::vector<bool>> meeting(traces_.size());
    std::vector<const std::vector<std::int32_t>*> groups;
    for (const auto& members : job_.match.groups) {
      std::size_t present = 0;
      bool all_meet = true;
      for (std::size_t r = 0; r < traces_.size(); ++r) {
        present += members[r] >= 0;
        all_meet &= members[r] < 0 || meets(r, members[r]);
      }
      if (present < 2 || !all_meet) {
        replay_.collectives_unmatched += 1;
        continue;
      }
      groups.push_back(&members);
      for (std::size_t r = 0; r < traces_.size(); ++r) {
        if (members[r] < 0) continue;
        meeting[r].resize(traces_[r].gpu.size(), false);
        const auto event = job_.collectives[r][members[r]].event;
        meeting[r][event] = true;
      }
    }
    replay_.collectives_matched = groups.size();
    std::int32_t lane = 0;
    double earliest = std::numeric_limits<double>::infinity();
    for (std::size_t r = 0; r < traces_.size(); ++r) earliest = std::min(earliest, start_us(r));
    for (std::size_t r = 0; r < traces_.size(); ++r) {
      job_.first_task.push_back(static_cast<TaskId>(job_.graph.size()));
      job_.ranks.push_back(add_replay_tasks(traces_[r], options_, start_us(r) - earliest, lane,
                                            meeting[r], job_.graph));
      lane = job_.ranks.back().end_lane;
      replay_.inferred_edges += job_.ranks.back().hand_overs + job_.ranks.back().inferred_waits +
                                job_.ranks.back().held_tasks;
    }
    job_.first_task.push_back(static_cast<TaskId>(job_.graph.size()));
    job_.arrival_edges.resize(traces_.size());
    for (const auto* members : groups) meet(*members);
    replay_.tasks = job_.graph.size();
    replay_.edges = job_.graph.edges();
  }

  double start_us(std::size_t rank) const {
    const double offset = job_.match.clock_offset_us.empty() ? 0 : job_.match.clock_offset_us[rank];
    return base_us(traces_, rank) - offset;
  }

  // Data moves once the last rank is there: from the last start to the first end, as measured.
  void meet(const std::vector<std::int32_t>& members) {
    double last_start = -std::numeric_limits<double>::infinity();
    double first_end = std::numeric_limits<double>::infinity();
    for (std::size_t r = 0; r < traces_.size(); ++r) {
      if (members[r] < 0) continue;
      const RankCollective& at = job_.collectives[r][members[r]];
      last_start = std::max(last_start, at.start_us - job_.match.clock_offset_us[r]);
      first_end = std::min(first_end, at.end_us - job_.match.clock_offset_us[r]);
    }
    const double transfer = std::max(0.0, first_end - last_start);
    Meeting meeting{.hub = job_.graph.add_task(TaskGraph::kNoLane, 0),
                    .tasks = std::vector<std::int32_t>(traces_.size(), -1)};
    for (std::size_t r = 0; r < traces_.size(); ++r) {
      if (members[r] < 0) continue;
      const std::int32_t event = job_.collectives[r][members[r]].event;
      job_.arrival_edges[r].push_back(
          job_.graph.add_edge(job_.ranks[r].arrivals[event], meeting.hub));
      job_.graph.add_edge(meeting.hub, job_.ranks[r].device[event]);
      job_.graph.set_duration_us(job_.ranks[r].device[event], transfer);
      meeting.tasks[r] = event;
    }
    job_.meetings.push_back(std::move(meeting));
  }

  std::span<const Trace> traces_;
  const ReplayOptions& options_;
  Replay& replay_;
  ReplayJob job_;
};

// Simulators want one size from all ranks: uneven all-to-alls count as their largest rank's.
std::vector<std::vector<RankCollective>> alike_on_all_ranks(const ReplayJob& job) {
  std::vector<std::vector<RankCollective>> alike = job.collectives;
  for (const auto& members : job.match.groups) {
    std::int64_t most = 0;
    for (std::size_t r = 0; r < alike.size(); ++r) {
      if (members[r] < 0) continue;
      most = std::max(most, alike[r][members[r]].largest_bytes());
    }
    for (std::size_t r = 0; r < alike.size(); ++r) {
      if (members[r] < 0) continue;
      RankCollective& own = alike[r][members[r]];
      own.in_elements = own.out_elements = most;
      own.element_bytes = 1;
    }
  }
  return alike;
}

std::string several(std::size_t count, std::string_view one, std::string_view more) {
  return fmt::format("{} {}", count, count == 1 ? one : more);
}

// Reads steps, communication, critical paths and exports from a scheduled job.
class ReplayReport {
 public:
  ReplayReport(const ReplayJob& job, const Schedule& schedule, const ReplayOptions& options,
               Replay& replay)
      : job_(job), schedule_(schedule), options_(options), replay_(replay) {}

  Result<void> write() {
    PERFMODEL_TRY_TO(check());
    for (std::size_t r = 0; r < traces_.size(); ++r) {
      Replay::Rank rank{.source = traces_[r].source, .rank = traces_[r].rank};
      if (!match_.clock_offset_us.empty()) rank.clock_offset_us = match_.clock_offset_us[r];
      report_iterations(r, rank);
      report_communication(r, rank);
      warn(r, rank);
      replay_.ranks.push_back(std::move(rank));
    }
    PERFMODEL_TRY_TO(report_paths());
    if (traces_.size() > 1) PERFMODEL_TRY_TO(report_job());
    return export_schedule();
  }

 private:
  double end(TaskId task) const { return task < 0 ? 0 : schedule_.end_us[task]; }
  double start(TaskId task) const { return task < 0 ? 0 : schedule_.start_us[task]; }

  Result<void> check() const {
    const TaskNames names = task_names(job_);
    const TaskName name = [&](TaskId task) {
      return fmt::format("\"{}\" ({})", names.op(task), names.category(task));
    };
    auto good = check_schedule(graph_, schedule_, name, {.overlap_us = kMostOverlapUs});
    for (std::size_t r = 0; good && r < ranks_.size(); ++r) {
      good = check_spans(graph_, schedule_, ranks_[r].device_lane, ranks_[r].end_lane, name,
                         kMostOverlapUs);
    }
    return good;
  }

  std::pair<std::size_t, std::size_t> window(std::size_t r) const {
    return options_.iterations.value_or(std::pair<std::size_t, std::size_t>(0, marks_[r].size()));
  }

  void report_iterations(std::size_t r, Replay::Rank& rank) {
    const Trace& trace = traces_[r];
    std::vector<TraceIteration> steps;
    for (const Marks& mark : marks_[r]) steps.push_back(mark.iteration);
    // When the device work of each iteration ends, measured and replayed.
    constexpr double kNone = -std::numeric_limits<double>::infinity();
    std::vector<double> measured(steps.size(), kNone), replayed(steps.size(), kNone);
    const auto iteration_of = gpu_iterations(trace, steps);
    for (std::size_t i = 0; i < trace.gpu.size(); ++i) {
      if (iteration_of[i] < 0) continue;
      const auto k = iteration_of[i];
      measured[k] = std::max(measured[k], us(trace.gpu[i].end_ns()));
      replayed[k] = std::max(replayed[k], end(ranks_[r].device[i]));
    }
    const std::vector<double> unrecorded =
        unrecorded_per_step(ranks_[r].unrecorded, iteration_of, steps.size());
    std::vector<double> loading(steps.size(), 0);
    for (std::size_t i = 0; i < trace.host.size(); ++i) {
      const HostEvent& event = trace.host[i];
      if (event.kind != HostKind::kAnnotation || !is_data_loading(trace.name(event))) continue;
      const std::int32_t k = iteration_at(steps, event.start_ns);
      if (k >= 0) loading[k] += us(event.duration_ns);
    }
    const std::size_t full = first_full_step(r);
    const auto [first, last] = window(r);
    for (std::size_t k = first; k < last; ++k) {
      const Marks& mark = marks_[r][k];
      Replay::Iteration made{.name = mark.iteration.name,
                             .measured_us = us(mark.iteration.end_ns - mark.iteration.begin_ns),
                             .replayed_us = end(mark.end) - end(mark.begin),
                             .data_loading_us = loading[k],
                             .unrecorded_device_us = unrecorded[k],
                             .queue_filling = k < full};
      if (k > 0 && measured[k] > kNone && measured[k - 1] > kNone) {
        made.measured_device_period_us = measured[k] - measured[k - 1];
        made.replayed_device_period_us = replayed[k] - replayed[k - 1];
      }
      rank.iterations.push_back(std::move(made));
    }
  }

  // The first step that finds the launch queue full, if it stays full to the end; 0 if it does not.
  // The step that fills it is no steady one either.
  std::size_t first_full_step(std::size_t r) const {
    std::vector<double> held;  // when launches went on that the queue had held
    for (const auto& [call, task] : ranks_[r].queued_launches) {
      const double room = end(ranks_[r].device[task]);
      const TaskId before = graph_.lane_previous(call);
      if (room >= start(call) - 1e-3 && (before < 0 || room > end(before))) held.push_back(room);
    }
    std::sort(held.begin(), held.end());
    const std::vector<Marks>& marks = marks_[r];
    std::size_t full = marks.size();
    while (full > 0) {
      const auto in = std::lower_bound(held.begin(), held.end(), end(marks[full - 1].begin));
      if (in == held.end() || *in > end(marks[full - 1].end)) break;
      --full;
    }
    if (full == marks.size()) return 0;
    return full > 0 && full + 1 < marks.size() ? full + 1 : full;
  }

  // "If free" is only asked for the longest last step: it schedules the whole job again and again.
  Result<void> report_paths() {
    std::size_t slowest = 0;
    const auto last_step = [&](std::size_t r) {
      return replay_.ranks[r].iterations.back().replayed_us;
    };
    for (std::size_t r = 1; r < traces_.size(); ++r) {
      if (last_step(r) > last_step(slowest)) slowest = r;
    }
    for (std::size_t r = 0; r < traces_.size(); ++r) {
      const Marks& mark = marks_[r][window(r).second - 1];
      CriticalPathOptions options;
      if (r != slowest) options.what_if = 0;
      PERFMODEL_TRY(
          path, critical_path(graph_, schedule_, mark.begin, mark.end, task_names(job_), options));
      replay_.ranks[r].critical_path = std::move(*path);
    }
    return {};
  }

  // Per iteration of the window.
  void report_communication(std::size_t r, Replay::Rank& rank) {
    const auto [first, last] = window(r);
    const double begin = end(marks_[r][first].begin), until = end(marks_[r][last - 1].end);
    const double steps = static_cast<double>(last - first);
    const Trace& trace = traces_[r];
    RankReport& made = rank.communication;
    std::vector<std::pair<std::int64_t, std::int64_t>> other, all;
    const auto whole_ns = [](double at) { return static_cast<std::int64_t>(at * 1e3); };
    for (std::size_t i = 0; i < trace.gpu.size(); ++i) {
      const TaskId arrival = ranks_[r].arrivals[i], task = ranks_[r].device[i];
      if (start(arrival) < begin || start(arrival) >= until) continue;
      const std::pair<std::int64_t, std::int64_t> span{whole_ns(start(arrival)),
                                                       whole_ns(end(task))};
      all.push_back(span);
      if (static_cast<Term>(graph_.term(task)) != Term::kCollective) {
        other.push_back(span);
        continue;
      }
      ++made.collectives;
      made.transfer_us += graph_.duration_us(task) / steps;
      if (arrival != task) made.waiting_us += (start(task) - end(arrival)) / steps;
    }
    made.exposed_us = us(union_length(all) - union_length(other)) / steps;
    for (const Meeting& meeting : job_.meetings) {
      if (meeting.tasks[r] < 0) continue;
      const TaskId own = ranks_[r].arrivals[meeting.tasks[r]];
      if (end(own) < begin || end(own) >= until || end(own) < start(meeting.hub)) continue;
      ++made.last_arrivals;
      for (std::size_t o = 0; o < traces_.size(); ++o) {
        if (meeting.tasks[o] < 0) continue;
        const TaskId theirs = ranks_[o].arrivals[meeting.tasks[o]];
        made.caused_us += (end(own) - end(theirs)) / steps;
      }
    }
  }

  Result<void> report_job() {
    PERFMODEL_TRY(job, replayed_job(graph_, schedule_, replay_.ranks, job_.arrival_edges,
                                    [this](const Schedule& at) { return mean_steps_us(at); }));
    if (job->straggler >= 0) {
      const std::int64_t rank = traces_[job->straggler].rank;
      if (rank >= 0) job->straggler = rank;
    }
    replay_.job = *job;
    return {};
  }

  std::vector<double> mean_steps_us(const Schedule& schedule) const {
    const auto end_in = [&](TaskId task) { return task < 0 ? 0 : schedule.end_us[task]; };
    std::vector<double> steps;
    for (std::size_t r = 0; r < traces_.size(); ++r) {
      const auto [first, last] = window(r);
      double sum = 0;
      for (std::size_t k = first; k < last; ++k) {
        sum += end_in(marks_[r][k].end) - end_in(marks_[r][k].begin);
      }
      steps.push_back(sum / static_cast<double>(last - first));
    }
    return steps;
  }

  Result<void> export_schedule() {
    const ScheduledReplay scheduled{.traces = traces_,
                                    .ranks = ranks_,
                                    .graph = graph_,
                                    .schedule = schedule_,
                                    .first_task = job_.first_task};
    if (options_.keep_chakra) {
      PERFMODEL_TRY(made, replay_chakra(scheduled, alike_on_all_ranks(job_)));
      replay_.chakra = std::move(*made);
    }
    if (!options_.keep_timeline) return {};
    std::size_t slowest = 0;
    for (std::size_t r = 0; r < traces_.size(); ++r) {
      if (replay_.ranks[r].critical_path.step_us > replay_.ranks[slowest].critical_path.step_us) {
        slowest = r;
      }
    }
    replay_.timeline = replay_timeline(scheduled, marks_[slowest][window(slowest).second - 1].end);
    return {};
  }

  void warn(std::size_t r, const Replay::Rank& rank) {
    const ReplayTasks& tasks = ranks_[r];
    const std::string who = traces_.size() > 1 ? job_.rank_label(r) + ": " : "";
    const auto say = [&](std::string text) { replay_.warnings.push_back(who + std::move(text)); };
    const std::size_t odd = traces_[r].recording.findings.size();
    for (std::size_t i = 0; i < odd; ++i) say(traces_[r].warnings[i]);
    if (traces_[r].gpu.empty()) {
      say("no device work in the trace: the host's own times are given back, so that the replay's "
          "error means nothing");
    }
    double unrecorded_us = 0, wall_us = 0;
    for (const auto& iteration : rank.iterations) {
      unrecorded_us += iteration.unrecorded_device_us;
      wall_us += iteration.measured_us;
    }
    if (auto warning = unrecorded_warning(unrecorded_us, wall_us)) say(std::move(*warning));
    if (tasks.inferred_waits > 0) {
      say(fmt::format("{} inferred from a late start after other work",
                      several(tasks.inferred_waits, "wait is", "waits are")));
    }
    if (tasks.held_tasks > 0) {
      say(fmt::format("{} inferred to wait for a kernel of another stream to drain",
                      several(tasks.held_tasks, "start is", "starts are")));
    }
    if (tasks.without_launch > 0) {
      say(fmt::format("{} launched outside of the trace (kept as measured)",
                      several(tasks.without_launch, "device task was", "device tasks were")));
    }
    if (tasks.queue_depth_fitted) {
      say(fmt::format("the launch queue fills up: depth {} found", tasks.queue_depth));
    }
    for (std::size_t i = odd; i < traces_[r].warnings.size(); ++i) say(traces_[r].warnings[i]);
    if (r == 0 && schedule_.dropped_edges > 0) {
      replay_.warnings.push_back(fmt::format("{} inferred waits closed a cycle and were dropped",
                                             schedule_.dropped_edges));
    }
  }

  const ReplayJob& job_;
  const Schedule& schedule_;
  const ReplayOptions& options_;
  Replay& replay_;
  const std::span<const Trace> traces_ = job_.traces;
  const TaskGraph& graph_ = job_.graph;
  const CollectiveMatch& match_ = job_.match;
  const std::vector<ReplayTasks>& ranks_ = job_.ranks;
  const std::vector<std::vector<Marks>>& marks_ = job_.marks;
};

Result<Replay> replay_job(std::span<const Trace> traces, const ReplayOptions& options) {
  Replay replay;
  PERFMODEL_TRY(job, JobBuilder(traces, options, replay).build());
  stop_point();
  PERFMODEL_TRY(schedule, run_schedule(job->graph));
  PERFMODEL_TRY_TO(ReplayReport(*job, *schedule, options, replay).write());
  return replay;
}

}  // namespace

Result<Replay> replay(std::span<const Trace> ranks, const ReplayOptions& options) {
  if (ranks.empty()) return decline("expected at least one trace, found none");
  std::vector<Trace> noted;
  if (!options.graphs.empty()) {
    if (options.graphs.size() != ranks.size()) {
      return decline(fmt::format("expected a graph per trace, found {} for {}",
                                 options.graphs.size(), ranks.size()));
    }
    noted.assign(ranks.begin(), ranks.end());
    for (std::size_t r = 0; r < noted.size(); ++r) {
      PERFMODEL_TRY_TO(note_collectives(options.graphs[r], noted[r]));
    }
    ranks = noted;
  }
  return replay_scaled(options, [&](const ReplayOptions& at) { return replay_job(ranks, at); });
}

}  // namespace perfmodel
