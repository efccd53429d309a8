#include "program_tasks.hpp"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

namespace perfmodel {

using TaskId = TaskGraph::TaskId;

ProgramTasks::ProgramTasks(const HostProgram& program, const OverheadTable& table,
                           std::int32_t first_lane, TaskGraph& graph)
    : program_(program), table_(table), first_lane_(first_lane), graph_(graph) {
  std::set<std::int32_t> threads;
  for (const Instruction& at : program.instructions) threads.insert(at.thread);
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

void ProgramTasks::find_busiest_stream() {
  std::map<std::int32_t, double> work;
  for (const Instruction& at : program_.instructions) {
    if (at.kind == Instruction::Kind::kLaunch || at.kind == Instruction::Kind::kBlockingCopy) {
      work[stream_lane(at.stream)] += at.device_us + table_.device.kernel_gap_us;
    }
  }
  const auto most = std::max_element(
      work.begin(), work.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most != work.end()) busiest_lane_ = most->first;
}

// Sequence numbers that one pass uses up, per group and over all (-1): distance between equal
// collectives of two passes.
std::map<std::int32_t, std::int64_t> ProgramTasks::sequences_per_pass() const {
  std::map<std::int32_t, std::pair<std::int64_t, std::int64_t>> spans;  // lowest, highest
  for (const Instruction& at : program_.instructions) {
    if (at.sequence < 0 || at.kind == Instruction::Kind::kCommWait) continue;
    for (std::int32_t group : {at.group, -1}) {
      auto& span = spans.try_emplace(group, at.sequence, at.sequence).first->second;
      span = {std::min(span.first, at.sequence), std::max(span.second, at.sequence)};
    }
  }
  std::map<std::int32_t, std::int64_t> lengths;
  for (const auto& [group, span] : spans) lengths[group] = span.second - span.first + 1;
  return lengths;
}

// A number without partner in this pass belongs to the pass before. -1: nothing to wait for.
TaskId ProgramTasks::awaited_collective(const Instruction& at) const {
  if (at.record >= 0) {
    const auto known = of_records_.find(at.record);  // this pass's or, if none so far, the last's
    return known == of_records_.end() ? -1 : known->second;
  }
  const std::int32_t group = sequences_.contains(at.group) ? at.group : -1;
  const auto here = collectives_.find({group, at.sequence});
  if (here != collectives_.end()) return here->second;
  const auto length = sequences_.find(group);
  if (length == sequences_.end()) return -1;
  const auto before = earlier_.find({group, at.sequence + length->second});
  return before == earlier_.end() ? -1 : before->second;
}

void ProgramTasks::add_pass(bool record, TaskId starter, double lag_us) {
  earlier_ = std::exchange(collectives_, {});
  arrivals_.clear();
  marks_.clear();
  if (record) {
    last_pass_.clear();
    iteration_ends_.clear();
  }
  const auto first = static_cast<TaskId>(graph_.size());
  TaskId begin = -1;
  const auto& items = program_.items;
  std::int32_t iteration = items.empty() ? 0 : items.front().iteration;
  for (std::size_t i = 0; i < program_.instructions.size(); ++i) {
    const Instruction& at = program_.instructions[i];
    const std::int32_t now = items[static_cast<std::size_t>(at.op)].iteration;
    if (now != iteration) {
      if (record) iteration_ends_.push_back(last_host_);
      iteration = now;
    }
    const auto instruction = static_cast<std::int32_t>(i);
    switch (at.kind) {
      case Instruction::Kind::kHost:
        add_host(at, at.host_us, at.term, instruction, record);
        break;
      case Instruction::Kind::kLaunch:
        add_host(at, at.host_us, Term::kT4, instruction, record);
        add_device(at, instruction, record);
        break;
      case Instruction::Kind::kBlockingCopy: {
        // The copy starts a little after the call does; the call ends after the copy.
        const auto copy = add_device(at, instruction, record);
        const auto resume = add_host(at, at.host_us, Term::kT4, instruction, record);
        graph_.add_edge(copy, resume);
        break;
      }
      case Instruction::Kind::kSync:
        add_sync(at, instruction, record);
        break;
      case Instruction::Kind::kCommWait:
        if (const TaskId awaited = awaited_collective(at); awaited >= 0) {
          awaited_.push_back(awaited);
        }
        break;
      case Instruction::Kind::kMark:
        marks_[at.after_mark] =
            graph_.last_on_lane(last_stream_.try_emplace(at.thread, first_lane_).first->second);
        break;
    }
    if (begin < 0 && last_host_ >= first) {
      begin = last_host_;
      graph_.add_edge(starter, begin, lag_us);
    }
  }
  if (record) iteration_ends_.push_back(last_host_);
  pass_begins_.push_back(begin);
  pass_ends_.push_back(last_host_);
  pass_device_ends_.push_back(busiest_task_);
}

TaskId ProgramTasks::add_host(const Instruction& at, double us, Term term, std::int32_t instruction,
                              bool record) {
  const std::int32_t lane = host_lane(at.thread);
  const auto task = graph_.add_task(lane, us, 0, at.op, static_cast<std::int32_t>(term));
  // The host is one serial chain over its threads: a hand-over is an edge.
  if (last_host_ >= 0 && graph_.lane(last_host_) != lane) graph_.add_edge(last_host_, task);
  last_host_ = task;
  if (record) last_pass_.push_back({task, task, instruction});
  return task;
}

std::int32_t ProgramTasks::device_tag(const Instruction& at) const {
  const auto term = static_cast<std::int32_t>(at.term);
  if (at.term != Term::kKernel || at.kernel < 0) return term;
  const ProgramItem& item = program_.items[static_cast<std::size_t>(at.op)];
  const auto family = item.kernels[static_cast<std::size_t>(at.kernel)].family;
  return term | (static_cast<std::int32_t>(family) + 1) << kFamilyShift;
}

TaskId ProgramTasks::add_device(const Instruction& at, std::int32_t instruction, bool record) {
  const std::int32_t lane = stream_lane(at.stream);
  const auto call = last_host_;
  const std::int32_t term = device_tag(at);
  const bool meets = at.meeting >= 0;
  const auto begin =
      graph_.add_task(lane, meets ? 0 : at.device_us, table_.device.kernel_gap_us, at.op, term);
  graph_.add_edge(call, begin, at.latency_us);
  auto& thread_stream = last_stream_.try_emplace(at.thread, first_lane_).first->second;
  if (at.collective && !at.waits_for_caller) {
    const auto marked = marks_.find(at.after_mark);
    if (marked != marks_.end()) {
      graph_.add_edge(marked->second, begin, table_.device.event_gap_us);
    }
  } else if (at.collective) {
    // A collective waits for the stream that it is called from.
    const auto source = graph_.last_on_lane(thread_stream);
    if (source >= 0 && source != begin) graph_.add_edge(source, begin, table_.device.event_gap_us);
  } else {
    thread_stream = lane;
    for (TaskId awaits : awaited_) graph_.add_edge(awaits, begin, table_.device.event_gap_us);
    awaited_.clear();
  }
  const auto task = meets ? graph_.add_task(lane, at.device_us, 0, at.op, term) : begin;
  if (meets) arrivals_.push_back({at.meeting, begin, task});
  if (at.collective && at.sequence >= 0) {
    collectives_[{at.group, at.sequence}] = collectives_[{-1, at.sequence}] = task;
  }
  if (at.record >= 0) of_records_[at.record] = task;
  if (lane == busiest_lane_ || busiest_lane_ < 0) busiest_task_ = task;
  if (record) last_pass_.push_back({task, begin, instruction});
  return task;
}

void ProgramTasks::add_sync(const Instruction& at, std::int32_t instruction, bool record) {
  std::vector<TaskId> tails = awaited_;  // what the stream waits for
  if (at.sync == SyncKind::kDevice) {
    for (std::int32_t role = 0; role < kStreamLanes; ++role) {
      if (const auto tail = graph_.last_on_lane(first_lane_ + role); tail >= 0) {
        tails.push_back(tail);
      }
    }
  } else if (const auto tail = graph_.last_on_lane(stream_lane(at.stream)); tail >= 0) {
    tails.push_back(tail);
  }
  const auto task = add_host(at, at.host_us, Term::kT4, instruction, record);
  for (const auto tail : tails) graph_.add_edge(tail, task, at.latency_us);
}

}  // namespace perfmodel
