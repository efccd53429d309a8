#include "order_trace.hpp"

#include <algorithm>
#include <unordered_map>

#include "base/sort_runs.hpp"
#include "core/collective_names.hpp"
#include "link_launches.hpp"
#include "perfmodel/graph/detail/event_names.hpp"

namespace perfmodel {
namespace {

void sort_trace_events(Trace& trace) {
  const auto earlier = [](const HostEvent& a, const HostEvent& b) {
    if (a.thread != b.thread) return a.thread < b.thread;
    if (a.start_ns != b.start_ns) return a.start_ns < b.start_ns;
    if (a.duration_ns != b.duration_ns) return a.duration_ns > b.duration_ns;
    // A call as long as its op is inside it, whatever their order in the file.
    const bool a_call = a.kind == HostKind::kCall, b_call = b.kind == HostKind::kCall;
    if (a_call != b_call) return b_call;
    return a.file_order < b.file_order;
  };
  const auto thread_of = [](const HostEvent& event) { return event.thread + 1; };
  sort_large_runs(trace.host, earlier, thread_of);
  sort_large_runs(trace.modules, earlier, thread_of);
  sort_large_runs(trace.frames, earlier, thread_of);
  const auto one_group = [](const auto&) { return 0; };
  sort_large_runs(
      trace.gpu,
      [](const GpuEvent& a, const GpuEvent& b) {
        if (a.device != b.device) return a.device < b.device;
        if (a.stream != b.stream) return a.stream < b.stream;
        return a.start_ns < b.start_ns;
      },
      one_group);
  sort_large_runs(
      trace.memory,
      [](const MemoryRecord& a, const MemoryRecord& b) { return a.time_ns < b.time_ns; },
      one_group);
}

// A kernel without a note of its own takes the note of the op that launched it.
void hand_notes_to_kernels(Trace& trace, const NoteOwners& owners) {
  if (owners.empty()) return;
  std::unordered_map<std::uint32_t, std::int32_t> note_of;  // by file order of the op
  for (const auto& [file_order, note] : owners) note_of[file_order] = note;
  std::vector<std::int32_t> noted;  // host events with a note, in the order of Trace::host
  for (std::size_t i = 0; i < trace.host.size(); ++i) {
    if (note_of.contains(trace.host[i].file_order)) noted.push_back(static_cast<std::int32_t>(i));
  }
  CollectiveNames is_collective(trace.names);
  for (GpuEvent& event : trace.gpu) {
    if (event.collective >= 0 || event.launch < 0 || !is_collective(event.name)) continue;
    const HostEvent& call = trace.host[event.launch];
    const auto after = std::upper_bound(noted.begin(), noted.end(), event.launch);
    if (after == noted.begin()) continue;
    const HostEvent& op = trace.host[*(after - 1)];
    if (op.thread == call.thread && call.end_ns() <= op.end_ns()) {
      event.collective = note_of[op.file_order];
    }
  }
}

}  // namespace

void order_trace(Trace& trace, const NoteOwners& owners) {
  sort_trace_events(trace);
  link_launches(trace);
  hand_notes_to_kernels(trace, owners);
}

}  // namespace perfmodel
