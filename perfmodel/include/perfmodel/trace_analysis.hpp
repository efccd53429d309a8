#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "perfmodel/graph/trace.hpp"
#include "perfmodel/predictors/gpu.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// Where the time of a trace went. docs/traces.md has the definitions; times are in microseconds.
/// Devices and streams are added up unless a table says otherwise.
struct TraceAnalysis {
  /// Unions over all streams. compute + exposed_comm + exposed_memcpy = busy; busy + idle = span.
  struct Breakdown {
    double compute_us = 0;         ///< sets, and kernels other than collectives
    double comm_us = 0;            ///< collectives
    double exposed_comm_us = 0;    ///< the part of comm_us without compute at the same time
    double memcpy_us = 0;          ///< copies
    double exposed_memcpy_us = 0;  ///< the part without compute or collectives at the same time
    double busy_us = 0, idle_us = 0;
    double span_us = 0;            ///< from the first start to the last end
    double compute_kernel_us = 0;  ///< compute without sets
    /// Share of the collectives' time during which compute kernels run; nothing without
    /// collectives.
    std::optional<double> comm_overlap_fraction = {};
  };
  Breakdown breakdown;

  /// Gaps of one stream, by the reason why the next task started late.
  struct Idle {
    int device = 0;
    std::int64_t stream = 0;
    double host_wait_us = 0;    ///< launched after the previous task had ended
    double kernel_wait_us = 0;  ///< launched before that end, with a gap below 30 us
    double other_us = 0;
  };
  std::vector<Idle> idle;

  /// Tasks launched and not yet started on one stream; one value per change.
  struct Queue {
    int device = 0;
    std::int64_t stream = 0;
    std::size_t changes = 0;
    double mean = 0;  ///< over the changes
    std::int64_t max = 0;
    double at_limit_us = 0;  ///< time with kQueueLimit tasks or more
  };
  static constexpr std::int64_t kQueueLimit = 1024;
  std::vector<Queue> queue_length;

  /// From the end of a launching call to the start of its first task, at least 0.
  struct Launches {
    std::size_t count = 0;
    double mean_us = 0, median_us = 0, max_us = 0;
    std::size_t shorter_than_launch = 0;  ///< tasks that take less time than their call
  };
  Launches launch;

  struct OpKernel {
    std::string name;
    std::size_t count = 0;
    double total_us = 0;
  };
  /// All ops of one name (and shapes). Self times leave out the ops inside; the host's also leave
  /// out runtime calls. Kernels are the ones that the op launches itself.
  struct Op {
    std::string name;
    std::string shapes;    ///< as the file writes them; empty: any shapes, or not recorded
    std::string category;  ///< family of its kernels; "host" if it launches nothing
    std::size_t count = 0;
    double host_self_us = 0, host_total_us = 0;
    double device_self_us = 0, device_total_us = 0;
    double recomputed_us = 0;  ///< part of device_self_us in a checkpoint's backward pass
    /// Summed over the ops whose shapes determine their work, inner ops included.
    std::optional<double> flop = {}, bytes = {};
    /// Device time of these same ops.
    double worked_us = 0;
    /// Least time for that work at the peaks of arithmetic and memory; nothing for collectives and
    /// for copies between host and device.
    std::optional<double> roofline_us = {};
    std::vector<OpKernel> kernels = {};  ///< longest total first
  };
  std::vector<Op> ops, ops_by_shape;  ///< by device self time, then host self time, longest first
  double device_outside_ops_us = 0;   ///< device work that no op of the trace launched

  struct Module {
    std::string name;
    std::size_t count = 0;
    double host_total_us = 0, device_total_us = 0;
  };
  std::vector<Module> modules;

  struct Collective {
    std::string name;                      ///< "all_reduce", ...
    std::optional<std::int64_t> elements;  ///< in a rank's larger buffer
    std::string dtype;                     ///< as recorded; empty: not recorded
    std::string group;                     ///< name of the process group; empty: not recorded
    std::optional<std::int64_t> group_size = {};
    std::size_t count = 0;
    double total_us = 0;
    /// Bytes of the whole buffer over the kernel's time, waits included; with several ranks, over
    /// the time since the last of them began.
    std::optional<double> algorithm_gb_per_s = {};
    std::optional<double> bus_gb_per_s = {};  ///< traffic of each link
    /// Mean time from the first rank's start to the last one's, with several ranks.
    std::optional<double> skew_us = {};
  };
  std::vector<Collective> collectives;

  /// The time of an iteration, each moment counted once, in this order. The window goes from the
  /// iteration's begin (not before the end of the window before) to the end of its device work.
  struct Split {
    double kernel_us = 0, memcpy_us = 0, memset_us = 0, runtime_us = 0, data_loader_us = 0;
    double op_us = 0, other_us = 0;
    double window_us = 0;
    Breakdown breakdown = {};  ///< device work that the window launches
  };
  std::vector<Split> splits;  ///< one per iteration

  struct Copy {
    std::string kind;  ///< "Memcpy HtoD (Pageable -> Device)"
    std::size_t count = 0;
    double total_us = 0;
    std::int64_t bytes = 0;
    std::optional<double> gb_per_s = {};
  };
  std::vector<Copy> copies;

  /// Bandwidth from this time until the next point of the kind: bytes of the running copies over
  /// their times.
  struct BandwidthPoint {
    std::string kind;  ///< see Copy
    double time_us = 0, gb_per_s = 0;
  };
  std::vector<BandwidthPoint> copy_bandwidth;  ///< by kind, then time; at most 2,000 per kind

  /// One counter of CUPTI, in its own unit, over the ranges that the profiler measured.
  struct Counter {
    std::string name;
    std::size_t ranges = 0;
    double total = 0, least = 0, most = 0;
  };
  std::vector<Counter> counters;  ///< by name

  /// Device time of ops by their pass.
  struct Phases {
    double forward_us = 0, backward_us = 0, recompute_us = 0, optimizer_us = 0;
  } phases;

  /// Means over kernels, weighted by their time; nothing if Kineto recorded none.
  std::optional<double> occupancy_percent = {}, blocks_per_sm = {}, sm_efficiency_percent = {};

  std::string gpu;  ///< the GPU of FLOP, bytes and rooflines; empty: not known
  std::vector<std::string> warnings;
};

/// `window`: iterations [first, last). `gpu`: for FLOP, bytes and rooflines; nullptr: without.
/// Error: fewer iterations than the window asks for.
Result<TraceAnalysis> analyse(const Trace& trace,
                              const std::optional<std::pair<std::size_t, std::size_t>>& window,
                              const Gpu* gpu);

}  // namespace perfmodel
