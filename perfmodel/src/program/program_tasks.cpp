#include "program_tasks.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <set>

namespace perfmodel {

using TaskId = TaskGraph::TaskId;

ProgramTasks::ProgramTasks(const HostProgram& program, const OverheadTable& table,
                           std::int32_t first_lane, TaskGraph& graph)
    : program_(program), table_(table), first_lane_(first_lane), graph_(graph) {
  std::set<std::int32_t> threads;
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const std::int32_t thread = program.instructions[i].thread;
    if (i == 0 || thread != program.instructions[i - 1].thread) threads.insert(thread);
  }
  threads_ = threads.size();
  find_busiest_stream();
  sequences_ = sequences_per_pass();
}

std::int32_t ProgramTasks::host_lane(std::int32_t thread) {
  if (thread == thread_at_hand_ && lane_at_hand_ >= 0) return lane_at_hand_;
  const auto next = static_cast<std::int32_t>(host_lanes_.size());
  thread_at_hand_ = thread;
  lane_at_hand_ = host_lanes_.try_emplace(thread, first_lane_ + kStreamLanes + next).first->second;
  return lane_at_hand_;
}

std::int32_t ProgramTasks::stream_lane(std::int32_t role) const {
  return first_lane_ + std::min(role, kStreamLanes - 1);
}

std::int32_t& ProgramTasks::last_stream(std::int32_t thread) {
  return last_stream_.try_emplace(thread, first_lane_).first->second;
}

void ProgramTasks::find_busiest_stream() {
  constexpr double kNoLaunch = -std::numeric_limits<double>::infinity();
  std::array<double, kStreamLanes> work;
  work.fill(kNoLaunch);
  for (const Instruction& at : program_.instructions) {
    const Launch* launch = launch_of(at);
    if (!launch) continue;
    double& of_lane = work[stream_lane(launch->stream) - first_lane_];
    if (of_lane == kNoLaunch) of_lane = 0;
    of_lane += program_.device_us(*launch) + table_.device.kernel_gap_us;
  }
  const auto most = std::ranges::max_element(work);
  if (*most != kNoLaunch)
    busiest_lane_ = first_lane_ + static_cast<std::int32_t>(most - work.begin());
}

// Sequence numbers that one pass uses up, per group and over all (-1): distance between equal
// collectives of two passes.
std::map<std::int32_t, std::int64_t> ProgramTasks::sequences_per_pass() const {
  std::map<std::int32_t, std::pair<std::int64_t, std::int64_t>> spans;  // lowest, highest
  for (const Instruction& at : program_.instructions) {
    const Launch* launch = collective_of(at);
    if (!launch) continue;
    const CollectiveLaunch& own = program_.collective(*launch);
    const std::int64_t sequence = own.sequence;
    if (sequence < 0) continue;
    for (std::int32_t group : {own.group, -1}) {
      auto& span = spans.try_emplace(group, sequence, sequence).first->second;
      span = {std::min(span.first, sequence), std::max(span.second, sequence)};
    }
  }
  std::map<std::int32_t, std::int64_t> lengths;
  for (const auto& [group, span] : spans) lengths[group] = span.second - span.first + 1;
  return lengths;
}

// A number without partner in this pass belongs to the pass before. -1: nothing to wait for.
TaskId ProgramTasks::awaited_task(const DeviceWait& wait) const {
  if (wait.record >= 0) {
    const auto known = of_records_.find(wait.record);  // this pass's or, if none so far, the last's
    return known == of_records_.end() ? -1 : known->second;
  }
  const std::int32_t group = sequences_.contains(wait.group) ? wait.group : -1;
  const auto here = collectives_.find({group, wait.sequence});
  if (here != collectives_.end()) return here->second;
  const auto length = sequences_.find(group);
  if (length == sequences_.end()) return -1;
  const auto before = earlier_.find({group, wait.sequence + length->second});
  return before == earlier_.end() ? -1 : before->second;
}

void ProgramTasks::add_pass(TaskId starter, double lag_us) {
  // The first pass has none before it. What is still awaited between passes can be another kernel
  // after the second pass than after the first.
  repeats_ = !pass_ends_.empty() && awaited_.empty() && starter < 0;
  earlier_ = std::exchange(collectives_, {});
  arrivals_.clear();
  marks_.clear();
  last_pass_.clear();
  iteration_ends_.clear();
  const auto first = static_cast<TaskId>(graph_.size());
  TaskId begin = -1;
  std::int32_t iteration = program_.items.empty() ? 0 : program_.items.front().iteration;
  for (std::size_t i = 0; i < program_.instructions.size(); ++i) {
    const Placing from{program_.instructions[i], static_cast<std::int32_t>(i)};
    const std::int32_t now = program_.item(from.at.item).iteration;
    if (now != iteration) iteration_ends_.push_back(last_host_);
    iteration = now;
    std::visit([&](const auto& what) { add(from, what); }, from.at.what);
    if (begin < 0 && last_host_ >= first) {
      begin = last_host_;
      graph_.add_edge(starter, begin, lag_us);
    }
  }
  iteration_ends_.push_back(last_host_);
  pass_begins_.push_back(begin);
  pass_ends_.push_back(last_host_);
  pass_device_ends_.push_back(busiest_task_);
  repeats_ &= awaited_.empty();
}

void ProgramTasks::repeat(TaskId later) {
  const auto move = [later](TaskId& task) {
    if (task >= 0) task += later;
  };
  earlier_ = collectives_;
  for (auto& [key, task] : collectives_) move(task);
  for (auto& [record, task] : of_records_) move(task);
  for (Placed& placed : last_pass_) placed.task += later, placed.arrival += later;
  for (Arrival& at : arrivals_) at.arrival += later, at.transfer += later;
  for (auto* ends : {&pass_begins_, &pass_ends_, &pass_device_ends_}) {
    ends->push_back(ends->back());
    move(ends->back());
  }
  std::ranges::for_each(iteration_ends_, move);
  move(last_host_);
  move(busiest_task_);
}

