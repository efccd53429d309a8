#pragma once

#include <cstdint>

#include "core/call_waits.hpp"
#include "perfmodel/prediction.hpp"

namespace perfmodel {

/// One step of the host program. A pass over all instructions is one pass over the graph.
struct Instruction {
  enum class Kind : std::uint8_t {
    kHost,
    kLaunch,
    kBlockingCopy,
    kSync,
    kCommWait,
    kMark
  } kind = Kind::kHost;
  Term term = Term::kT1;    ///< of the host or device time
  std::int32_t op = 0;      ///< position in the list of items
  std::int32_t thread = 0;  ///< host lane
  std::int32_t stream = 0;  ///< role
  double host_us = 0;       ///< kHost: the time; kBlockingCopy, kSync: own time after the wait
  double device_us = 0;
  double latency_us = 0;  ///< kSync: own time after an awaited end beyond host_us
  std::int64_t sequence = -1;
  std::int32_t group = -1;  ///< collectives and waits: process group, by order; -1: not known
  SyncKind sync = SyncKind::kNone;
  bool collective = false;
  std::int32_t kernel = -1;  ///< into the item's kernels
  std::int32_t phase = -1;   ///< if it is not the item's
  std::int32_t comm = -1;    ///< collectives: into ExecutionGraph::comm_records, or -1
  /// Collectives, and copies on other streams than the main one: their record's or own node, or
  /// -1; waits: that of what they wait for, in place of a number.
  std::int32_t record = -1;
  double comm_bytes = -1;        ///< collectives: what this rank puts in; -1: not known
  std::int32_t comm_work = -1;   ///< collectives: into HostProgram::comm_works, or -1
  bool waits_for_caller = true;  ///< collectives: for the work of the thread's stream so far
  std::int32_t after_mark = -1;  ///< kMark: the number that the stream's last task gets;
                                 ///< collectives: waits for that task of this pass
  std::int32_t meeting = -1;  ///< collectives that meet those of other ranks: which one of the pass
  std::int32_t node = -1;     ///< whose call it is; -1: no node stands for it
};

}  // namespace perfmodel
