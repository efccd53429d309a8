#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/call_waits.hpp"
#include "perfmodel/graph/trace.hpp"

namespace perfmodel {

/// Stamps of whole microseconds let neighbours of one stream overlap by so much.
inline constexpr double kMostOverlapUs = 1.5;

/// Unrecorded device work next to a task (into Trace::gpu).
struct UnrecordedWork {
  std::int32_t task = -1;
  double us = 0;
};

/// Finds why device work of a trace did not start earlier: earlier work of its stream, its launch,
/// work of other streams, or device work that the trace does not hold. Latency, gap and distance of
/// an awaited event are means of the starts that have no other reason.
class DeviceStarts {
 public:
  /// Device work of one stream.
  struct Stream {
    std::vector<std::int32_t> tasks;            ///< in start order
    std::vector<std::int64_t> launch_start_ns;  ///< launched tasks only, in launch order
    std::vector<std::int32_t> launched;
    std::vector<std::int32_t> queued;  ///< last task of each call: a graph takes one place
  };
  using Streams = std::map<std::pair<std::int16_t, std::int64_t>, Stream>;  // device, stream

  /// Work of another stream that has to end first.
  struct Wait {
    std::int32_t task = -1;
    std::optional<double> lag_us;  ///< none: the lag of an awaited event
    bool inferred = false;
    bool held = false;  ///< begins while `task` drains: the (negative) lag grows with its duration
  };

  /// Device work that must have run before a task although it is not in the trace: the whole device
  /// was idle while the task was queued. Some profilers leave out nodes of a captured graph; work
  /// launched before the recording began is not in the file.
  struct Unrecorded {
    double us = 0;             ///< how long the task was held by it
    std::int32_t after = -1;   ///< recorded work of another stream that ended before; -1: none
    bool since_begin = false;  ///< began before the window: it runs from stamp 0 on
  };

  /// The same after a task, before a call that waited longer than for the task.
  struct Tail {
    double us = 0;
    std::int32_t launch = -1;  ///< graph launch without recorded work, into Trace::host; -1: none
  };

  DeviceStarts(const Trace& trace, const std::vector<CallWait>& waits, const CallWork& work);

  const Streams& streams() const { return streams_; }
  bool is_collective(std::int32_t task) const { return is_collective_[task]; }
  /// Number of the lane of a task: a stream has more than one if its work overlaps.
  std::int32_t lane(std::int32_t task) const { return lane_[task]; }
  std::int32_t lanes() const { return lanes_; }
  /// Task before a task on its lane, or -1.
  std::int32_t previous(std::int32_t task) const { return previous_[task]; }

  /// Last task of a stream launched before a stamp and, if asked, ended by another; -1: none.
  std::int32_t last_launched(
      const Stream& stream, std::int64_t before_ns,
      std::int64_t ended_ns = std::numeric_limits<std::int64_t>::max()) const;
  /// Last task on the stream of an event, launched before the event was recorded; -1: none.
  std::int32_t last_before_record(const SyncEvent& sync) const;

  bool same_launch(std::int32_t a, std::int32_t b) const;
  bool blocks_its_call(std::int32_t task) const;
  bool of_graph(std::int32_t task) const;  ///< launched with others by one call

  /// From the launch's end, or start if the call waits for the task. It may be negative.
  double latency_us(std::int32_t task) const;
  /// Gap after the previous task of the lane.
  double gap_us(std::int32_t task) const;
  double event_lag_us() const;

  const std::vector<Wait>& waits(std::int32_t task) const;
  const Unrecorded* unrecorded(std::int32_t task) const;
  const Tail* tail(std::int32_t task) const;
  /// Both, per task that was held or that something followed.
  std::vector<UnrecordedWork> all_unrecorded() const;

  std::size_t inferred_waits() const { return inferred_waits_; }  ///< for ended work
  std::size_t held_tasks() const { return held_tasks_; }

 private:
  // Means of typical values by key (kind of work, name of the call), else over all.
  class Typical {
   public:
    void add(std::uint64_t key, std::int64_t ns);
    double mean(std::uint64_t key, double fallback) const;

   private:
    struct Sum {
      double us = 0;
      std::size_t count = 0;
    };
    std::unordered_map<std::uint64_t, Sum> by_key_;
    Sum all_;
  };

  const HostEvent& host(std::int32_t i) const { return trace_.host[i]; }
  const GpuEvent& gpu(std::int32_t i) const { return trace_.gpu[i]; }
  const HostEvent& launch_of(std::int32_t task) const { return host(gpu(task).launch); }

  void sort_launches();
  void lay_out();
  void note_calls();
  void find_event_waits();
  void recorded_wait(const SyncEvent& sync);
  void measure();
  void explain_late_start(std::int32_t task);
  bool wait_for_ended(std::int32_t task);
  bool wait_for_draining(std::int32_t task);
  void wait_for_unrecorded(std::int32_t task, double allowed_us);
  std::int32_t last_ended_on_device(std::int32_t task) const;
  void find_tails();

  std::uint64_t kind_key(std::int32_t task) const;
  std::uint64_t call_key(std::int32_t task) const;
  std::int64_t previous_end(std::int32_t task) const;
  std::int64_t awaited_end(std::int32_t task) const;
  std::int64_t issue_ns(std::int32_t task) const;

  const Trace& trace_;
  const std::vector<CallWait>& call_waits_;
  const CallWork& work_;
  Streams streams_;
  std::vector<bool> is_collective_;
  std::vector<std::int32_t> lane_, previous_;
  std::int32_t lanes_ = 0;
  std::unordered_map<std::int64_t, std::int32_t> call_of_correlation_;  // with sync records only
  std::unordered_map<std::int32_t, std::vector<Wait>> waits_;
  std::map<std::int32_t, Unrecorded> unrecorded_;
  std::map<std::int32_t, Tail> tails_;
  Typical latency_, blocking_latency_, gap_, event_lag_;
  std::size_t inferred_waits_ = 0, held_tasks_ = 0;
};

/// Sums per iteration; `step_of` as gpu_iterations() gives it, -1 is left out.
std::vector<double> unrecorded_per_step(std::span<const UnrecordedWork> work,
                                        std::span<const std::int32_t> step_of, std::size_t steps);

/// A warning about it; none if it is below half a percent of the time.
std::optional<std::string> unrecorded_warning(double unrecorded_us, double of_us);

/// The same of a whole trace: of its iterations or, if it marks none, of all of it.
std::optional<std::string> unrecorded_warning(const Trace& trace);

}  // namespace perfmodel
