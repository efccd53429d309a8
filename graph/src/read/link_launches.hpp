#pragma once

#include "perfmodel/graph/trace.hpp"

namespace perfmodel {

/// Finds the call that launched each piece of device work, by correlation ids, and which calls
/// launched something (HostEvent::launches). Events are in the order that `Trace` promises.
///
/// - 0 is no id if several events have it. Device work without an id, and all but the first
/// kernel of a call that launches one, belong to a launch that has no work; failing that they stay
/// as they are. Only the first of equal records of one kernel is kept.
/// - Of calls of one id, launches win, then the last one before the work.
/// - A call within another is part of it: its work is the outer one's, and it is left out.
///
/// Oddities are counted in `Trace::recording`.
void link_launches(Trace& trace);

}  // namespace perfmodel
