#include "perfmodel/detail/trace_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>

#include "perfmodel/graph/detail/event_names.hpp"
#include "perfmodel/graph/detail/trace_ops.hpp"
#include "record/device_starts.hpp"
#include "record/host_alone.hpp"

namespace perfmodel {
namespace {

using IntervalsNs = std::vector<std::pair<std::int64_t, std::int64_t>>;

double microseconds(std::int64_t ns) { return static_cast<double>(ns) / 1e3; }

class Reporter {
 public:
  explicit Reporter(const Trace& trace) : trace_(trace), steps_(iterations(trace)) {
    last_ = steps_.size();
  }

  std::size_t steps() const { return steps_.size(); }

  void restrict_to(std::size_t first, std::size_t last) {
    restricted_ = true;
    first_ = first;
    last_ = last;
  }

  TraceReport run() {
    report_.source = trace_.source;
    report_.gpu = trace_.gpu_name();
    report_.rank = trace_.rank;
    report_.world_size = trace_.world_size;
    report_.events = trace_.event_count;
    report_.warnings = trace_.warnings;
    count_host();
    count_device();
    measure_memory();
    warn();
    return std::move(report_);
  }

 private:
  bool inside(std::int32_t step) const {
    if (!restricted_) return true;
    return step >= static_cast<std::int32_t>(first_) && step < static_cast<std::int32_t>(last_);
  }

  void count_host() {
    std::vector<bool> seen(trace_.threads.size(), false);
    for (const HostEvent& event : trace_.host) {
      if (restricted_ && !inside(iteration_at(steps_, event.start_ns))) continue;
      if (event.thread >= 0) seen[event.thread] = true;
      switch (event.kind) {
        case HostKind::kOp: ++report_.host_ops; break;
        case HostKind::kAnnotation: ++report_.annotations; break;
        case HostKind::kCall: ++report_.calls; break;
      }
    }
    report_.threads = static_cast<std::size_t>(std::count(seen.begin(), seen.end(), true));
  }

  void count_device() {
    const std::vector<std::int32_t> step_of = gpu_iterations(trace_, steps_);
    std::vector<TraceReport::Iteration> counted(steps_.size());
    std::vector<IntervalsNs> busy(steps_.size());
    IntervalsNs all;
    std::map<std::pair<int, std::int64_t>, std::pair<std::size_t, IntervalsNs>> streams;
    for (std::size_t i = 0; i < trace_.gpu.size(); ++i) {
      const GpuEvent& event = trace_.gpu[i];
      const std::int32_t step = step_of[i];
      if (!inside(step)) continue;
      const std::pair<std::int64_t, std::int64_t> interval{event.start_ns, event.end_ns()};
      all.push_back(interval);
      auto& [tasks, on_stream] = streams[{event.device, event.stream}];
      ++tasks;
      on_stream.push_back(interval);
      report_.without_launch += event.launch < 0;
      count_work(event);
      if (step < 0) continue;
      auto& iteration = counted[step];
      busy[step].push_back(interval);
      iteration.kernels += event.kind == GpuKind::kKernel;
      iteration.copies += event.kind == GpuKind::kCopy;
      iteration.sets += event.kind == GpuKind::kSet;
    }
    for (std::size_t i = first_; i < last_; ++i) {
      counted[i].name = steps_[i].name;
      counted[i].wall_us = microseconds(steps_[i].end_ns - steps_[i].begin_ns);
      counted[i].gpu_busy_us = microseconds(union_length(busy[i]));
      report_.iterations.push_back(std::move(counted[i]));
    }
    report_.gpu_busy_us = microseconds(union_length(all));
    for (auto& [key, work] : streams) {
      report_.streams.push_back({.device = key.first,
                                 .stream = key.second,
                                 .tasks = work.first,
                                 .busy_us = microseconds(union_length(work.second))});
    }
    std::ranges::stable_sort(report_.top_kernels, std::ranges::greater{},
                             &TraceReport::Kernel::total_us);
  }

  void measure_memory() {
    if (!restricted_) {
      report_.memory = measured_memory(trace_);
      return;
    }
    std::vector<std::pair<std::int64_t, std::int64_t>> spans;
    for (std::size_t i = first_; i < last_; ++i) {
      spans.emplace_back(steps_[i].begin_ns, steps_[i].end_ns);
    }
    report_.memory = measured_memory(trace_, spans);
  }

  void count_work(const GpuEvent& event) {
    const double us = microseconds(event.duration_ns);
    if (event.kind == GpuKind::kCopy) {
      ++report_.memcpy_total;
      report_.memcpy_us += us;
      return;
    }
    if (event.kind == GpuKind::kSet) {
      ++report_.memset_total;
      report_.memset_us += us;
      return;
    }
    ++report_.kernels_total;
    const auto [at, added] = kernel_by_name_.try_emplace(event.name, report_.top_kernels.size());
    if (added) {
      report_.top_kernels.push_back({.name = std::string(trace_.name(event)),
                                     .min_us = us,
                                     .max_us = us,
                                     .collective = is_collective_kernel(trace_.name(event))});
    }
    TraceReport::Kernel& kernel = report_.top_kernels[at->second];
    ++kernel.count;
    kernel.total_us += us;
    kernel.min_us = std::min(kernel.min_us, us);
    kernel.max_us = std::max(kernel.max_us, us);
    (kernel.collective ? report_.comm_kernel_us : report_.compute_kernel_us) += us;
  }

  void warn() {
    if (trace_.gpu.empty()) {
      const std::string found = instead_of_device_work(trace_);
      report_.warnings.push_back(
          found == "none" ? "no device activity was recorded"
                          : "no device activity that is read was recorded, but " + found);
    }
    if (steps_.empty()) {
      report_.warnings.push_back("no iteration marks (ProfilerStep#N or Optimizer.step#)");
    }
    if (report_.without_launch > 0) {
      report_.warnings.push_back(fmt::format(
          "the calls of {} kernels, copies or sets are not in the trace", report_.without_launch));
    }
    if (auto warning = unrecorded_warning(trace_)) report_.warnings.push_back(std::move(*warning));
  }

  const Trace& trace_;
  std::vector<TraceIteration> steps_;
  std::size_t first_ = 0, last_ = 0;
  bool restricted_ = false;
  TraceReport report_;
  std::unordered_map<NameId, std::size_t> kernel_by_name_;
};

}  // namespace

Result<TraceReport> report(const Trace& trace,
                           const std::optional<std::pair<std::size_t, std::size_t>>& window) {
  Reporter reporter(trace);
  if (window) {
    const auto [first, last] = *window;
    if (first >= last || last > reporter.steps()) {
      return decline(fmt::format("expected iterations within 0:{}, found {}:{}", reporter.steps(),
                                 first, last),
                     trace.source);
    }
    reporter.restrict_to(first, last);
  }
  return reporter.run();
}

}  // namespace perfmodel
