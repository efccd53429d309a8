#include "timing.hpp"

#include <algorithm>
#include <cmath>

#include "helper_kernels.hpp"

namespace kernels_bench::gpu {
namespace {

constexpr int kMostLaunches = 256;
// Start of a graph and events cost a few microseconds, which the times include: 2 % of this at
// most.
constexpr double kReplayMicroseconds = 300;
/// Runs that take longer need no untimed one before them: the host's part is 1 % or less.
constexpr double kLongMicroseconds = 5000;

/// The two events of each repetition.
Outcome<std::vector<OwnedEvent>> make_events(int count) {
  std::vector<OwnedEvent> events;
  for (int i = 0; i < count; ++i) {
    auto event = make_event();
    if (!event) return tl::unexpected(event.error());
    events.push_back(std::move(*event));
  }
  return events;
}

using Run = std::function<Outcome<void>(int)>;

/// Queues `run(i)` for i in 1..repetitions, each after a flush and between events; with `lead`,
/// `run(0)` untimed before them.
Outcome<std::vector<double>> time_queued(const TimingSetup& setup, int repetitions, bool lead,
                                         const Run& run) {
  auto events = make_events(2 * repetitions);
  if (!events) return tl::unexpected(events.error());
  for (int i = lead ? 0 : 1; i <= repetitions; ++i) {
    if (auto flushed = setup.flush.launch(setup.stream); !flushed) {
      return tl::unexpected(flushed.error());
    }
    if (i > 0) GPU_TRY(GPU(EventRecord)((*events)[2 * i - 2].get(), setup.stream));
    if (auto ran = run(i); !ran) return tl::unexpected(ran.error());
    if (i > 0) GPU_TRY(GPU(EventRecord)((*events)[2 * i - 1].get(), setup.stream));
  }
  GPU_TRY(GPU(StreamSynchronize)(setup.stream));
  std::vector<double> times;
  for (int i = 0; i < repetitions; ++i) {
    const auto time = microseconds_between((*events)[2 * i], (*events)[2 * i + 1]);
    if (!time) return tl::unexpected(time.error());
    times.push_back(*time);
  }
  return times;
}

/// The repetitions of which `trial` was the first.
Outcome<std::vector<double>> go_on(const TimingSetup& setup, double trial,
                                   const MeasureOptions& options, const Run& run) {
  std::vector<double> times = {trial};
  const int more = repetitions_for(trial, options) - 1;
  if (more < 1) return times;
  const auto others = time_queued(setup, more, trial < kLongMicroseconds, run);
  if (!others) return others;
  times.insert(times.end(), others->begin(), others->end());
  return times;
}

Outcome<OwnedGraphExec> capture_launches(const TimingSetup& setup, int launches) {
  return capture(setup.stream, [&]() -> Outcome<void> {
    for (int i = 0; i < launches; ++i) {
      auto launched = setup.workload.launch(i % setup.copies, setup.stream);
      if (!launched) return launched;
    }
    return {};
  });
}

}  // namespace

Outcome<OwnedStream> make_stream() {
  Stream stream = nullptr;
  GPU_TRY(GPU(StreamCreate)(&stream));
  return OwnedStream(stream);
}

Outcome<OwnedEvent> make_event() {
  Event event = nullptr;
  GPU_TRY(GPU(EventCreate)(&event));
  return OwnedEvent(event);
}

Outcome<double> microseconds_between(const OwnedEvent& begin, const OwnedEvent& end) {
  GPU_TRY(GPU(EventSynchronize)(end.get()));
  float milliseconds = 0;
  GPU_TRY(GPU(EventElapsedTime)(&milliseconds, begin.get(), end.get()));
  return 1000.0 * milliseconds;
}

Outcome<OwnedGraphExec> capture(Stream stream, const std::function<Outcome<void>()>& enqueue) {
  // Relaxed: libraries may load kernels lazily meanwhile.
  GPU_TRY(GPU(StreamBeginCapture)(stream, GPU(StreamCaptureModeRelaxed)));
  const Outcome<void> queued = enqueue();
  GPU(Graph_t) captured = nullptr;
  const Status ended = GPU(StreamEndCapture)(stream, &captured);  // also after a failure
  const OwnedGraph graph(captured);
  if (!queued) {
    (void)GPU(GetLastError)();
    return tl::unexpected(queued.error());
  }
  if (ended != GPU(Success)) {
    return tl::unexpected(Failure{FailureKind::kUnsupported, "cannot be captured into a graph: " +
                                                                 failure_of(ended, "end").message});
  }
  GPU(GraphExec_t) executable = nullptr;
  GPU_TRY(GPU(GraphInstantiateWithFlags)(&executable, graph.get(), 0));
  return OwnedGraphExec(executable);
}

int repetitions_for(double time_us, const MeasureOptions& options) {
  const double wanted = options.seconds * 1e6 / std::max(time_us, 1e-3);
  const double most = std::max(options.max_repetitions, options.min_repetitions);
  return static_cast<int>(std::clamp(wanted, double(options.min_repetitions), most));
}

Outcome<void> Flush::launch(Stream stream) const {
  if (scratch != nullptr) GPU_TRY(launch_flush(scratch, bytes, stream));
  return {};
}

Outcome<std::vector<double>> time_graph(const TimingSetup& setup, const MeasureOptions& options) {
  int launches = std::clamp(setup.min_launches, 1, kMostLaunches);
  while (true) {
    auto graph = capture_launches(setup, launches);
    if (!graph) return tl::unexpected(graph.error());
    const auto replay = [&](int) -> Outcome<void> {
      GPU_TRY(GPU(GraphLaunch)(graph->get(), setup.stream));
      return {};
    };
    const auto trial = time_queued(setup, 1, true, replay);
    if (!trial) return trial;
    if (trial->front() < kReplayMicroseconds && launches < kMostLaunches) {
      const double wanted = 1.2 * launches * kReplayMicroseconds / std::max(trial->front(), 1.0);
      launches = std::clamp(static_cast<int>(wanted), launches + 1, kMostLaunches);
      continue;
    }
    auto times = go_on(setup, trial->front(), options, replay);
    if (!times) return times;
    for (double& time : *times) time /= launches;
    return times;
  }
}

Outcome<std::vector<double>> time_events(const TimingSetup& setup, const MeasureOptions& options) {
  const auto launch = [&](int i) { return setup.workload.launch(i % setup.copies, setup.stream); };
  const auto trial = time_queued(setup, 1, true, launch);
  if (!trial) return trial;
  return go_on(setup, trial->front(), options, launch);
}

}  // namespace kernels_bench::gpu
