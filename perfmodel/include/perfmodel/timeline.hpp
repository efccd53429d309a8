#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "perfmodel/predict.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// Names for the head of a timeline.
struct TimelineTitle {
  std::string graph;  ///< "mlperf.json (built)"
  std::string gpu;
};

/// The predicted steady pass as a Chrome trace, for ui.perfetto.dev or chrome://tracing: a lane
/// with the phases, a lane per host thread with ops and their waits, a lane per GPU stream. Stamps
/// are microseconds since the start of the pass; device work may run beyond its end.
///
/// Arrows lead from ops to the work that they launch and along the critical path.
///
/// Ops stand without the gap (T1) before them. A prediction knows how long an op waits, not when:
/// the wait is drawn so that it ends with the last device work that ends inside the op. Fails for a
/// prediction without placed ops (method lin, `keep_ops` off).
Result<std::string> timeline_json(const Prediction& prediction, const TimelineTitle& title);

/// Compressed if the name ends in `.gz`; the file appears whole or not at all.
Result<void> write_timeline(const Prediction& prediction, const TimelineTitle& title,
                            const std::filesystem::path& file);

/// Several ranks predicted together, on one clock, with a title each. The critical path is that of
/// the rank `path_of`.
Result<void> write_timeline(std::span<const Prediction* const> ranks,
                            std::span<const TimelineTitle> titles, std::size_t path_of,
                            const std::filesystem::path& file);

}  // namespace perfmodel
