#pragma once

#include <simdjson.h>

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace perfmodel {

/// Kind of a trace event, from its category.
enum class TraceCategory : std::uint8_t {
  kOther,
  kOp,
  kAnnotation,
  kCall,
  kKernel,
  kCopy,
  kSet,
  kSync,
  kCounters,
  kSkipEarly,
  kIgnored,
};

TraceCategory trace_category(std::string_view name);

/// Tokens of a `[memory]` event's arguments; empty if a key is absent.
struct RawMemory {
  std::string_view bytes, address, allocated, reserved, device_type, device;
};

/// Fields in the text of one event; views point into it.
struct RawEvent {
  std::string_view name, category, phase, ts, duration, pid, tid;
  std::int64_t external_id = -1, correlation = -1, record_function_id = 0, event_index = -1;
  std::int64_t stream = -1, device = -1, bytes = 0;
  std::int64_t wait_on_stream = -1, wait_on_event = -1;
  std::string_view sync_kind, thread_label;
  // Collectives only.
  std::string_view collective, process_group, dtype;
  std::int64_t sequence = -1, in_elements = -1, out_elements = -1, group_size = -1;
  // Ops only: JSON text.
  std::string_view dims, types, strides, concrete;
  std::int64_t autograd_sequence = -1, forward_thread = 0;
  std::string_view blocks_per_sm, occupancy;
  // XPlane only.
  std::string_view copy_details;
  std::vector<std::pair<std::string_view, double>> counters;
  RawMemory memory;
};

/// Reads the members of one event that readers need.
simdjson::error_code read_event(simdjson::ondemand::object& object, RawEvent& event);

}  // namespace perfmodel
