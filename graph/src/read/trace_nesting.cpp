#include "trace_nesting.hpp"

#include <algorithm>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "base/sort_runs.hpp"
#include "perfmodel/graph/detail/event_names.hpp"
#include "perfmodel/graph/detail/trace_ops.hpp"

namespace perfmodel {
namespace {

constexpr std::string_view kEngineOp = "autograd::engine::evaluate_function";

class NestingFinder {
 public:
  explicit NestingFinder(const Trace& trace) : trace_(trace) {}

  TraceNesting run() {
    number_threads();
    order_events();
    nest();
    find_sides();
    return std::move(made_);
  }

 private:
  const HostEvent& host(std::int32_t event) const { return trace_.host[event]; }
  static bool is_node(const HostEvent& event) { return event.kind != HostKind::kCall; }

  // Numbers threads like PyTorch's observer: 1 is the program's thread, 2 autograd's.
  void number_threads() {
    std::vector<std::size_t> nodes(trace_.threads.size(), 0);
    std::vector<bool> autograd(trace_.threads.size(), false), marked(trace_.threads.size(), false);
    for (const HostEvent& event : trace_.host) {
      if (!is_node(event) || event.thread < 0) continue;
      const auto thread = event.thread;
      ++nodes[thread];
      const std::string_view name = trace_.name(event);
      autograd[thread] = autograd[thread] || name.starts_with("autograd::engine");
      marked[thread] = marked[thread] || is_profiler_step(name) || name.starts_with("Optimizer.");
    }
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      if (nodes[i] > 0) order.push_back(i);
    }
    const bool any_marked = std::ranges::find(marked, true) != marked.end();
    const auto rank = [&](std::size_t thread) {
      if (any_marked && marked[thread]) return 0;
      return autograd[thread] ? 1 : any_marked ? 2 : 0;
    };
    std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) {
      return rank(a) != rank(b) ? rank(a) < rank(b) : nodes[a] > nodes[b];
    });
    made_.thread_number.assign(nodes.size(), 0);
    for (std::size_t i = 0; i < order.size(); ++i) {
      made_.thread_number[order[i]] = static_cast<std::int32_t>(i) + 1;
    }
    made_.threads = order.size();
  }

  // Start order of each thread; whole microseconds make ties, which the event index breaks.
  void order_events() {
    for (std::size_t i = 0; i < trace_.host.size(); ++i) {
      if (is_node(trace_.host[i]) && trace_.host[i].thread >= 0) {
        made_.order.push_back(static_cast<std::int32_t>(i));
      }
    }
    for (auto begin = made_.order.begin(); begin != made_.order.end();) {
      const HostEvent& first = host(*begin);
      auto end = begin;
      bool indexed = true;
      for (; end != made_.order.end() && host(*end).thread == first.thread &&
             host(*end).start_ns == first.start_ns;
           ++end) {
        indexed = indexed && host(*end).event_index >= 0;
      }
      if (indexed) {
        std::sort(begin, end, [&](std::int32_t a, std::int32_t b) {
          return host(a).event_index < host(b).event_index;
        });
      }
      begin = end;
    }
  }

  void nest() {
    made_.parent.assign(trace_.host.size(), -1);
    std::unordered_set<std::uint64_t> seen;
    for (const bool learn : {true, false}) {
      std::vector<std::int32_t> open;
      std::int32_t thread = -1;
      for (const std::int32_t event : made_.order) {
        const HostEvent& at = host(event);
        if (at.thread != thread) open.clear();
        thread = at.thread;
        while (!open.empty() && !holds(host(open.back()), at, seen)) open.pop_back();
        if (!open.empty()) {
          made_.parent[event] = open.back();
          if (learn) seen.insert(pair_of(host(open.back()), at));
        }
        open.push_back(event);
      }
    }
    sort_runs(made_.order,
              [&](std::int32_t a, std::int32_t b) { return host(a).start_ns < host(b).start_ns; });
  }

  static std::uint64_t pair_of(const HostEvent& outer, const HostEvent& inner) {
    return (std::uint64_t{outer.name} << 32) | inner.name;
  }

  // If an op without length starts at the end of another, the stamps do not tell; the names do if
  // such ops are nested elsewhere.
  static bool holds(const HostEvent& outer, const HostEvent& inner,
                    const std::unordered_set<std::uint64_t>& seen) {
    // An event that begins in an op and ends after it is no part of it, unless by a rounded stamp.
    constexpr std::int64_t kSlackNs = 1'000;
    if (inner.start_ns < outer.end_ns()) return inner.end_ns() <= outer.end_ns() + kSlackNs;
    return inner.start_ns == outer.end_ns() && inner.duration_ns == 0 &&
           seen.contains(pair_of(outer, inner));
  }

  // Finds the device of an op's tensors, from the device work of the op and of inner ops.
  void find_sides() {
    made_.side.assign(trace_.host.size(), Side::kHost);
    made_.around = find_trace_ops(trace_).parent;
    for (const GpuEvent& event : trace_.gpu) {
      if (event.launch < 0) continue;
      Side side = Side::kGpu;
      if (event.kind == GpuKind::kCopy) {
        const std::string_view name = trace_.name(event);
        if (name.find("HtoD") != name.npos || name.find("HostToDevice") != name.npos) {
          side = Side::kUpload;
        } else if (name.find("DtoH") != name.npos || name.find("DeviceToHost") != name.npos) {
          side = Side::kDownload;
        }
      }
      for (std::int32_t op = made_.around[event.launch]; op >= 0; op = made_.parent[op]) {
        Side& known = made_.side[op];
        if (known == Side::kHost || side == Side::kGpu) known = side;
        // A copy only says something about surrounding ops that copy.
        if (side != Side::kGpu && !copies(trace_.name(host(op)))) break;
      }
    }
  }

  static bool copies(std::string_view name) {
    constexpr std::string_view kNames[] = {"aten::copy_", "aten::_to_copy", "aten::to",
                                           "aten::item", "aten::_local_scalar_dense"};
    return std::ranges::find(kNames, name) != std::end(kNames);
  }

  const Trace& trace_;
  TraceNesting made_;
};

}  // namespace

TraceNesting nest_events(const Trace& trace) { return NestingFinder(trace).run(); }

bool is_backward_of_engine(const Trace& trace, const TraceNesting& nesting, std::int32_t event) {
  const std::int32_t parent = nesting.parent[event];
  if (parent < 0) return false;
  const std::string_view outer = trace.name(trace.host[parent]);
  constexpr std::string_view kBefore = ": ";
  return outer.starts_with(kEngineOp) && outer.substr(kEngineOp.size()).starts_with(kBefore) &&
         outer.substr(kEngineOp.size() + kBefore.size()) == trace.name(trace.host[event]);
}

std::int64_t autograd_number(const Trace& trace, std::int32_t event) {
  const HostEvent& at = trace.host[event];
  if (at.kind == HostKind::kAnnotation || at.sequence < 0) return at.sequence;
  return trace.name(at).starts_with(kEngineOp) ? -1 : at.sequence;
}

}  // namespace perfmodel
