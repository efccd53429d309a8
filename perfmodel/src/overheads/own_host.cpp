#include "own_host.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <vector>

#include "perfmodel/graph/detail/trace_ops.hpp"
#include "perfmodel/predict.hpp"
#include "pool_overheads.hpp"

namespace perfmodel {
namespace {

void say_first(OverheadTable& table, std::string sentence) {
  table.warnings.insert(table.warnings.begin(), std::move(sentence));
}

}  // namespace

Result<void> take_collector_out(OverheadTable& table, const OverheadTable& reference,
                                const ExecutionGraph& graph, const Gpu& gpu) {
  if (!reference.without_collector || table.without_collector) return {};
  if (table.collector == Collector::kUnknown) {
    say_first(table,
              "the trace does not say what recorded it: its host times are taken as recorded, with "
              "all that a profiler added to them");
    return {};
  }
  auto ops = table.ops;
  OverheadTable scaled = std::move(table);
  const OverheadTable profiled = as_recorded(reference);
  const OverheadScaling speed = scale_to_shared_ops(scaled, profiled);
  scale_terms(scaled, *reference.without_collector);
  if (scaled.python_recorded) {
    scaled.t1 = reference.t1;
    say_first(scaled,
              "calls of Python were recorded, which lengthens the gaps between ops: these gaps "
              "are the reference host's");
  }
  PERFMODEL_TRY(by_recording, predict_host_us(graph, gpu, scaled));
  PERFMODEL_TRY(by_reference, predict_host_us(graph, gpu, reference));
  double rest = 1;
  if (*by_recording > 0 && *by_reference > 0) rest = *by_reference / *by_recording;
  const bool tells_its_speed =
      speed.coverage > 0 && scaled.collector != Collector::kProfilerAndObserver;
  if (tells_its_speed) {
    rest = std::sqrt(rest);
  } else {
    say_first(scaled, scaled.collector == Collector::kProfilerAndObserver
                          ? "an execution trace observer ran with the profiler: how fast the "
                            "host is comes from the reference host alone"
                          : "the recording shares no op with the reference host, which alone says "
                            "how fast the host is");
  }
  scale_host(scaled, rest);
  TermFactors& factors = scaled.without_collector.emplace(*reference.without_collector);
  for (double& factor : factors) factor *= speed.factor * rest;
  scaled.ops = std::move(ops);
  table = std::move(scaled);
  return {};
}

namespace {

// If the device falls further back from step to step, its period is the step: from the end of its
// work of the first step to the same point of the last. 0: it keeps up.
double device_period_ns(const Trace& trace, const std::vector<TraceIteration>& steps,
                        std::size_t first, std::size_t last) {
  constexpr double kFallsBehind = 1.1;
  if (last - first < 2) return 0;
  std::vector<std::int64_t> ends(steps.size(), 0);
  const std::vector<std::int32_t> step_of = gpu_iterations(trace, steps);
  for (std::size_t i = 0; i < trace.gpu.size(); ++i) {
    if (step_of[i] < 0) continue;
    auto& end = ends[step_of[i]];
    end = std::max(end, trace.gpu[i].end_ns());
  }
  for (std::size_t i = first; i + 1 < last; ++i) {
    if (ends[i] == 0 || !follows_at_once(steps[i], steps[i + 1])) return 0;
  }
  const auto period = static_cast<double>(ends[last - 1] - ends[first]);
  const auto marked = static_cast<double>(steps[last - 1].end_ns - steps[first].end_ns);
  return period > kFallsBehind * marked ? period / static_cast<double>(last - first - 1) : 0;
}

}  // namespace

double recorded_step_us(const Trace& trace,
                        const std::optional<std::pair<std::size_t, std::size_t>>& window) {
  const std::vector<TraceIteration> steps = iterations(trace);
  std::size_t first = 0, last = steps.size();
  if (window && window->first < window->second && window->second <= last) {
    std::tie(first, last) = *window;
  }
  if (first < last) {
    std::int64_t marked_ns = 0;
    for (std::size_t i = first; i < last; ++i) marked_ns += steps[i].end_ns - steps[i].begin_ns;
    const double step_ns = static_cast<double>(marked_ns) / static_cast<double>(last - first);
    return std::max(step_ns, device_period_ns(trace, steps, first, last)) / 1e3;
  }
  std::int64_t begin = std::numeric_limits<std::int64_t>::max(), end = 0;
  for (const HostEvent& event : trace.host) begin = std::min(begin, event.start_ns);
  for (const HostEvent& event : trace.host) end = std::max(end, event.end_ns());
  for (const GpuEvent& event : trace.gpu) end = std::max(end, event.end_ns());
  return trace.host.empty() ? 0 : static_cast<double>(end - begin) / 1e3;
}

}  // namespace perfmodel
