#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "perfmodel/graph/detail/read_options.hpp"
#include "perfmodel/graph/detail/recording.hpp"
#include "perfmodel/graph/detail/string_pool.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

enum class HostKind : std::uint8_t {
  kOp,
  kAnnotation,  ///< marks a region: ProfilerStep#N, "## forward ##", Optimizer.step#..., ...
  kCall,        ///< runtime or driver call
};

/// One timed event of a host thread. Stamps are nanoseconds since Trace::base_ns.
struct HostEvent {
  std::int64_t start_ns = 0, duration_ns = 0;
  NameId name = 0;
  std::int32_t thread = -1;  ///< into Trace::threads
  HostKind kind = HostKind::kOp;
  bool has_forward_thread = false;  ///< "Fwd thread id" is not 0: runs in the backward pass
  /// Calls only: gave work to the device. Device work with its correlation says so, whatever the
  /// call's name; without such work (a kernel that was not recorded) the name decides. If calls are
  /// within each other, only the outermost one counts.
  bool launches = false;
  std::uint32_t file_order = 0;
  std::int64_t event_index = -1;        ///< "Ev Idx": start order as PyTorch saw it; -1: none
  std::int64_t correlation = -1;        ///< calls only
  std::int64_t record_function_id = 0;  ///< links to a graph's rf_id; 0: not recorded
  std::int64_t external_id = -1;
  std::int64_t sequence = -1;    ///< autograd's number; -1: none
  std::int32_t arguments = -1;   ///< into Trace::arguments; -1: none recorded
  std::int32_t collective = -1;  ///< ops only, into Trace::collectives; -1: none recorded

  std::int64_t end_ns() const { return start_ns + duration_ns; }
};

/// An op's inputs in a trace with `record_shapes`: JSON text as in the file. Equal texts are kept
/// once.
struct OpArguments {
  NameId dims = 0;      ///< "[[16, 13], [], [[2, 3], [4, 3]]]": extents, of lists one entry each
  NameId types = 0;     ///< "["float", "Scalar", "TensorList"]"
  NameId strides = 0;   ///< as dims, elements; empty: not recorded (before 2024)
  NameId concrete = 0;  ///< "["", "1", "[2, 3]"]": values of scalars; empty: not recorded
  friend bool operator==(const OpArguments&, const OpArguments&) = default;
};

enum class GpuKind : std::uint8_t { kKernel, kCopy, kSet };

/// One piece of device work.
struct GpuEvent {
  std::int64_t start_ns = 0, duration_ns = 0;
  NameId name = 0;
  GpuKind kind = GpuKind::kKernel;
  std::int16_t device = 0;
  std::int64_t stream = 0, correlation = -1;
  std::int64_t bytes = 0;        ///< copies and sets
  std::int32_t launch = -1;      ///< into Trace::host; -1: launched outside the trace
  std::int32_t collective = -1;  ///< into Trace::collectives; -1: none recorded
  /// Of kernels, as Kineto estimates them; below 0: not recorded.
  float blocks_per_sm = -1, occupancy_percent = -1;

  std::int64_t end_ns() const { return start_ns + duration_ns; }
};

/// A `cuda_sync` record: which stream or event a synchronising call waited for.
struct SyncEvent {
  std::int64_t start_ns = 0, duration_ns = 0;
  NameId kind = 0;  ///< "Stream Synchronize", "Stream Wait Event", ...
  std::int64_t stream = -1, wait_on_stream = -1, wait_on_event_correlation = -1;
  std::int64_t correlation = -1;
};

/// Counters of the GPU over a stretch of time (CUPTI's range profiler), as recorded.
struct CounterRange {
  std::int64_t start_ns = 0, duration_ns = 0;
  NameId name = 0;                                ///< name of the range
  std::vector<std::pair<NameId, double>> values;  ///< by counter
};