bool ProgramTasks::retime(TaskId apart) {
  const std::int32_t busiest = busiest_lane_;
  find_busiest_stream();
  if (busiest_lane_ != busiest) return false;
  for (const Placed& placed : last_pass_) {
    if (!on_device(placed.task)) continue;
    const double us = program_.device_us(*launch_of(program_.instructions[placed.instruction]));
    for (std::size_t back = 0; back < pass_ends_.size(); ++back) {
      graph_.set_duration_us(placed.task - static_cast<TaskId>(back) * apart, us);
    }
  }
  return true;
}

void ProgramTasks::add(const Placing& from, const HostWork& work) {
  add_host(from, work.us, work.term);
}

void ProgramTasks::add(const Placing& from, const Launch& launch) {
  if (!launch.blocking) {
    add_host(from, launch.host_us, Term::kT4);
    add_device(from, launch);
    return;
  }
  // The copy starts a little after the call does; the call ends after the copy.
  const TaskId copy = add_device(from, launch);
  const TaskId resume = add_host(from, launch.host_us, Term::kT4);
  graph_.add_edge(copy, resume);
}

void ProgramTasks::add(const Placing& from, const Synchronisation& sync) {
  std::vector<TaskId> tails;  // the stream waits for these
  for (const Awaited& awaited : awaited_) tails.push_back(awaited.task);
  if (sync.kind == SyncKind::kDevice) {
    for (std::int32_t role = 0; role < kStreamLanes; ++role) {
      if (const auto tail = graph_.last_on_lane(first_lane_ + role); tail >= 0) {
        tails.push_back(tail);
      }
    }
  } else if (const auto tail = graph_.last_on_lane(stream_lane(sync.stream)); tail >= 0) {
    tails.push_back(tail);
  }
  const auto task = add_host(from, sync.host_us, Term::kT4);
  for (const auto tail : tails) graph_.add_edge(tail, task, sync.latency_us);
}

void ProgramTasks::add(const Placing&, const DeviceWait& wait) {
  if (const TaskId awaited = awaited_task(wait); awaited >= 0) {
    awaited_.push_back({awaited, wait.lag_us.value_or(table_.device.event_gap_us)});
  }
}

void ProgramTasks::add(const Placing& from, const StreamMark& mark) {
  marks_[mark.number] = graph_.last_on_lane(last_stream(from.at.thread));
}

TaskId ProgramTasks::add_host(const Placing& from, double us, Term term) {
  const std::int32_t lane = host_lane(from.at.thread);
  const auto task = graph_.add_task(lane, us, 0, from.at.item, static_cast<std::int32_t>(term));
  // The host is one serial chain over its threads: a hand-over is an edge.
  if (last_host_ >= 0 && graph_.lane(last_host_) != lane) graph_.add_edge(last_host_, task);
  last_host_ = task;
  last_pass_.push_back({task, task, from.position});
  return task;
}

std::int32_t ProgramTasks::device_tag(const Launch& launch) const {
  const auto term = static_cast<std::int32_t>(launch.term);
  if (launch.term != Term::kKernel) return term;
  return term | (static_cast<std::int32_t>(program_.kernel(launch).family) + 1) << kFamilyShift;
}

// Adds the work on other streams that the new task waits for.
void ProgramTasks::await_streams(const Launch& launch, std::int32_t thread, TaskId begin) {
  const double gap = table_.device.event_gap_us;
  std::int32_t& caller = last_stream(thread);
  const auto* own = launch.is_collective() ? &program_.collective(launch) : nullptr;
  const bool follows = own ? own->waits_for_caller : launch.aside;
  if (!own && !launch.aside) {
    caller = stream_lane(launch.stream);
    for (const Awaited& awaited : awaited_) {
      graph_.add_edge(awaited.task, begin, awaited.lag_us);
    }
    awaited_.clear();
  } else if (follows) {
    const auto source = graph_.last_on_lane(caller);
    if (source >= 0 && source != begin) graph_.add_edge(source, begin, gap);
  } else if (const auto marked = marks_.find(own->after_mark); marked != marks_.end()) {
    graph_.add_edge(marked->second, begin, gap);
  }
}

TaskId ProgramTasks::add_device(const Placing& from, const Launch& launch) {
  const std::int32_t lane = stream_lane(launch.stream), item = from.at.item;
  const TaskId call = last_host_;
  const std::int32_t tag = device_tag(launch);
  const double us = program_.device_us(launch);
  const auto* own = launch.is_collective() ? &program_.collective(launch) : nullptr;
  const bool meets = own && own->meeting >= 0;
  const auto begin = graph_.add_task(
      lane, meets ? 0 : us, launch.gap_us.value_or(table_.device.kernel_gap_us), item, tag);
  graph_.add_edge(call, begin, launch.latency_us);
  await_streams(launch, from.at.thread, begin);
  const auto task = meets ? graph_.add_task(lane, us, 0, item, tag) : begin;
  if (meets) arrivals_.push_back({own->meeting, begin, task});
  if (own && own->sequence >= 0) {
    collectives_[{own->group, own->sequence}] = collectives_[{-1, own->sequence}] = task;
  }
  if (launch.record >= 0) of_records_[launch.record] = task;
  if (lane == busiest_lane_ || busiest_lane_ < 0) busiest_task_ = task;
  last_pass_.push_back({task, begin, from.position});
  return task;
}

}  // namespace perfmodel
