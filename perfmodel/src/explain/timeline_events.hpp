#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <variant>

#include "perfmodel/graph/trace.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// A key of a slice's details, of the head, ... Texts are only looked at during the call.
struct TimelineArg {
  std::string_view key;
  std::variant<bool, std::int64_t, double, std::string_view> value;
};

/// One row: a host thread or a stream of a process (a rank). Made by TimelineEvents::add_track.
struct TimelineTrack {
  std::uint32_t index = 0;
};

/// Start or end of an arrow: the slice that begins there. Made by TimelineEvents::slice.
struct TimelinePoint {
  TimelineTrack track;
  std::int64_t ns = 0;
};

struct TimelineSlice {
  TimelineTrack track;
  std::string_view name, category;  ///< Kineto's categories have their colours: cpu_op, kernel, ...
  double start_us = 0, duration_us = 0;
  std::span<const TimelineArg> args = {};
};

/// Kineto's categories of what a trace recorded.
std::string_view category_of(HostKind kind);
std::string_view category_of(GpuKind kind);

inline constexpr std::string_view kLaunchFlow = "ac2g";  ///< Kineto's name: from call to kernel
inline constexpr std::string_view kCriticalPathFlow = "critical_path";

/// Writes a Chrome trace, for ui.perfetto.dev or chrome://tracing, event by event: it keeps only
/// the text of a few hundred kB, however long the timeline.
///
/// A process is a rank, its tracks are host threads and streams. Stamps are microseconds with three
/// decimals; start and end of a slice are rounded alike, so slices that nest or touch still do.
/// Within a track, slices should come in order of their start, one that holds another first.
///
///   auto timeline = TimelineEvents::create("job.json.gz", {});
///   timeline->name_process(0, "rank 0", 0);
///   const auto host = timeline->add_track(0, 1, "thread 1", 0);
///   const auto stream = timeline->add_track(0, 1007, "stream 7", 1);
///   const auto call = timeline->slice({.track = host, .name = "cudaLaunchKernel", ...});
///   const auto kernel = timeline->slice({.track = stream, .name = "gemm", ...});
///   timeline->flow(kLaunchFlow, call, kernel);
///   if (auto done = timeline->finish(); !done) ...
class TimelineEvents {
 public:
  using Sink = std::function<void(std::string_view)>;

  /// Texts of the head: `otherData`, and the names of the devices 0, 1, ... in `deviceProperties`.
  struct Head {
    std::span<const TimelineArg> other_data = {};
    std::span<const std::string_view> devices = {};
  };

  /// To a file that appears whole or not at all, compressed if its name ends in `.gz`.
  static Result<TimelineEvents> create(const std::filesystem::path& file, const Head& head);

  /// Hands the text over in pieces.
  TimelineEvents(Sink sink, const Head& head);

  TimelineEvents(TimelineEvents&&) noexcept;
  TimelineEvents& operator=(TimelineEvents&&) noexcept;
  ~TimelineEvents();

  void name_process(std::int64_t process, std::string_view name, std::int64_t order);
  TimelineTrack add_track(std::int64_t process, std::int64_t thread, std::string_view name,
                          std::int64_t order);

  /// A negative duration, or a time that is no number, is an error of `finish`; the first counts.
  TimelinePoint slice(const TimelineSlice& slice);

  /// An arrow, or a chain of them, between slices that were written before. `category` is its name
  /// too. Viewers cannot draw an arrow back in time: a chain is cut there, see `cut_flows`.
  void flow(std::string_view category, TimelinePoint from, TimelinePoint to);
  void flow(std::string_view category, std::span<const TimelinePoint> path);

  /// One value of a counter of a process: queue depth, memory. It holds until the next one.
  void counter(std::int64_t process, std::string_view name, double at_us, double value);

  std::size_t cut_flows() const;     ///< arrows left out, since they would point back
  std::size_t out_of_order() const;  ///< slices that start before the one before in their track

  /// Ends the text and gives the file its name. To be called once, as the last.
  Result<void> finish();

 private:
  struct State;
  explicit TimelineEvents(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace perfmodel
