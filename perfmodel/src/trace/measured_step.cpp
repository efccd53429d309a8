#include <algorithm>
#include <array>
#include <map>
#include <string>

#include "core/call_waits.hpp"
#include "microseconds.hpp"
#include "overheads/loader_pause.hpp"
#include "overheads/template_learner.hpp"
#include "perfmodel/detail/overhead_table.hpp"
#include "perfmodel/graph/detail/event_names.hpp"
#include "perfmodel/graph/detail/trace_ops.hpp"
#include "perfmodel/graph/graph_from_trace.hpp"
#include "trace/compared_step.hpp"
#include "trace/device_tables.hpp"
#include "trace/trace_selection.hpp"

namespace perfmodel {
namespace {

// Time in the data loader is none of the host's terms.
constexpr std::string_view kLoader = "enumerate(DataLoader)";

struct TopLevelOp {
  std::int32_t event = -1;               // into Trace::host
  std::vector<std::int32_t> calls = {};  // launches and synchronises within, in their order
};

// Top-level ops of a trace in start order over all threads, as the graph has them that is made of
// it, and the calls outside of them.
struct HostSequence {
  std::vector<TopLevelOp> ops;
  std::vector<std::int32_t> loose_calls;
  std::vector<std::int32_t> op_of_event;  // per host event: into `ops`; -1: none
};

Result<HostSequence> host_sequence(const Trace& trace) {
  PERFMODEL_TRY(built, graph_from_trace(trace));
  const ExecutionGraph& graph = built->graph;
  HostSequence made;
  std::vector<std::int32_t> op_of_node(graph.nodes.size(), -1);
  for (const std::int32_t node : top_level_ops(graph)) {
    op_of_node[node] = static_cast<std::int32_t>(made.ops.size());
    made.ops.push_back({.event = built->event_of_node[node]});
  }
  made.op_of_event.assign(trace.host.size(), -1);
  for (std::size_t node = 0; node < graph.nodes.size(); ++node) {
    const std::int32_t parent = graph.nodes[node].parent;  // comes first
    if (op_of_node[node] < 0 && parent >= 0) {
      op_of_node[node] = op_of_node[parent];
    }
    const std::int32_t event = built->event_of_node[node];
    if (event >= 0) made.op_of_event[event] = op_of_node[node];
  }
  const TraceOps nesting = find_trace_ops(trace);
  for (std::size_t i = 0; i < trace.host.size(); ++i) {
    if (trace.host[i].kind != HostKind::kCall) continue;
    const std::int32_t around = nesting.parent[i];
    const std::int32_t op = around < 0 ? -1 : made.op_of_event[around];
    made.op_of_event[i] = op;
    if (!trace.host[i].launches && sync_kind(trace.name(trace.host[i])) == SyncKind::kNone) {
      continue;
    }
    (op < 0 ? made.loose_calls : made.ops[op].calls).push_back(static_cast<std::int32_t>(i));
  }
  std::ranges::sort(made.loose_calls, {},
                    [&](std::int32_t call) { return trace.host[call].start_ns; });
  return made;
}

class StepMeasurement {
 public:
  StepMeasurement(const Trace& trace, const TraceSelection& chosen, const FamiliesOfKernels& known,
                  HostSequence sequence)
      : trace_(trace),
        chosen_(chosen),
        known_(known),
        sequence_(std::move(sequence)),
        waits_(find_call_waits(trace)) {
    for (const HostEvent& event : trace.host) {
      if (trace.name(event).starts_with(kLoader))
        loading_.emplace_back(event.start_ns, event.end_ns());
    }
    loading_ = merged(std::move(loading_));
  }

  ComparedStep run() {
    find_windows();
    for (const auto& [begin, end] : windows_) add_host(begin, end);
    add_device();
    const double steps = static_cast<double>(windows_.size());
    made_.source = trace_.source;
    made_.gpu = trace_.gpu_name();
    for (const auto& step : made_.steps) made_.step_us += step.us / steps;
    for (auto& [name, op] : ops_) {
      for (double* sum : {&op.count, &op.host_us, &op.device_us}) *sum /= steps;
      scale(op.kernels, 1 / steps);
      made_.ops.push_back(std::move(op));
    }
    scale(made_.families, 1 / steps);
    set_terms(steps);
    return std::move(made_);
  }

