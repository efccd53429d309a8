#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "perfmodel/graph/detail/event_names.hpp"
#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/graph/trace.hpp"
#include "perfmodel/overheads.hpp"

namespace perfmodel::test_support {

/// A recorded run made in code: a graph and the trace of the same program, with known gaps. The
/// host is one clock over all threads; times in microseconds.
///
///   TinyRun run;
///   run.op("aten::mm", [&] { run.spend(2); run.launch(4, 10); run.spend(3); });
///
/// gives T2 = 2, T4 = 4, T3 = 3 and a kernel of 10 us.
class TinyRun {
 public:
  static constexpr double kLatency = 1.5, kKernelGap = 1;  // device side of every call

  TinyRun() {
    trace_.source = "tiny.json";
    trace_.devices.push_back({.id = 0, .name = "Tiny GPU"});
    graph_.source = "tiny_et.json";
    graph_.nodes.push_back({.id = 1, .parent_id = 1, .name = graph_.names.intern("root")});
  }

  using Body = std::function<void()>;

  void spend(double us) { now_ += us; }

  void op(const std::string& name, const Body& body) { region(name, HostKind::kOp, body); }
  void label(const std::string& name, const Body& body) {
    region(name, HostKind::kAnnotation, body);
  }
  void on_thread(std::int32_t thread, const Body& body) {
    const std::int32_t before = std::exchange(thread_, thread);
    body();
    thread_ = before;
  }

  /// A kernel launch. The kernel starts `kLatency` after the call's end or `kKernelGap` after the
  /// stream's last work.
  void launch(double call_us, double kernel_us, std::int64_t stream = 7,
              const std::string& kernel = "kernel") {
    call("cudaLaunchKernel", call_us);
    device(GpuKind::kKernel, kernel, kernel_us, stream, now_ + kLatency);
  }
  void set(double call_us, double us, std::int64_t stream = 7) {
    call("cudaMemsetAsync", call_us);
    device(GpuKind::kSet, "Memset (Device)", us, stream, now_ + kLatency);
  }
  void pinned_copy(double call_us, double us, std::int64_t stream = 7) {
    call("cudaMemcpyAsync", call_us);
    device(GpuKind::kCopy, "Memcpy DtoH (Device -> Pinned)", us, stream, now_ + kLatency);
  }
  /// A copy to pageable memory: the call starts it `latency_us` after its own start (or when the
  /// stream is free) and ends `own_us` after it.
  void blocking_copy(double latency_us, double us, double own_us, std::int64_t stream = 7) {
    const std::size_t event = open("cudaMemcpyAsync", HostKind::kCall);
    trace_.host[event].correlation = ++correlation_;
    device(GpuKind::kCopy, "Memcpy DtoH (Device -> Pageable)", us, stream, now_ + latency_us);
    now_ = stream_end_[stream] + own_us;
    close(event);
  }
  /// Waits for the stream; `own_us` of the call follow the awaited end.
  void sync(double own_us, std::int64_t stream = 7) {
    const std::size_t event = open("cudaStreamSynchronize", HostKind::kCall);
    now_ = std::max(now_, stream_end_[stream]) + own_us;
    close(event);
  }

  ExecutionGraph& graph() {
    ExecutionGraph& made = graph_;
    index_graph(made);
    return made;
  }
  /// Events sorted as `read_trace` does, launches linked.
  Trace& trace() {
    trace_.threads.resize(3);
    std::stable_sort(trace_.host.begin(), trace_.host.end(),
                     [](const HostEvent& a, const HostEvent& b) {
                       if (a.thread != b.thread) return a.thread < b.thread;
                       if (a.start_ns != b.start_ns) return a.start_ns < b.start_ns;
                       return a.duration_ns > b.duration_ns;
                     });
    std::stable_sort(trace_.gpu.begin(), trace_.gpu.end(),
                     [](const GpuEvent& a, const GpuEvent& b) {
                       return std::pair(a.stream, a.start_ns) < std::pair(b.stream, b.start_ns);
                     });
    for (GpuEvent& work : trace_.gpu) {
      for (std::size_t i = 0; i < trace_.host.size(); ++i) {
        if (trace_.host[i].correlation == work.correlation)
          work.launch = static_cast<std::int32_t>(i);
      }
    }
    for (HostEvent& event : trace_.host) {
      event.launches = event.kind == HostKind::kCall && is_launch_call(trace_.name(event));
    }
    return trace_;
  }
  double now() const { return now_; }

 private:
  static std::int64_t ns(double us) { return std::llround(us * 1000); }

  void region(const std::string& name, HostKind kind, const Body& body) {
    const std::size_t event = open(name, kind);
    const std::int64_t id = ++node_id_;
    trace_.host[event].record_function_id = id;
    graph_.nodes.push_back({.id = id,
                            .parent_id = parents_[thread_] == 0 ? 1 : parents_[thread_],
                            .name = graph_.names.intern(name),
                            .rf_id = id,
                            .thread = thread_ + 1,
                            .scope = kind == HostKind::kOp ? Scope::kFunction : Scope::kUser});
    const std::int64_t above = std::exchange(parents_[thread_], id);
    body();
    parents_[thread_] = above;
    close(event);
  }
  void call(const std::string& name, double us) {
    const std::size_t event = open(name, HostKind::kCall);
    trace_.host[event].correlation = ++correlation_;
    now_ += us;
    close(event);
  }
  std::size_t open(const std::string& name, HostKind kind) {
    trace_.host.push_back(
        {.start_ns = ns(now_), .name = trace_.names.intern(name), .thread = thread_, .kind = kind});
    return trace_.host.size() - 1;
  }
  void close(std::size_t event) {
    trace_.host[event].duration_ns = ns(now_) - trace_.host[event].start_ns;
  }
  void device(GpuKind kind, const std::string& name, double us, std::int64_t stream,
              double earliest) {
    double start = earliest;
    if (stream_end_.contains(stream)) start = std::max(start, stream_end_[stream] + kKernelGap);
    trace_.gpu.push_back({.start_ns = ns(start),
                          .duration_ns = ns(us),
                          .name = trace_.names.intern(name),
                          .kind = kind,
                          .stream = stream,
                          .correlation = correlation_,
                          .bytes = 4});
    stream_end_[stream] = start + us;
  }

  ExecutionGraph graph_;
  Trace trace_;
  double now_ = 100;
  std::int32_t thread_ = 0;
  std::int64_t node_id_ = 1, correlation_ = 0;
  std::map<std::int32_t, std::int64_t> parents_;
  std::map<std::int64_t, double> stream_end_;
};

/// The calls that a table knows for an op, whatever its arguments.
inline void teach(OverheadTable& table, std::string_view op, LaunchTemplate calls) {
  LaunchTemplates& templates = table.templates;
  templates.by_key[static_cast<std::size_t>(TemplateLevel::kName)][hash_text(op)] = {
      .list = static_cast<std::uint32_t>(templates.lists.size()), .count = 1};
  templates.lists.push_back(std::move(calls));
}

inline OverheadStats exactly(double us, std::uint64_t count = 1) {
  return {.mean_us = us, .median_us = us, .count = count};
}

}  // namespace perfmodel::test_support
