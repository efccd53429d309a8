#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "perfmodel/graph/trace.hpp"

namespace perfmodel {

/// Memory of one device over time, as the allocator's records in a trace tell it.
struct MeasuredMemory {
  std::string device;  ///< "cuda:0", "cpu", ... as PyTorch names it
  bool on_host = false;
  /// False: the file has no totals. Then 0 is the lowest level within the recording, and the peak
  /// is above that level only.
  bool totals_recorded = true;

  struct Point {
    double time_us = 0;  ///< since the trace's first event
    std::int64_t allocated_bytes = 0;
    std::optional<std::int64_t> reserved_bytes;
  };
  std::vector<Point> curve;  ///< after every allocation and release

  std::int64_t peak_bytes = 0;                 ///< allocated
  double peak_us = 0;                          ///< when it was first reached
  std::string peak_op;                         ///< innermost op on the allocating thread, or empty
  std::optional<std::int64_t> reserved_bytes;  ///< peak
};

/// One entry per device with records: accelerators before the host, recorded totals before levels
/// without, the highest peak first. With
/// spans, sorted and apart, only records within one of [begin, end).
std::vector<MeasuredMemory> measured_memory(
    const Trace& trace,
    const std::optional<std::vector<std::pair<std::int64_t, std::int64_t>>>& spans_ns = {});

/// At most `most` points: of each of equal runs of records the lowest and highest allocated level
/// and the highest reserved one, so that every peak above its neighbourhood remains.
std::vector<MeasuredMemory::Point> thinned(const std::vector<MeasuredMemory::Point>& curve,
                                           std::size_t most = 2000);

}  // namespace perfmodel
