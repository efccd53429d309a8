#include <algorithm>
#include <array>

#include "base/statistics.hpp"
#include "extract_overheads.hpp"
#include "host_chain.hpp"
#include "microseconds.hpp"
#include "template_learner.hpp"
#include "term_samples.hpp"

namespace perfmodel {
namespace {

constexpr double kMinGapUs = 2, kMaxGapUs = 200;  // gaps that count as T1
constexpr double kLaunchUs =
    4;  // T4 = 10 - 2 (CPU event) - 4 (GPU event), assumed and not measured

constexpr std::array<std::string_view, 3> kLaunches = {"cudaLaunchKernel", "cudaMemcpyAsync",
                                                       "cudaStreamSynchronize"};
// Calls that the published code drops from the event tree; they still count as recorded events in
// the gaps before a launch.
constexpr std::array<std::string_view, 5> kIgnored = {"cudaOccupancy", "cudaPeekAtLastError",
                                                      "cudaStreamIsCapturing", "cudaEventQuery",
                                                      "cudaEventRecord"};
constexpr std::array<std::string_view, 6> kLabels = {
    "##", "__", "module::", "DLRM ", "DistributedDataParallel", "ProfilerStep"};

bool is_lin_launch(std::string_view name) {
  return std::find(kLaunches.begin(), kLaunches.end(), name) != kLaunches.end();
}

bool is_lin_label(std::string_view name) {
  return std::any_of(kLabels.begin(), kLabels.end(),
                     [name](std::string_view prefix) { return name.starts_with(prefix); });
}

bool is_ignored(std::string_view name) {
  return std::any_of(kIgnored.begin(), kIgnored.end(),
                     [name](std::string_view prefix) { return name.starts_with(prefix); });
}

// Spans from a data loader's start to the next forward marker: no op in them counts.
std::vector<std::pair<std::int64_t, std::int64_t>> loading_spans(const Trace& trace) {
  std::vector<std::pair<std::int64_t, std::int64_t>> spans;
  std::vector<std::int64_t> forwards;
  for (const HostEvent& event : trace.host) {
    const std::string_view name = trace.name(event);
    if (name.starts_with("enumerate(DataLoader)"))
      spans.emplace_back(event.start_ns, event.end_ns());
    if (name == "## forward ##" || name == "## Forward ##") forwards.push_back(event.start_ns);
  }
  std::sort(forwards.begin(), forwards.end());
  for (auto& [begin, end] : spans) {
    const auto next = std::lower_bound(forwards.begin(), forwards.end(), begin);
    if (next != forwards.end()) end = std::max(end, *next);
  }
  return spans;
}

// Samples outside [Q1 - 1.5 IQR, Q3 + 1.5 IQR] go; quartiles interpolate linearly between ranks.
std::vector<double> fenced(const std::vector<double>& samples) {
  if (samples.size() < 2) return samples;
  std::vector<double> sorted = samples;
  std::sort(sorted.begin(), sorted.end());
  const double q1 = quantile(sorted, 0.25), q3 = quantile(sorted, 0.75), reach = 1.5 * (q3 - q1);
  std::vector<double> kept;
  for (double sample : samples) {
    if (sample >= q1 - reach && sample <= q3 + reach) kept.push_back(sample);
  }
  return kept;
}

}  // namespace

// The published extraction, without its marker rules (skip 50, keep 30): T2 and T3 lose the
// recording cost of every event in the gap, T1 the cost of one event; T4 is a constant.
Result<OverheadTable> extract_lin(std::span<const OverheadSource> sources,
                                  const OverheadOptions& options, OverheadTable table) {
  const double cost = options.profiler_cost_us;
  HostSamples terms;
  std::map<std::string, std::vector<double>> ops;
  for (const OverheadSource& source : sources) {
    const Trace& trace = *source.trace;
    auto steps = iterations(trace);
    if (options.iterations) {
      const auto [first, last] = *options.iterations;
      if (first >= last || last > steps.size()) {
        return decline("expected iterations within 0:" + std::to_string(steps.size()) + " of " +
                       trace.source);
      }
      steps = {steps.begin() + static_cast<std::ptrdiff_t>(first),
               steps.begin() + static_cast<std::ptrdiff_t>(last)};
    }
    table.iterations += steps.size();
    std::vector<std::int32_t> top;
    {
      const TraceOps nesting = find_trace_ops(trace);
      const auto spans = loading_spans(trace);
      for (std::size_t i = 0; i < trace.host.size(); ++i) {
        const HostEvent& event = trace.host[i];
        if (event.kind == HostKind::kCall || is_lin_label(trace.name(event))) continue;
        if (event.kind == HostKind::kAnnotation) continue;
        if (!steps.empty() && iteration_at(steps, event.start_ns) < 0) continue;
        bool inside = false;
        const bool loading = std::any_of(spans.begin(), spans.end(), [&](const auto& span) {
          return event.start_ns >= span.first && event.start_ns < span.second;
        });
        for (std::int32_t at = nesting.parent[i]; at >= 0; at = nesting.parent[at]) {
          const HostEvent& around = trace.host[at];
          inside |= around.kind == HostKind::kOp;
        }
        if (!inside && !loading) top.push_back(static_cast<std::int32_t>(i));
      }
      std::stable_sort(top.begin(), top.end(), [&](std::int32_t a, std::int32_t b) {
        return trace.host[a].start_ns < trace.host[b].start_ns;
      });
    }
    for (std::size_t k = 0; k < top.size(); ++k) {
      const auto index = static_cast<std::size_t>(top[k]);
      const HostEvent& event = trace.host[index];
      const std::string_view name = trace.name(event);
      if (k + 1 < top.size()) {
        const double gap = us(trace.host[top[k + 1]].start_ns - event.end_ns());
        if (gap > kMinGapUs && gap < kMaxGapUs) terms[Term::kT1].add(gap - cost, "all");
      }
      // Events inside the op in start order; `between` counts those since the last launch.
      double between = 0, total = 0;
      double tree = 1, accounted = 0;  // events of the pruned tree, events subtracted so far
      const HostEvent* last = nullptr;
      for (std::size_t i = index + 1;
           i < trace.host.size() && trace.host[i].thread == event.thread &&
           trace.host[i].start_ns < event.end_ns();
           ++i) {
        const HostEvent& inner = trace.host[i];
        if (inner.kind != HostKind::kCall || !is_lin_launch(trace.name(inner))) {
          ++between;
          tree += inner.kind != HostKind::kCall || !is_ignored(trace.name(inner));
          continue;
        }
        ++tree;
        accounted += between + 1;
        const std::int64_t from = last ? last->end_ns() : event.start_ns;
        const double gap = std::max(0.0, us(inner.start_ns - from) - cost * between);
        terms[last ? Term::kT5 : Term::kT2].add(gap, name);
        total += gap + kLaunchUs;
        last = &inner;
        between = 0;
      }
      if (!last) {
        if (name != "aten::to") {
          terms[Term::kTx].add(std::max(0.0, us(event.duration_ns) - cost * (between + 1)), name);
        }
        continue;
      }
      // The published code subtracts the events of the pruned tree that no gap has had yet, the op
      // itself included; ignored calls make that number too small, even negative.
      const double rest =
          std::max(0.0, us(event.end_ns() - last->end_ns()) - cost * (tree - accounted));
      terms[Term::kT3].add(rest, name);
      ops[std::string(name)].push_back(total + rest);
    }
    // Launch lists: the published code keeps the first list seen per name. Ours come from the graph
    // if there is one, so that the baseline is judged on its overheads, not on lost kernels.
    OverheadOptions context = options;
    context.method = OverheadMethod::kContext;
    OverheadTable learned;
    auto extracted = extract_context({&source, 1}, context, std::move(learned));
    if (extracted && table.templates.lists.empty()) {
      table.templates = std::move(extracted->templates);
    }
  }
  terms.give(table, [](const TermSamples& of) { return of.fenced_term(fenced); });
  for (std::string_view call : {"cudaLaunchKernel", "cudaMemcpyAsync"}) {
    table.t4[std::string(call)] = {.mean_us = kLaunchUs, .median_us = kLaunchUs, .count = 1};
  }
  for (const auto& [op, samples] : ops) table.ops[op] = stats_of(samples);
  return table;
}

}  // namespace perfmodel