 private:
  const HostEvent& host(std::int32_t event) const { return trace_.host[event]; }
  std::int64_t wait_of(std::int32_t call) const { return waits_[call].wait_ns; }
  static void scale(std::vector<ComparedStep::Kernel>& kernels, double factor) {
    for (ComparedStep::Kernel& kernel : kernels) {
      kernel.count *= factor;
      kernel.us *= factor;
    }
  }

  // Steps that count; a trace without any is one step, from its first op to its last.
  void find_windows() {
    for (std::size_t i = chosen_.first; i < chosen_.last; ++i) {
      const TraceIteration& step = chosen_.steps[i];
      windows_.emplace_back(step.begin_ns, step.end_ns);
      made_.steps.push_back({step.name, us(step.end_ns - step.begin_ns)});
    }
    if (!windows_.empty()) return;
    std::int64_t begin = host(sequence_.ops.front().event).start_ns, end = begin;
    for (const TopLevelOp& op : sequence_.ops) end = std::max(end, host(op.event).end_ns());
    windows_.emplace_back(begin, end + 1);
    made_.steps.push_back({"", us(end + 1 - begin)});
  }

  // The host is one chain: each moment belongs to the first op that ends after it. Time after the
  // last op belongs to the first op, with which the next step begins.
  void add_host(std::int64_t begin, std::int64_t end) {
    std::int64_t covered_to = begin;
    ComparedStep::Op* first = nullptr;
    for (const TopLevelOp& op : sequence_.ops) {
      const HostEvent& event = host(op.event);
      if (event.start_ns < begin || event.start_ns >= end) continue;
      ComparedStep::Op& row = row_of(trace_.name(event));
      if (!first) first = &row;
      row.count += 1;
      const std::int64_t gap = without_waits(covered_to, event.start_ns);
      const std::int64_t until = std::min(event.end_ns(), end);
      const std::int64_t own =
          std::max<std::int64_t>(0, until - std::max(covered_to, event.start_ns));
      row.host_us += us(gap + own - add_terms(op));
      covered_to = std::max(covered_to, until);
    }
    (first ? *first : row_of(kOutsideOps)).host_us += us(without_waits(covered_to, end));
  }

  // T2 to TX of an op; returns its waits.
  std::int64_t add_terms(const TopLevelOp& op) {
    const HostEvent& event = host(op.event);
    if (op.calls.empty()) {
      of(Term::kTx) += event.duration_ns;
      return 0;
    }
    std::int64_t wait = 0, from = event.start_ns;
    for (std::size_t i = 0; i < op.calls.size(); ++i) {
      const HostEvent& call = host(op.calls[i]);
      const std::int64_t waited = wait_of(op.calls[i]);
      of(i == 0 ? Term::kT2 : Term::kT5) += std::max<std::int64_t>(0, call.start_ns - from);
      of(Term::kT4) += call.duration_ns - waited;
      wait += waited;
      from = std::max(from, call.end_ns());
    }
    of(Term::kT3) += std::max<std::int64_t>(0, event.end_ns() - from);
    wait_ns_ += wait;
    return wait;
  }

  // Length of a gap between ops without synchronising calls and the data loader in it.
  std::int64_t without_waits(std::int64_t from, std::int64_t to) {
    if (to <= from) return 0;
    std::int64_t loading = total_length(common(Intervals{{from, to}}, loading_));
    if (us(loading) < kLoaderPauseUs) loading = 0;
    std::int64_t wait = 0;
    auto call = std::ranges::lower_bound(sequence_.loose_calls, from, {},
                                         [&](std::int32_t at) { return host(at).start_ns; });
    for (; call != sequence_.loose_calls.end() && host(*call).start_ns < to; ++call) {
      if (host(*call).end_ns() <= to) wait += wait_of(*call);
    }
    wait = std::min(wait, to - from - loading);
    loading_ns_ += loading;
    wait_ns_ += wait;
    return to - from - loading - wait;
  }

