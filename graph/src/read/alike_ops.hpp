#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "perfmodel/graph/trace.hpp"
#include "trace_nesting.hpp"

namespace perfmodel {

/// Which ops of a trace do the same work. Both per host event.
struct AlikeOps {
  std::vector<bool> needed;        ///< the first of its kind, or the forward op of such a one
  std::vector<std::int32_t> like;  ///< the needed event that it is like; -1: in no op
};

/// Ops are alike if they and all inside them have equal names, arguments, devices and collectives,
/// and the forward ops of backward functions inside are alike, too. Kinds are told apart by 64-bit
/// hashes. `events`: the events of `nesting.order` that count.
AlikeOps find_alike_ops(const Trace& trace, const TraceNesting& nesting,
                        std::span<const std::int32_t> events);

}  // namespace perfmodel
