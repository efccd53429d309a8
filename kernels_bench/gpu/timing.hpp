#pragma once

#include <functional>
#include <vector>

#include "handles.hpp"
#include "workload.hpp"

namespace kernels_bench::gpu {

Outcome<OwnedStream> make_stream();
Outcome<OwnedEvent> make_event();

/// µs between two recorded events; waits for the second.
Outcome<double> microseconds_between(const OwnedEvent& begin, const OwnedEvent& end);

/// Captures the work of `enqueue` on the stream as a graph. kUnsupported if it cannot be captured.
Outcome<OwnedGraphExec> capture(Stream stream, const std::function<Outcome<void>()>& enqueue);

/// clamp(seconds / time, min, max)
int repetitions_for(double time_us, const MeasureOptions& options);

/// Makes the L2 cold between repetitions by writing all of a scratch buffer; does nothing while
/// that is null. The lines that it leaves are dirty: their write-back is part of what follows.
struct Flush {
  void* scratch = nullptr;
  std::int64_t bytes = 0;
  Outcome<void> launch(Stream stream) const;
};

struct TimingSetup {
  Workload& workload;
  Stream stream;
  int copies;
  int min_launches;  ///< in a graph
  Flush flush;       ///< before each repetition
};

/// Timing::kGraph: µs per launch, one number per repetition. A repetition is one replay of a graph
/// of n launches in a row, set `i % copies` for launch i; n is such that a replay takes 300 µs or
/// more (at most 256 launches). Short repetitions are queued after an untimed one, so that the GPU
/// does not wait for the host. A time includes the gap between two dependent kernels of a graph,
/// and an n-th of the graph's start and of the two events: some µs of the 100 or more, not
/// subtracted.
Outcome<std::vector<double>> time_graph(const TimingSetup& setup, const MeasureOptions& options);

/// Timing::kEvents: µs of single launches between two events, the gap before a kernel included. The
/// flush, where there is one, gives the host time to queue the launch; else the wait for the host
/// is part of short times.
Outcome<std::vector<double>> time_events(const TimingSetup& setup, const MeasureOptions& options);

}  // namespace kernels_bench::gpu
