#pragma once

#include <cstdint>
#include <vector>

#include "perfmodel/graph/graph_from_trace.hpp"

namespace perfmodel {

/// The ops of a trace without those that repeat others: what work each does can be asked of far
/// fewer nodes. Its order and the waits between its ops mean nothing.
struct OpKinds {
  TraceGraph ops;
  /// Per host event: the event that stands in `ops` for it, with the same arguments; -1: none.
  std::vector<std::int32_t> like;
};

/// Errors: a trace without an op.
Result<OpKinds> op_kinds_of_trace(const Trace& trace);

}  // namespace perfmodel