/// PyTorch's record of a collective, on its kernel or on its record_param_comms op.
struct CollectiveNote {
  NameId kind = 0;           ///< "allreduce", "all_to_allv", ... as recorded
  NameId process_group = 0;  ///< empty: not recorded
  NameId dtype = 0;
  std::int64_t sequence = -1;                        ///< number within the group; -1: not recorded
  std::int64_t in_elements = -1, out_elements = -1;  ///< per rank
  std::int64_t group_size = -1;
};

/// A `[memory]` instant: the allocator handed memory out or took it back.
struct MemoryRecord {
  std::int64_t time_ns = 0;
  std::int64_t bytes = 0;                      ///< below 0: taken back
  std::int64_t allocated = -1, reserved = -1;  ///< on the device after it; below 0: not recorded
  std::uint64_t address = 0;
  std::int32_t thread = -1;     ///< into Trace::threads
  std::int16_t device = -1;     ///< -1: the type has no numbers (the host)
  std::int8_t device_type = 0;  ///< as PyTorch counts: 0 the host, 1 CUDA (and ROCm), ...
};

struct TraceThread {
  std::string process_id, thread_id, name;
};

struct TraceDevice {
  std::int64_t id = 0;
  std::string name;
};

/// A Kineto trace: host events and device work of one process, times in nanoseconds.
///
/// `host` is sorted by (thread, start, longer first, file order), `gpu` by (device, stream, start).
struct Trace {
  std::string source;
  StringPool names;
  std::vector<HostEvent> host;
  std::vector<GpuEvent> gpu;
  std::vector<SyncEvent> syncs;
  std::vector<CollectiveNote> collectives;
  std::vector<OpArguments> arguments;
  std::vector<MemoryRecord> memory;  ///< by time
  std::vector<CounterRange> counters;
  /// Calls of modules that Python frames name ("nn.Module: Linear_0"), in the order of `host`.
  std::vector<HostEvent> modules;
  /// Other calls of Python ("train.py(30): main"), in the same order, if the reader was asked for
  /// them (ReadOptions::python_frames).
  std::vector<HostEvent> frames;
  std::vector<TraceThread> threads;
  std::vector<TraceDevice> devices;         ///< every GPU of the host, used or not
  std::int64_t base_ns = 0;                 ///< epoch or boot time of stamp 0
  std::int64_t rank = -1, world_size = -1;  ///< -1: not recorded
  std::size_t event_count = 0;              ///< entries of traceEvents, of any kind
  std::uint64_t text_bytes = 0;             ///< inflated size of the file
  bool has_python_frames = false;           ///< calls of Python were recorded too
  bool has_pytorch_ops = false;             ///< ops as the profiler of PyTorch names their category
  std::string unread;   ///< categories of events that are not read, with counts; empty: none
  Recording recording;  ///< findings of its check; `warnings` begin with them
  std::vector<std::string> warnings;

  std::string_view name(const HostEvent& event) const { return names.text(event.name); }
  std::string_view name(const GpuEvent& event) const { return names.text(event.name); }

  /// Name of the GPU that the work ran on; empty if the file does not say.
  std::string gpu_name() const;
};

/// Reads a Kineto (Chrome) trace, plain or gzip, of any vintage since 2020: dictionary or bare
/// array, old and new categories, CUDA and HIP calls, whole or fractional microseconds (parsed from
/// the text, so no stamp is rounded), numeric, textual or negative thread ids.
///
/// Also reads XPlanes that jax.profiler and TensorFlow export as Chrome JSON: their processes and
/// threads show the work of a GPU, events with a correlation are calls, the others ops.
///
/// The text is streamed: peak memory is the events kept plus some megabytes. Flows, counters drawn
/// as curves and instants other than those about memory are skipped; so are calls of Python
/// functions, unless asked for. Errors: an unreadable file, broken gzip or JSON, an event that is
/// no object, a stamp that is no number, an execution graph in place of a trace (the message says
/// so).
Result<Trace> read_trace(const std::filesystem::path& file, const ReadOptions& options = {});

}  // namespace perfmodel
