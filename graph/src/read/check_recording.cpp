#include "check_recording.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <span>

#include "base/secrets.hpp"
#include "perfmodel/graph/detail/event_names.hpp"
#include "perfmodel/graph/detail/trace_ops.hpp"

namespace perfmodel {
namespace {

constexpr std::int64_t kMinuteNs = 60'000'000'000;
constexpr std::int64_t kFarMinutes = 10;
constexpr std::size_t kLeastShare = 10;  // one event in so many may be far off
constexpr std::int64_t kMostEarlyNs = 100'000'000;
constexpr std::int64_t kMostLateNs = kFarMinutes * kMinuteNs;
constexpr std::int64_t kClockSpreadNs = 1'000'000'000;
constexpr std::int64_t kMostOverlapNs = 1'500;

std::string length_text(std::int64_t ns) {
  const double seconds = static_cast<double>(ns) / 1e9;
  if (seconds >= 2 * 86400.0) return fmt::format("{:.0f} days", seconds / 86400);
  if (seconds >= 2 * 3600.0) return fmt::format("{:.1f} hours", seconds / 3600);
  if (seconds >= 120) return fmt::format("{:.0f} minutes", seconds / 60);
  if (seconds >= 1) return fmt::format("{:.1f} s", seconds);
  return fmt::format("{:.3f} ms", seconds * 1e3);
}

// Events by the minute in which they begin.
class Minutes {
 public:
  void add(std::int64_t stamp_ns, bool on_device) {
    const std::int64_t minute = of(stamp_ns);
    if (!last_ || minute != minute_) {
      minute_ = minute;
      last_ = &counts_[minute];
    }
    ++last_->events;
    last_->on_device += on_device;
  }

  /// Joins minutes to stretches without a long gap. Whether there are several.
  bool find_stretches() {
    for (const auto& [minute, count] : counts_) {
      if (stretches_.empty() || minute > stretches_.back().end + kFarMinutes) {
        stretches_.push_back({.begin = minute});
      }
      Stretch& stretch = stretches_.back();
      stretch.end = minute;
      stretch.count.events += count.events;
      stretch.count.on_device += count.on_device;
      all_on_device_ += count.on_device;
      if (stretch.count.events > body_.count.events) body_ = stretch;
    }
    return stretches_.size() > 1;
  }

  /// Distance of an event from the stretch with most events, in nanoseconds; 0: it belongs to that
  /// or to another one that may be a recording of its own. Stretches of few events, or of some
  /// device work alone, are no recordings.
  std::int64_t far_off_ns(std::int64_t stamp_ns) const {
    const std::int64_t minute = of(stamp_ns);
    const auto known = std::ranges::find_if(stretches_, [minute](const Stretch& stretch) {
      return minute >= stretch.begin && minute <= stretch.end;
    });
    if (known != stretches_.end() && known->begin == body_.begin) return 0;
    if (known != stretches_.end()) {
      const Count& count = known->count;
      const bool few = count.events * kLeastShare <= body_.count.events;
      const bool work_alone =
          count.events == count.on_device && 2 * count.on_device < all_on_device_;
      if (!few && !work_alone) return 0;
    }
    return std::max(body_.begin * kMinuteNs - stamp_ns, stamp_ns - (body_.end + 1) * kMinuteNs);
  }

