#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "perfmodel/graph/trace.hpp"

namespace perfmodel {

/// Place of an op's tensors.
enum class Side : std::uint8_t { kHost, kGpu, kUpload, kDownload };

/// Nesting of the ops and annotations of a trace. Vectors without another word are per host event.
struct TraceNesting {
  std::vector<std::int32_t> order;   ///< ops and annotations in start order over all threads
  std::vector<std::int32_t> parent;  ///< -1: none, or a call
  std::vector<std::int32_t> around;  ///< innermost op or annotation by time, of calls too
  std::vector<Side> side;
  std::vector<std::int32_t> thread_number;  ///< per thread of the trace, from 1 on; 0: no op
  std::size_t threads = 0;                  ///< with a number
};

TraceNesting nest_events(const Trace& trace);

/// Whether autograd runs the op as the backward function that its number names.
bool is_backward_of_engine(const Trace& trace, const TraceNesting& nesting, std::int32_t event);

/// Autograd's number of an op; -1: none. The engine's own op around a backward function has none.
std::int64_t autograd_number(const Trace& trace, std::int32_t event);

}  // namespace perfmodel
