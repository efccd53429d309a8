#include "analyze/trace_step.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>
#include <unordered_map>

#include "core/call_waits.hpp"
#include "perfmodel/detail/measured_memory.hpp"
#include "perfmodel/graph/detail/event_names.hpp"
#include "perfmodel/graph/detail/trace_ops.hpp"
#include "perfmodel/overheads.hpp"
#include "predict/paced_path.hpp"
#include "trace/op_work.hpp"

namespace perfmodel::findings {
namespace {

constexpr double kLeastGapUs = 50;  // a shorter one is Python between two ops

// "Memcpy HtoD (Pageable -> Device)".
void note_copy(std::string_view name, KernelFact& kernel) {
  if (name.find("HtoD") != std::string_view::npos) kernel.copy = CopyKind::kHostToDevice;
  if (name.find("DtoH") != std::string_view::npos) kernel.copy = CopyKind::kDeviceToHost;
  if (name.find("DtoD") != std::string_view::npos) kernel.copy = CopyKind::kDeviceToDevice;
  if (name.find("PtoP") != std::string_view::npos) kernel.copy = CopyKind::kPeer;
  kernel.pageable = name.find("Pageable") != std::string_view::npos;
}

bool is_allocator_call(std::string_view name) {
  for (const std::string_view known :
       {"cudaMalloc", "cudaFree", "hipMalloc", "hipFree", "cuMemCreate", "cuMemRelease"}) {
    if (name == known) return true;
  }
  return false;
}

}  // namespace

Result<std::unique_ptr<TraceStep>> TraceStep::create(
    const Trace& trace, const Gpu* gpu,
    const std::optional<std::pair<std::size_t, std::size_t>>& window) {
  std::unique_ptr<TraceStep> made(new TraceStep(trace));
  PERFMODEL_TRY_TO(made->find_window(window));
  PERFMODEL_TRY_TO(made->make_tasks());
  made->find_ops();
  made->find_calls();
  made->find_kernels(gpu);
  made->find_gaps();
  made->find_memory(gpu);
  return made;
}

Result<void> TraceStep::find_window(
    const std::optional<std::pair<std::size_t, std::size_t>>& window) {
  facts_.is_recorded = true;
  std::vector<TraceIteration> steps = iterations(trace_);
  if (window) {
    const auto [first, last] = *window;
    if (first >= last || last > std::max<std::size_t>(steps.size(), 1)) {
      return decline(fmt::format("expected iterations within 0:{}, found {}:{}",
                                 std::max<std::size_t>(steps.size(), 1), first, last),
                     trace_.source);
    }
    if (!steps.empty()) {
      steps = {steps.begin() + static_cast<std::ptrdiff_t>(first),
               steps.begin() + static_cast<std::ptrdiff_t>(last)};
    }
  }
  if (trace_.host.empty()) {
    return decline("expected ops, annotations or launches, found none", trace_.source);
  }
  if (steps.empty()) {
    begin_ns_ = std::numeric_limits<std::int64_t>::max();
    for (const HostEvent& event : trace_.host) {
      begin_ns_ = std::min(begin_ns_, event.start_ns);
      end_ns_ = std::max(end_ns_, event.end_ns() + 1);
    }
    facts_.step_begins_us = {0};
    facts_.has_marks = false;
    return {};
  }
  begin_ns_ = steps.front().begin_ns;
  end_ns_ = steps.back().end_ns;
  facts_.steps = steps.size();
  for (const TraceIteration& step : steps) {
    facts_.step_begins_us.push_back(since_begin(step.begin_ns));
  }
  return {};
}

// Begin and end of the window as host tasks: the marks' own, else the first and last event's.
Result<void> TraceStep::make_tasks() {
  static const std::vector<bool> alone;
  tasks_ = add_replay_tasks(trace_, {}, 0, 0, alone, graph_);
  std::int64_t first = std::numeric_limits<std::int64_t>::max(), last = -1;
  for (std::size_t i = 0; i < trace_.host.size(); ++i) {
    const HostEvent& event = trace_.host[i];
    const auto mark = [&](TaskId task, std::int64_t at) {
      if (task < 0 || !(in_window(at) || at == end_ns_)) return;
      if (at < first) std::tie(first, begin_) = std::pair(at, task);
      if (at > last) std::tie(last, end_) = std::pair(at, task);
    };
    mark(tasks_.begins[i], event.start_ns);
    mark(tasks_.ends[i], event.end_ns());
  }
  if (begin_ < 0 || end_ < 0) {
    return decline("expected ops in the steps of the trace, found none", trace_.source);
  }
  const auto edges = graph_.edge_list();
  for (std::size_t e = 0; e < edges.size(); ++e) {
    const auto lane = [&](TaskId task) { return graph_.lane(task); };
    if (lane(edges[e].to) < 0 || lane(edges[e].to) >= tasks_.device_lane) continue;
    if (lane(edges[e].from) < tasks_.device_lane) continue;
    waiting_edges_.emplace_back(edges[e].to, static_cast<std::int32_t>(e));
  }
  std::ranges::sort(waiting_edges_);
  return TaskOrder::find(graph_).map([&](TaskOrder order) { order_ = std::move(order); });
}

// Ops, labels and calls of Python, nested by time.
void TraceStep::find_ops() {
  struct Span {
    const HostEvent* event;
    std::int32_t host;  // -1: a call of Python
    bool is_frame = false;
  };
  std::vector<Span> spans;
  for (std::size_t i = 0; i < trace_.host.size(); ++i) {
    const HostEvent& event = trace_.host[i];
    if (event.kind == HostKind::kCall || !in_window(event.start_ns)) continue;
    spans.push_back({&event, static_cast<std::int32_t>(i)});
  }
  for (const HostEvent& module : trace_.modules) {
    if (in_window(module.start_ns)) spans.push_back({&module, -1});
  }
  std::set<std::int32_t> threads;
  for (const Span& span : spans) threads.insert(span.event->thread);
  // Calls around the whole window (main, the training loop) began before it.
  for (const HostEvent& frame : trace_.frames) {
    if (frame.start_ns >= end_ns_ || frame.end_ns() <= begin_ns_) continue;
    if (threads.contains(frame.thread)) spans.push_back({&frame, -1, true});
  }
  std::ranges::stable_sort(spans, [](const Span& a, const Span& b) {
    // A call of Python that is as long as an op in it comes after the op.
    return std::tuple(a.event->thread, a.event->start_ns, -a.event->duration_ns, a.host >= 0) <
           std::tuple(b.event->thread, b.event->start_ns, -b.event->duration_ns, b.host >= 0);
  });
  op_of_event_.assign(trace_.host.size(), -1);
  std::vector<std::int32_t> open;
  for (const Span& span : spans) {
    const HostEvent& event = *span.event;
    const double start = since_begin(std::max(event.start_ns, begin_ns_));
    const double end = since_begin(span.is_frame ? std::min(event.end_ns(), end_ns_)  //
                                                 : event.end_ns());
    const bool is_label = event.kind == HostKind::kAnnotation || span.host < 0;
    while (!open.empty()) {
      const OpFact& around = facts_.ops[open.back()];
      // A label that begins in one call of Python and ends in another belongs to neither.
      const bool outlasts = is_label && !span.is_frame && around.is_frame && end > around.end_us;
      if (around.thread == event.thread && start < around.end_us && !outlasts) break;
      open.pop_back();
    }
    const auto own = static_cast<std::int32_t>(facts_.ops.size());
    OpFact op{.name = trace_.name(event),
              .parent = open.empty() ? -1 : open.back(),
              .thread = event.thread,
              .start_us = start,
              .end_us = end,
              .host_us = end - start,
              .is_label = is_label,
              .is_frame = span.is_frame};
    if (event.arguments >= 0) {
      const OpArguments& arguments = trace_.arguments[event.arguments];
      op.shapes = trace_.names.text(arguments.dims);
      op.strides = trace_.names.text(arguments.strides);
    }
    if (op.parent >= 0) {
      OpFact& around = facts_.ops[op.parent];
      around.host_us -= std::min(end, around.end_us) - start;
    }
    if (op.is_label && !op.is_frame && is_data_loading(op.name)) {
      facts_.loading_us += op.host_us;
      op.wait_us = std::exchange(op.host_us, 0);
    }
    if (span.host >= 0) op_of_event_[span.host] = own;
    facts_.ops.push_back(op);
    open.push_back(own);
  }
  tasks_of_op_.resize(facts_.ops.size());
  for (TaskId task = 0; task < static_cast<TaskId>(graph_.size()); ++task) {
    const std::int32_t event = graph_.op(task), lane = graph_.lane(task);
    if (event < 0 || lane < 0 || lane >= tasks_.device_lane) continue;
    const std::int32_t op = op_of_event_[event];
    if (op >= 0) tasks_of_op_[op].push_back(task);
  }
}

void TraceStep::find_calls() {
  const std::vector<CallWait> waits = find_call_waits(trace_);
  const TraceOps nesting = find_trace_ops(trace_);
  for (std::size_t i = 0; i < trace_.host.size(); ++i) {
    const HostEvent& event = trace_.host[i];
    if (event.kind != HostKind::kCall || !in_window(event.start_ns)) continue;
    const std::int32_t around = nesting.parent[i];
    const std::int32_t op = around < 0 ? -1 : op_of_event_[around];
    op_of_event_[i] = op;
    const std::string_view name = trace_.name(event);
    const double waited = static_cast<double>(waits[i].wait_ns) / 1e3;
    if (is_allocator_call(name)) {
      facts_.allocator_calls.push_back({.call = name,
                                        .op = op,
                                        .start_us = since_begin(event.start_ns),
                                        .us = static_cast<double>(event.duration_ns) / 1e3});
      event_of_allocation_.push_back(i);
      continue;
    }
    if (waits[i].kind == CallWait::Kind::kNone || waited <= 0) continue;
    facts_.waits.push_back(
        {.call = name, .op = op, .start_us = since_begin(event.start_ns), .wait_us = waited});
    event_of_wait_.push_back(i);
    if (op < 0) continue;
    OpFact& owner = facts_.ops[op];
    owner.host_us = std::max(0.0, owner.host_us - waited);
    owner.wait_us += waited;
  }
}

void TraceStep::find_kernels(const Gpu* gpu) {
  const OpWorks works = op_works(trace_, gpu);
  std::vector<TraceIteration> window{{.name = "", .begin_ns = begin_ns_, .end_ns = end_ns_}};
  const bool all = iterations(trace_).empty();
  const auto step = gpu_iterations(trace_, window);
  std::unordered_map<std::int32_t, std::size_t> largest;  // per op, its longest kernel
  std::int64_t last_end = end_ns_;
  for (std::size_t i = 0; i < trace_.gpu.size(); ++i) {
    const GpuEvent& event = trace_.gpu[i];
    if (!all && step[i] < 0) continue;
    last_end = std::max(last_end, event.end_ns());
    const std::string_view name = trace_.name(event);
    KernelFact kernel{.name = name,
                      .family = kernel_family_of_name(name).value_or(KernelFamily::kSmall),
                      .stream = static_cast<std::int32_t>(event.stream),
                      .start_us = since_begin(event.start_ns),
                      .time_us = static_cast<double>(event.duration_ns) / 1e3,
                      .copied_bytes = static_cast<double>(event.bytes),
                      .blocks_per_sm = event.blocks_per_sm};
    kernel.low_us = kernel.high_us = kernel.time_us;
    if (event.kind == GpuKind::kCopy) {
      kernel.kind = DeviceKind::kCopy;
      kernel.family = KernelFamily::kCopy;
      note_copy(name, kernel);
    } else if (event.kind == GpuKind::kSet) {
      kernel.kind = DeviceKind::kSet;
      kernel.family = KernelFamily::kSet;
    } else if (is_collective_kernel(name)) {
      kernel.kind = DeviceKind::kCollective;
      kernel.family = KernelFamily::kCollective;
      if (event.collective >= 0) {
        const CollectiveNote& note = trace_.collectives[event.collective];
        const auto elements = std::max(note.in_elements, note.out_elements);
        kernel.copied_bytes = static_cast<double>(std::max<std::int64_t>(0, elements)) *
                              size_in_bytes(parse_dtype(trace_.names.text(note.dtype)));
      }
    }
    if (event.launch >= 0) {
      const auto call = event.launch;
      kernel.op = op_of_event_[call];
      kernel.launch_us = static_cast<double>(trace_.host[call].duration_ns) / 1e3;
    }
    const std::size_t own = facts_.kernels.size();
    if (kernel.op >= 0 && kernel.kind == DeviceKind::kKernel) {
      const auto [place, first] = largest.try_emplace(kernel.op, own);
      if (!first && facts_.kernels[place->second].time_us < kernel.time_us) place->second = own;
    }
    facts_.kernels.push_back(std::move(kernel));
    event_of_kernel_.push_back(i);
  }
  // An op takes the work of its longest kernel.
  for (std::size_t i = 0; i < trace_.host.size(); ++i) {
    const OpWork* work = works.of(i);
    const std::int32_t op = op_of_event_[i];
    if (!work || op < 0 || trace_.host[i].kind != HostKind::kOp) continue;
    const auto found = largest.find(op);
    if (found == largest.end()) continue;
    KernelFact& kernel = facts_.kernels[found->second];
    kernel.work = work->largest;
    kernel.roofline_us = work->roofline_us;
    if (!kernel_family_of_name(kernel.name)) kernel.family = work->family;
  }
  facts_.span_us = since_begin(last_end);
  measured_us_ = facts_.span_us / static_cast<double>(facts_.steps);
}

// Times of the schedule: a gap's place within the step identifies it.
void TraceStep::find_gaps() {
  const auto schedule = run_schedule(graph_, &*order_);
  if (!schedule) return;  // step_us tells the error
  const auto end = [&](TaskId task) { return schedule->end_us[task]; };
  const double from = end(begin_), until = end(end_);
  for (TaskId task = 0; task < static_cast<TaskId>(graph_.size()); ++task) {
    const std::int32_t lane = graph_.lane(task);
    if (lane < 0 || lane >= tasks_.device_lane) continue;
    if (static_cast<Term>(graph_.term(task)) != Term::kT1) continue;
    const double start = schedule->start_us[task];
    if (graph_.duration_us(task) < kLeastGapUs || start < from || start >= until) continue;
    facts_.gaps.push_back({.start_us = start - from, .us = graph_.duration_us(task)});
    task_of_gap_.push_back(task);
  }
}

void TraceStep::find_memory(const Gpu* gpu) {
  if (gpu) facts_.device_memory_bytes = gpu->usable_memory().value;
  for (const MeasuredMemory& memory : measured_memory(trace_)) {
    if (memory.on_host || !memory.totals_recorded) continue;
    const auto peak =
        static_cast<double>(std::max(memory.reserved_bytes.value_or(0), memory.peak_bytes));
    facts_.peak_memory_bytes = std::max(facts_.peak_memory_bytes.value_or(0), peak);
  }
  for (const MemoryRecord& record : trace_.memory) {
    if (record.bytes <= 0 || record.device_type == 0 || !in_window(record.time_ns)) continue;
    const std::int32_t op = innermost_op(record.thread, since_begin(record.time_ns));
    if (op < 0) continue;
    facts_.ops[op].taken_bytes += static_cast<double>(record.bytes);
  }
}

// Ops are sorted by thread and start.
std::int32_t TraceStep::innermost_op(std::int32_t thread, double at_us) const {
  const auto after =
      std::ranges::upper_bound(facts_.ops, std::pair(thread, at_us), std::ranges::less{},
                               [](const OpFact& op) { return std::pair(op.thread, op.start_us); });
  auto op = static_cast<std::int32_t>(after - facts_.ops.begin()) - 1;
  while (op >= 0) {
    const OpFact& found = facts_.ops[op];
    if (found.thread != thread) return -1;
    if (at_us < found.end_us) return op;
    op = found.parent;
  }
  return -1;
}

Result<double> TraceStep::step_us(const Repair& repair) const {
  TaskGraph graph = graph_;
  const auto scale = [&](TaskId task, double factor) {
    if (task >= 0) graph.set_duration_us(task, factor * graph.duration_us(task));
  };
  const auto drop_waits = [&](TaskId task) {
    auto at = std::ranges::lower_bound(waiting_edges_, std::pair(task, std::int32_t{-1}));
    for (; at != waiting_edges_.end() && at->first == task; ++at) {
      graph.set_lag_us(at->second, -std::numeric_limits<double>::infinity());
    }
  };
  for (const auto& [op, factor] : repair.host_scale) {
    for (const TaskId task : tasks_of_op_[op]) scale(task, factor);
  }
  for (const auto& [kernel, us] : repair.kernel_us) {
    graph.set_duration_us(tasks_.device[event_of_kernel_[kernel]], us);
  }
  // A call that launches several goes when all of them do.
  std::unordered_map<std::int32_t, std::size_t> gone, all;
  if (!repair.launches.empty()) {
    for (const std::size_t event : event_of_kernel_) ++all[trace_.gpu[event].launch];
    for (const std::size_t kernel : repair.launches) {
      ++gone[trace_.gpu[event_of_kernel_[kernel]].launch];
    }
  }
  for (const auto& [call, count] : gone) {
    if (call < 0 || count < all[call]) continue;
    const TaskId task = tasks_.ends[call];
    if (task < 0) continue;
    scale(task, 0);
    drop_waits(task);
  }
  for (const std::size_t wait : repair.waits) {
    const TaskId task = tasks_.ends[event_of_wait_[wait]];
    if (task >= 0) drop_waits(task);
  }
  for (const std::size_t call : repair.allocator_calls) {
    const TaskId task = tasks_.ends[event_of_allocation_[call]];
    if (task < 0) continue;
    scale(task, 0);
    drop_waits(task);
  }
  for (const std::size_t gap : repair.gaps) scale(task_of_gap_[gap], 0);
  if (repair.no_loading) {
    for (const TaskId task : tasks_.data_loading) scale(task, 0);
  }
  PERFMODEL_TRY(schedule, run_schedule(graph, &*order_));
  const auto end = [&](TaskId task) { return schedule->end_us[task]; };
  double last = end(end_);
  for (const std::size_t event : event_of_kernel_) last = std::max(last, end(tasks_.device[event]));
  return (last - end(begin_)) / static_cast<double>(facts_.steps);
}

Result<std::vector<PathPiece>> TraceStep::critical_path() const {
  PERFMODEL_TRY(schedule, run_schedule(graph_, &*order_));
  const auto end = [&](TaskId task) { return schedule->end_us[task]; };
  std::unordered_map<TaskId, std::int32_t> kernel_of;
  TaskId last = end_;
  for (std::size_t i = 0; i < event_of_kernel_.size(); ++i) {
    const TaskId task = tasks_.device[event_of_kernel_[i]];
    kernel_of[task] = static_cast<std::int32_t>(i);
    if (end(task) > end(last)) last = task;
  }
  std::vector<PathPiece> made;
  for (const auto& [task, us] : timed_path(*schedule, last, end(begin_))) {
    PathPiece& piece = made.emplace_back(PathPiece{.us = us});
    const std::int32_t event = graph_.op(task), lane = graph_.lane(task);
    if (const auto kernel = kernel_of.find(task); kernel != kernel_of.end()) {
      piece.kernel = kernel->second;
    } else if (event >= 0 && lane >= 0 && lane < tasks_.device_lane) {
      piece.op = op_of_event_[event];
    }
  }
  return made;
}

}  // namespace perfmodel::findings
