#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "perfmodel/graph/trace.hpp"

namespace perfmodel {

/// File order of an op and the note about its collective, into Trace::collectives.
using NoteOwners = std::vector<std::pair<std::uint32_t, std::int32_t>>;

/// Brings the events of a trace into the order that `Trace` promises and finds the call that
/// launched each piece of device work. Kernels of collectives get the notes of their ops.
void order_trace(Trace& trace, const NoteOwners& owners);

}  // namespace perfmodel
