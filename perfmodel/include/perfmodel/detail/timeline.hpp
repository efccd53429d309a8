#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "perfmodel/prediction.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// Names for the head of a timeline.
struct TimelineTitle {
  std::string graph;  ///< "mlperf.json (built)"
  std::string gpu;
};

/// The predicted steady pass as a Chrome trace, for ui.perfetto.dev or chrome://tracing: a lane
/// with the phases, a lane per host thread with steps, ops and their calls, a lane per GPU stream.
/// Stamps are microseconds since the start of the pass; device work may run beyond its end. Readers
/// of Kineto traces find steps, launches and work in it: `replay` gives the predicted step.
///
/// Arrows lead from calls to the work that they launch and along the critical path.
///
/// Ops are drawn without the gap (T1) before them. If the host runs ahead of the device, the
/// device's work is drawn as if the step found it idle, and the host's wait for the launch queue is
/// drawn at the step's end, as a call that waits for an event. Fails for a prediction without
/// placed ops (method lin, `keep_ops` or `keep_calls` off).
Result<std::string> timeline_json(const Prediction& prediction, const TimelineTitle& title);

/// Compressed if the name ends in `.gz`; the file appears whole or not at all.
Result<void> write_timeline(const Prediction& prediction, const TimelineTitle& title,
                            const std::filesystem::path& file);

/// Several ranks predicted together, on one clock, with a title each. The critical path is taken
/// from the rank `path_of`.
Result<void> write_timeline(std::span<const Prediction* const> ranks,
                            std::span<const TimelineTitle> titles, std::size_t path_of,
                            const std::filesystem::path& file);

}  // namespace perfmodel
