#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>

namespace perfmodel {

/// Identifies processes and threads of a Chrome trace that jax.profiler or TensorFlow exported from
/// an XPlane: events have no category there, the names of processes and threads tell
/// ("/device:GPU:0", "Stream #14(Compute)", "/host:CPU", "XLA Ops"). Names come before the events.
class XplaneLanes {
 public:
  enum class Kind : std::uint8_t {
    kHost,
    kStream,   ///< work of a GPU
    kDerived,  ///< a row of the GPU that repeats the work of its streams by op, module or step
    kOther,    ///< a device that is not read, or none
  };
  struct Lane {
    Kind kind = Kind::kOther;
    std::int16_t device = 0;
    std::int64_t stream = 0;
  };

  void name_process(std::string_view process, std::string_view name);
  void name_thread(std::string_view process, std::string_view thread, std::string_view name);

  /// Whether any process has the name of a plane.
  bool any() const { return !processes_.empty(); }
  /// Counts one event of the lane.
  Lane lane(std::string_view process, std::string_view thread);

  /// Names the unread lanes: "/device:TPU:0 (120 events), ..."; empty: none.
  std::string unread() const;
  /// Whether rows that repeat the streams were left out.
  bool has_derived() const { return derived_ > 0; }

 private:
  struct Process {
    std::string name;
    Kind kind = Kind::kOther;
    std::int16_t device = 0;
    std::size_t unread = 0;
  };
  std::map<std::string, Process, std::less<>> processes_;
  std::unordered_map<std::string, Lane> lanes_;  // threads with a name
  std::size_t derived_ = 0;
};

/// Bytes of a copy or set from XPlane's text about it ("kind_src:device size:1024 dest:0"); 0: it
/// does not say.
std::int64_t bytes_of_xplane_copy(std::string_view details);

}  // namespace perfmodel
