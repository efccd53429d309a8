#pragma once

#include <cstdint>
#include <vector>

#include "perfmodel/graph/detail/event_names.hpp"
#include "perfmodel/graph/trace.hpp"

namespace perfmodel {

/// Names the thing that a host call waited for. Waiting is an edge of the schedule, never an
/// overhead.
struct CallWait {
  enum class Kind : std::uint8_t { kNone, kSync, kBlockingCopy } kind = Kind::kNone;
  SyncKind sync = SyncKind::kNone;  ///< kSync only
  std::int32_t task = -1;           ///< the awaited device work, into Trace::gpu; -1: none was open
  std::int64_t wait_ns = 0;         ///< part of the call's duration spent waiting
};

/// Per host event (indexed as Trace::host), kNone for everything that does not block.
///
/// A stream synchronise waits for the stream of a copy that its thread issued in the last 200 us,
/// else for the launched task that ends latest before the call's end; `cuda_sync` records decide
/// where they exist. A copy blocks if its call ends when the copy does: device-to-host copies into
/// pageable memory always. A large host-to-device copy blocks if it starts inside of its call: the
/// call goes once the last piece of a pageable buffer is staged, before the copy's end.
/// A blocking call's own time is its time after the awaited end.
std::vector<CallWait> find_call_waits(const Trace& trace);

/// Device work per host call: indices into Trace::gpu, in start order. `first[i] .. first[i + 1]`
/// delimit the entries of host event i in `work`.
struct CallWork {
  std::vector<std::uint32_t> first;
  std::vector<std::int32_t> work;

  std::uint32_t count(std::size_t host_event) const {
    return first[host_event + 1] - first[host_event];
  }
};
CallWork work_of_calls(const Trace& trace);

}  // namespace perfmodel
