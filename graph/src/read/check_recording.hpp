#pragma once

#include "perfmodel/graph/trace.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// Checks whether a recording is possible. Impossible values are left out or cut, counted in
/// `Trace::recording`, and refused if the right value is not certain. Times are in nanoseconds.

/// Leaves out events ten minutes away from all others, a tenth of those at most or some device work
/// alone: their stamps are invalid. Called before stamps are counted from the first one.
void leave_out_far_stamps(Trace& trace);

/// Device work far from its call: 100 ms before it or ten minutes after it. A device of which most
/// of the work is off by the same time has a clock of its own, which is set by the calls.
void leave_out_far_work(Trace& trace);

/// A stream does one thing at a time: work that begins before the last one has ended cuts that one.
/// Overlaps that are meant stay: nodes of a captured graph, kernels launched to begin early, stamps
/// that are rounded.
void cut_overlaps(Trace& trace);

/// Host events with a true entry are taken out; device work finds its calls again.
void leave_out_host_events(Trace& trace, const std::vector<bool>& leave_out);

/// One mark per step: equal numbers at one time, marks within others.
void leave_out_repeated_steps(Trace& trace);

/// The first steps of DDP are not typical: the first one reduces all gradients at once, the second
/// one broadcasts the new buckets. Up to two leading steps lose their marks if their collectives
/// differ from the ones that most steps have, which begin right after them.
void leave_out_first_steps(Trace& trace);

/// Says which steps between those marked were not recorded, and which marked ones hold no work.
void note_steps(Trace& trace);

/// Whether the trace is of one process. Errors: device work launched by several.
Result<void> check_one_process(const Trace& trace);

/// Whether the kernels of the trace are of one device. Errors: they are of several.
Result<void> check_one_device(const Trace& trace);

/// Whether the trace has an op. Errors: it has none.
Result<void> check_has_ops(const Trace& trace);

/// Whether a graph can be made of the trace. Errors: it has no op, or kernels of several devices.
Result<void> check_program(const Trace& trace);

}  // namespace perfmodel