  void add_device() {
    std::vector<DeviceIntervals> work(std::max<std::size_t>(1, chosen_.steps.size()));
    for (std::size_t i = 0; i < trace_.gpu.size(); ++i) {
      const GpuEvent& event = trace_.gpu[i];
      const std::int32_t step = chosen_.steps.empty() ? 0 : chosen_.step_of_gpu[i];
      if (event.launch < 0 || (!chosen_.steps.empty() && !chosen_.has_step(step))) continue;
      work[step].add(event, chosen_.is_collective[i]);
      const std::int32_t op = sequence_.op_of_event[event.launch];
      ComparedStep::Op& row =
          row_of(op < 0 ? kOutsideOps : trace_.name(host(sequence_.ops[op].event)));
      const std::string family = family_of(i);
      row.device_us += us(event.duration_ns);
      for (std::vector<ComparedStep::Kernel>* table : {&row.kernels, &made_.families}) {
        auto at = std::ranges::find(*table, family, &ComparedStep::Kernel::name);
        if (at == table->end()) at = table->insert(at, {.name = family});
        at->count += 1;
        at->us += us(event.duration_ns);
      }
    }
    const double steps = static_cast<double>(windows_.size());
    for (const DeviceIntervals& of_step : work) {
      const TraceAnalysis::Breakdown sum = device_breakdown(of_step);
      made_.compute_us += sum.compute_us / steps;
      made_.exposed_comm_us += sum.exposed_comm_us / steps;
      made_.exposed_memcpy_us += sum.exposed_memcpy_us / steps;
    }
  }

  std::string family_of(std::size_t event) const {
    const GpuEvent& at = trace_.gpu[event];
    if (at.kind == GpuKind::kCopy) return std::string(to_string(KernelFamily::kCopy));
    if (at.kind == GpuKind::kSet) return std::string(to_string(KernelFamily::kSet));
    if (chosen_.is_collective[event]) return std::string(to_string(KernelFamily::kCollective));
    const std::string_view name = trace_.name(at);
    const auto known = known_.find(name.substr(0, kKeptKernelName));
    if (known != known_.end()) {
      return std::string(to_string(known->second));
    }
    const auto family = kernel_family_of_name(name);
    return family ? std::string(to_string(*family)) : "other";
  }

  ComparedStep::Op& row_of(std::string_view name) {
    ComparedStep::Op& row = ops_[name];
    row.name = name;
    return row;
  }

  std::int64_t& of(Term term) { return terms_ns_[static_cast<std::size_t>(term)]; }

  // T1 is the rest of the step after the others, so that the terms add up to it.
  void set_terms(double steps) {
    const auto mean = [steps](std::int64_t ns) { return us(ns) / steps; };
    double rest = made_.step_us - mean(wait_ns_) - mean(loading_ns_);
    for (const HostTerm& host : kHostTerms) rest -= mean(of(host.term));
    for (const HostTerm& host : kHostTerms) {
      made_.host_terms.emplace_back(host.key, host.is_gap ? rest : mean(of(host.term)));
    }
    made_.host_terms.emplace_back("wait", mean(wait_ns_));
    if (loading_ns_ > 0) made_.host_terms.emplace_back("data_loading", mean(loading_ns_));
  }

  const Trace& trace_;
  const TraceSelection& chosen_;
  const FamiliesOfKernels& known_;
  HostSequence sequence_;
  std::vector<CallWait> waits_;
  Intervals loading_;
  std::vector<std::pair<std::int64_t, std::int64_t>> windows_;
  std::map<std::string_view, ComparedStep::Op> ops_;
  // Sums over all steps: of the terms of the host, except T1, and of the time in none of them.
  std::array<std::int64_t, std::size(kHostTerms)> terms_ns_{};
  std::int64_t wait_ns_ = 0, loading_ns_ = 0;
  ComparedStep made_;
};

}  // namespace

Result<ComparedStep> measured_step(
    const Trace& trace, const std::optional<std::pair<std::size_t, std::size_t>>& iterations,
    const FamiliesOfKernels& known) {
  const TraceSelection chosen = select_events(trace, iterations);
  PERFMODEL_TRY_TO(check_window(trace, chosen, iterations));
  PERFMODEL_TRY(sequence, host_sequence(trace));
  return StepMeasurement(trace, chosen, known, std::move(*sequence)).run();
}

}  // namespace perfmodel
