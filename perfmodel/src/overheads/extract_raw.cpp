#include "extract_overheads.hpp"
#include "microseconds.hpp"
#include "perfmodel/graph/detail/event_names.hpp"
#include "term_samples.hpp"

namespace perfmodel {
namespace {

// Nothing if events overlap, which events of one thread only do if their stamps are wrong.
double gap_us(std::int64_t from_ns, std::int64_t to_ns) {
  return us(std::max<std::int64_t>(0, to_ns - from_ns));
}

// Calls of one top-level op as the reference figures define them: launches that start within it.
struct RawOp {
  const HostEvent* event = nullptr;
  std::vector<const HostEvent*> calls;
};

}  // namespace

// Every gap as recorded: no wait removed, no profiler cost subtracted, nesting only by time.
Result<OverheadTable> extract_raw(std::span<const OverheadSource> sources,
                                  const OverheadOptions& options, OverheadTable table) {
  HostSamples terms;
  std::map<std::string, std::vector<double>> t4, ops;
  for (const OverheadSource& source : sources) {
    const Trace& trace = *source.trace;
    const TraceOps found = find_trace_ops(trace);
    const auto all_steps = iterations(trace);
    auto steps = all_steps;
    if (options.iterations) {
      const auto [first, last] = *options.iterations;
      if (first >= last || last > steps.size()) {
        return decline("expected iterations within 0:" + std::to_string(steps.size()) + " of " +
                       trace.source);
      }
      steps.assign(all_steps.begin() + static_cast<std::ptrdiff_t>(first),
                   all_steps.begin() + static_cast<std::ptrdiff_t>(last));
    }
    table.iterations += steps.size();
    const bool windowed = options.iterations.has_value();
    const auto step_of = [&](const HostEvent& event) {
      return iteration_at(steps, event.start_ns);
    };

    std::vector<RawOp> raw(found.top_level.size());
    for (std::size_t i = 0; i < raw.size(); ++i) {
      raw[i].event = &trace.host[found.top_level[i]];
    }
    for (std::size_t i = 0; i < trace.host.size(); ++i) {
      const HostEvent& event = trace.host[i];
      if (!event.launches) continue;
      if (found.call_owner[i] >= 0) {
        raw[found.call_owner[i]].calls.push_back(&event);
      }
      if (!windowed || step_of(event) >= 0) {
        t4[std::string(trace.name(event))].push_back(us(event.duration_ns));
      }
    }
    for (std::size_t i = 0; i < raw.size(); ++i) {
      const HostEvent& event = *raw[i].event;
      if (windowed && step_of(event) < 0) continue;
      const std::string_view name = trace.name(event);
      ops[std::string(name)].push_back(us(event.duration_ns));
      if (i + 1 < raw.size() && raw[i + 1].event->thread == event.thread) {
        const HostEvent& next = *raw[i + 1].event;
        if (steps.empty() || (step_of(event) >= 0 && step_of(event) == step_of(next))) {
          terms[Term::kT1].add(gap_us(event.end_ns(), next.start_ns),
                               to_string(GapClass::kSibling));
        }
      }
      const auto& calls = raw[i].calls;
      if (calls.empty()) {
        terms[Term::kTx].add(us(event.duration_ns), name);
        continue;
      }
      terms[Term::kT2].add(gap_us(event.start_ns, calls.front()->start_ns), name);
      terms[Term::kT3].add(gap_us(calls.back()->end_ns(), event.end_ns()), name);
      for (std::size_t c = 1; c < calls.size(); ++c) {
        terms[Term::kT5].add(gap_us(calls[c - 1]->end_ns(), calls[c]->start_ns), name);
      }
    }
  }
  terms.give(table, &TermSamples::term);
  for (const auto& [call, samples] : t4) table.t4[call] = stats_of(samples);
  for (const auto& [op, samples] : ops) table.ops[op] = stats_of(samples);
  return table;
}

}  // namespace perfmodel