 private:
  struct Count {
    std::size_t events = 0, on_device = 0;
  };
  struct Stretch {
    std::int64_t begin = 0, end = 0;
    Count count;
  };
  static std::int64_t of(std::int64_t stamp_ns) {
    return stamp_ns / kMinuteNs - (stamp_ns % kMinuteNs < 0 ? 1 : 0);
  }
  std::map<std::int64_t, Count> counts_;
  std::vector<Stretch> stretches_;
  Stretch body_;
  std::size_t all_on_device_ = 0;
  Count* last_ = nullptr;
  std::int64_t minute_ = 0;
};

std::string counted(std::size_t count, std::string_view one, std::string_view more) {
  return fmt::format("{} {}", count, count == 1 ? one : more);
}

}  // namespace

void leave_out_far_stamps(Trace& trace) {
  Minutes minutes;
  for (const HostEvent& event : trace.host) minutes.add(event.start_ns, false);
  for (const GpuEvent& event : trace.gpu) minutes.add(event.start_ns, true);
  if (!minutes.find_stretches()) return;
  std::size_t left_out = 0;
  std::int64_t farthest = 0;
  const auto stray = [&](std::int64_t stamp_ns) {
    const std::int64_t distance = minutes.far_off_ns(stamp_ns);
    farthest = std::max(farthest, distance);
    left_out += distance > 0;
    return distance > 0;
  };
  std::erase_if(trace.host, [&](const HostEvent& event) { return stray(event.start_ns); });
  std::erase_if(trace.gpu, [&](const GpuEvent& event) { return stray(event.start_ns); });
  std::erase_if(trace.memory, [&](const MemoryRecord& event) { return stray(event.time_ns); });
  trace.recording.say("stamp_far_off", left_out,
                      fmt::format("{} up to {} away from all others and {} left out",
                                  counted(left_out, "event has a stamp", "events have stamps"),
                                  length_text(farthest), left_out == 1 ? "is" : "are"));
}

void leave_out_far_work(Trace& trace) {
  struct Clock {
    std::size_t launched = 0, off = 0;
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    std::int64_t most = std::numeric_limits<std::int64_t>::min();
  };
  const auto distance = [&](const GpuEvent& event) {
    return event.start_ns - trace.host[event.launch].start_ns;
  };
  const auto is_far = [](std::int64_t ns) { return ns < -kMostEarlyNs || ns > kMostLateNs; };
  std::map<std::int16_t, Clock> clocks;
  Clock* clock = nullptr;
  std::int16_t device = 0;
  std::size_t off = 0;
  for (const GpuEvent& event : trace.gpu) {
    if (event.launch < 0) continue;
    if (!clock || event.device != device) clock = &clocks[device = event.device];
    const std::int64_t at = distance(event);
    ++clock->launched;
    clock->least = std::min(clock->least, at);
    clock->most = std::max(clock->most, at);
    clock->off += is_far(at);
    off += is_far(at);
  }
  if (off == 0) return;
  for (const auto& [number, at] : clocks) {
    if (2 * at.off <= at.launched || at.most - at.least > kClockSpreadNs) continue;
    for (GpuEvent& event : trace.gpu) {
      if (event.device == number) event.start_ns -= at.least;
    }
    off -= at.off;
    trace.recording.say("clock_of_device", at.launched,
                        fmt::format("the clock of device {} is {} off: its {} pieces of work are "
                                    "moved to begin with their calls at the earliest",
                                    number, length_text(std::abs(at.least)), at.launched));
  }
  std::int64_t farthest = 0;
  std::erase_if(trace.gpu, [&](const GpuEvent& event) {
    if (event.launch < 0 || !is_far(distance(event))) return false;
    farthest = std::max(farthest, std::abs(distance(event)));
    return true;
  });
  trace.recording.say(
      "work_far_from_call", off,
      fmt::format("{} up to {} away from the call that launched it and {} left out",
                  counted(off, "piece of device work is", "pieces of device work are"),
                  length_text(farthest), off == 1 ? "is" : "are"));
}

namespace {

// Whether two pieces of work of a stream may run at one time.
bool may_overlap(const Trace& trace, const GpuEvent& earlier, const GpuEvent& later) {
  const auto call_of = [&](const GpuEvent& event) { return trace.name(trace.host[event.launch]); };
  // Nodes of a captured graph.
  if (earlier.launch < 0 && later.launch < 0) {
    return earlier.correlation > 0 && earlier.correlation == later.correlation;
  }
  if (earlier.launch == later.launch && !is_kernel_call(call_of(earlier))) return true;
  if (later.launch < 0 || later.end_ns() < earlier.end_ns()) return false;
  // Programmatic dependent launch: the kernel begins while the one before it drains.
  return call_of(later).find("LaunchKernelEx") != std::string_view::npos;
}

bool equal_records(const GpuEvent& a, const GpuEvent& b) {
  return a.start_ns == b.start_ns && a.duration_ns == b.duration_ns && a.name == b.name &&
         a.correlation == b.correlation;
}

}  // namespace

void cut_overlaps(Trace& trace) {
  std::size_t cut = 0, twice = 0, kept = 0;
  std::int64_t cut_ns = 0;
  std::string longest;
  std::int64_t most_ns = 0;
  std::size_t latest = 0;  // event of the current stream that ends last
  for (std::size_t i = 0; i < trace.gpu.size(); ++i) {
    const GpuEvent& event = trace.gpu[i];
    const bool same_stream = kept > 0 && trace.gpu[latest].device == event.device &&
                             trace.gpu[latest].stream == event.stream;
    if (same_stream) {
      GpuEvent& before = trace.gpu[latest];
      const std::int64_t overlap = before.end_ns() - event.start_ns;
      if (overlap > 0 && equal_records(trace.gpu[kept - 1], event)) {
        ++twice;
        continue;
      }
      if (overlap > kMostOverlapNs && !may_overlap(trace, before, event)) {
        ++cut;
        cut_ns += overlap;
        if (overlap > most_ns) {
          most_ns = overlap;
          longest = shown_text(trace.name(before));
        }
        before.duration_ns = event.start_ns - before.start_ns;
      }
    }
    if (kept != i) trace.gpu[kept] = event;
    if (!same_stream || trace.gpu[kept].end_ns() >= trace.gpu[latest].end_ns()) latest = kept;
    ++kept;
  }
  trace.gpu.resize(kept);
  trace.recording.say(
      "recorded_twice", twice,
      fmt::format("{} recorded twice (same stream, name and times): {} once",
                  counted(twice, "piece of device work is", "pieces of device work are"),
                  twice == 1 ? "it counts" : "they count"));
  trace.recording.say(
      "overlap_on_stream", cut,
      fmt::format(
          "{} than the next one of the same stream begins and {} cut there, {} in all; the "
          "longest is {}, by {}",
          counted(cut, "piece of device work ends later", "pieces of device work end later"),
          cut == 1 ? "is" : "are", length_text(cut_ns), longest, length_text(most_ns)));
}

void leave_out_host_events(Trace& trace, const std::vector<bool>& leave_out) {
  std::vector<std::int32_t> moved(trace.host.size(), -1);
  std::size_t kept = 0;
  for (std::size_t i = 0; i < trace.host.size(); ++i) {
    if (leave_out[i]) continue;
    moved[i] = static_cast<std::int32_t>(kept);
    if (kept != i) trace.host[kept] = trace.host[i];
    ++kept;
  }
  trace.host.resize(kept);
  for (GpuEvent& event : trace.gpu) {
    if (event.launch >= 0) event.launch = moved[event.launch];
  }
}

void leave_out_repeated_steps(Trace& trace) {
  std::vector<std::size_t> marks;
  std::vector<std::int8_t> by_name(trace.names.size(), -1);
  for (std::size_t i = 0; i < trace.host.size(); ++i) {
    const HostEvent& event = trace.host[i];
    if (event.kind != HostKind::kAnnotation) continue;
    auto& is_step = by_name[event.name];
    if (is_step < 0) is_step = is_profiler_step(trace.name(event)) ? 1 : 0;
    if (is_step == 1) marks.push_back(i);
  }
  if (marks.size() < 2) return;
  // Longer marks come first if they begin together, so that inner marks come later.
  std::ranges::stable_sort(marks, [&](std::size_t a, std::size_t b) {
    const HostEvent &x = trace.host[a], &y = trace.host[b];
    return x.start_ns != y.start_ns ? x.start_ns < y.start_ns : x.duration_ns > y.duration_ns;
  });
  constexpr std::int64_t kSlackNs = 1'000;
  std::size_t repeated = 0, nested = 0;
  std::vector<bool> leave_out(trace.host.size(), false);
  std::size_t last = marks.front();
  for (const std::size_t mark : std::span(marks).subspan(1)) {
    const HostEvent &outer = trace.host[last], &event = trace.host[mark];
    const bool overlaps = event.start_ns < outer.end_ns();
    if (overlaps && event.name == outer.name) {
      ++repeated;
    } else if (overlaps && event.end_ns() <= outer.end_ns() + kSlackNs &&
               outer.end_ns() - event.start_ns > kSlackNs) {
      ++nested;
    } else {
      last = mark;
      continue;
    }
    leave_out[mark] = true;
  }
  if (repeated + nested == 0) return;
  leave_out_host_events(trace, leave_out);
  trace.recording.say("step_marked_twice", repeated,
                      fmt::format("{} of a step stand a second time at the same time (on another "
                                  "thread, say) and count once",
                                  counted(repeated, "mark", "marks")));
  trace.recording.say("step_within_step", nested,
                      fmt::format("{} of steps lie within other steps and are left out",
                                  counted(nested, "mark", "marks")));
}

void note_steps(Trace& trace) {
  const std::vector<TraceIteration> steps = iterations(trace);
  if (steps.size() < 2 || !is_profiler_step(steps.front().name)) return;
  std::size_t jumps = 0;
  std::string first;
  for (std::size_t i = 1; i < steps.size(); ++i) {
    if (follows_at_once(steps[i - 1], steps[i]) || steps[i - 1].name == steps[i].name) continue;
    if (jumps++ == 0) {
      first = fmt::format("{} comes after {}", shown_text(steps[i].name),
                          shown_text(steps[i - 1].name));
    }
  }
  trace.recording.say("steps_not_recorded", jumps,
                      fmt::format("the numbers of steps jump {} ({}): the time between is no part "
                                  "of any step",
                                  jumps == 1 ? "once" : fmt::format("{} times", jumps), first));
  std::vector<bool> works(steps.size(), false);
  TraceIteration last;  // step of the previous event, mostly also of the next
  for (const HostEvent& event : trace.host) {
    if (event.kind == HostKind::kAnnotation) continue;
    if (event.start_ns >= last.begin_ns && event.start_ns < last.end_ns) continue;
    const std::int32_t step = iteration_at(steps, event.start_ns);
    if (step < 0) continue;
    works[step] = true;
    last = steps[step];
  }
  works.back() = true;  // recordings end with the mark of a step that has only begun
  const auto empty = static_cast<std::size_t>(std::ranges::count(works, false));
  trace.recording.say("steps_without_work", empty,
                      fmt::format("{} neither ops nor calls",
                                  counted(empty, "marked step holds", "marked steps hold")));
}

Result<void> check_has_ops(const Trace& trace) {
  const bool any = std::ranges::any_of(
      trace.host, [](const HostEvent& event) { return event.kind == HostKind::kOp; });
  if (any) return {};
  return fail(ErrorCode::kFormat, "expected ops in the trace, found none", trace.source);
}

Result<void> check_program(const Trace& trace) {
  if (auto good = check_has_ops(trace); !good) return good;
  return check_one_device(trace);
}

Result<void> check_one_device(const Trace& trace) {
  std::map<std::int16_t, std::size_t> kernels;
  for (const GpuEvent& event : trace.gpu) {
    if (event.kind == GpuKind::kKernel && event.launch >= 0) ++kernels[event.device];
  }
  if (kernels.size() < 2) return {};
  std::string list;
  for (const auto& [device, count] : kernels) {
    list += fmt::format("{}{} ({})", list.empty() ? "" : ", ", device, count);
  }
  return fail(ErrorCode::kImpossible,
              fmt::format("expected kernels of one device, found kernels of devices {}: a step "
                          "of several devices of one process is read by trace and replay alone",
                          list),
              trace.source);
}

Result<void> check_one_process(const Trace& trace) {
  std::vector<bool> launches(trace.threads.size(), false);
  for (const HostEvent& event : trace.host) {
    if (event.launches && event.thread >= 0) launches[event.thread] = true;
  }
  std::set<std::string> processes;
  for (std::size_t i = 0; i < launches.size(); ++i) {
    if (launches[i]) processes.insert(trace.threads[i].process_id);
  }
  if (processes.size() < 2) return {};
  std::string list;
  for (const std::string& process : processes) {
    list += fmt::format("{}{}", list.empty() ? "" : ", ", shown_text(process));
    if (list.size() > 200) {
      list += ", ...";
      break;
    }
  }
  return fail(ErrorCode::kFormat,
              fmt::format("expected the trace of one process, found launches of {} processes "
                          "(pid {}): ranks in one file share ids and streams; give each process "
                          "a file of its own",
                          processes.size(), list));
}

}  // namespace perfmodel
