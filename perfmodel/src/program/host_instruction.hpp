#pragma once

#include <cstdint>
#include <optional>
#include <variant>

#include "core/call_waits.hpp"
#include "perfmodel/prediction.hpp"

namespace perfmodel {

/// The host works by itself.
struct HostWork {
  Term term = Term::kT1;
  double us = 0;
  std::int32_t phase = -1;  ///< if it is not the item's

  bool operator==(const HostWork&) const = default;
};

/// The part of a launch that only collectives have.
struct CollectiveLaunch {
  std::int64_t sequence = -1;    ///< within its group; -1: not known
  std::int32_t group = -1;       ///< process group, by order; -1: not known
  std::int32_t comm = -1;        ///< into ExecutionGraph::comm_records, or -1
  std::int32_t work = -1;        ///< into HostProgram::comm_works, or -1
  double bytes = -1;             ///< this rank's input; -1: not known
  bool waits_for_caller = true;  ///< for the work of the thread's stream so far
  std::int32_t after_mark = -1;  ///< else for the task of this StreamMark in this pass; -1: none
  std::int32_t meeting = -1;     ///< number of its meeting with other ranks in the pass; -1: none
  std::int32_t from = -1, to = -1;  ///< stages of a pipeline between which it is a message

  bool operator==(const CollectiveLaunch&) const = default;
};

/// A call that starts a kernel, a copy, a set or a collective. How long that takes is the price of
/// the kernel.
struct Launch {
  Term term = Term::kKernel;  ///< term of the device's time
  bool blocking = false;      ///< the call ends after the work that it starts
  /// A copy on a stream of its own: waits for all work of the thread's stream so far, and the
  /// thread goes on on that.
  bool aside = false;
  std::int32_t stream = 0;  ///< role
  double host_us = 0;       ///< the call's own time; of blocking ones after the wait
  double latency_us = 0;    ///< from the call's end to the start on an idle stream
  std::int32_t kernel = 0;  ///< into HostProgram::kernels
  std::int32_t node = -1;   ///< node of the call; -1: none
  /// Collectives, and copies on other streams than the main one: their record's or own node, or -1.
  std::int32_t record = -1;
  std::int32_t collective = -1;  ///< into HostProgram::collectives; -1: it starts none
  /// Gap after the previous work on its stream; none: the table's gap.
  std::optional<double> gap_us = {};

  bool is_collective() const { return collective >= 0; }
  bool operator==(const Launch&) const = default;
};

/// A call that waits for a stream, or for the device.
struct Synchronisation {
  SyncKind kind = SyncKind::kNone;
  std::int32_t stream = 0;
  double host_us = 0;     ///< own time after the wait
  double latency_us = 0;  ///< own time after an awaited end beyond `host_us`

  bool operator==(const Synchronisation&) const = default;
};

/// The thread's next kernel waits for a collective or a copy.
struct DeviceWait {
  std::int32_t record = -1;    ///< its Launch::record; -1: a collective of this number
  std::int64_t sequence = -1;  ///< and group
  std::int32_t group = -1;
  std::optional<double> lag_us = {};  ///< none: the lag of an awaited event

  bool operator==(const DeviceWait&) const = default;
};

/// The last task of the thread's stream gets a number that collectives of this pass may wait for.
struct StreamMark {
  std::int32_t number = -1;

  bool operator==(const StreamMark&) const = default;
};

/// One step of the host program. A pass over all instructions is one pass over the graph.
struct Instruction {
  std::int32_t item = 0;    ///< into HostProgram::items
  std::int32_t thread = 0;  ///< host lane
  std::variant<HostWork, Launch, Synchronisation, DeviceWait, StreamMark> what;

  bool operator==(const Instruction&) const = default;
};

inline const Launch* launch_of(const Instruction& at) { return std::get_if<Launch>(&at.what); }
inline Launch* launch_of(Instruction& at) { return std::get_if<Launch>(&at.what); }

/// The launch of a collective; null: it is something else.
inline const Launch* collective_of(const Instruction& at) {
  const Launch* launch = launch_of(at);
  return launch && launch->is_collective() ? launch : nullptr;
}

}  // namespace perfmodel
