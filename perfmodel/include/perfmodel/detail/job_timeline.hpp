#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "perfmodel/result.hpp"

namespace perfmodel {

/// A drawing of a job: the work of every host thread and stream of every rank. Times in
/// microseconds on one clock.
struct JobTimeline {
  struct Track {
    std::size_t rank = 0;  ///< into `ranks`
    bool device = false;
    std::int64_t id = 0;  ///< thread or stream number
    std::string name;
  };
  struct Slice {
    std::uint32_t track = 0;    ///< into `tracks`
    std::uint32_t name = 0;     ///< into `names`
    std::string_view category;  ///< cpu_op, user_annotation, cuda_runtime, kernel, ... (static)
    double start_us = 0, duration_us = 0;
    double waiting_us = 0;  ///< at its begin, for other ranks
  };
  std::string title;
  std::vector<std::string> ranks;  ///< names of the processes
  std::vector<Track> tracks;
  std::vector<std::string> names;
  std::vector<Slice> slices;  ///< by track, then start; an outer slice before its inner ones
  std::vector<std::pair<std::uint32_t, std::uint32_t>> launches;  ///< slices: a call, its work
  std::vector<std::uint32_t> critical_path;                       ///< slices, in order of time
};

/// As a Chrome trace with launches and the critical path as arrows, for ui.perfetto.dev; compressed
/// if the name ends in `.gz`. The file appears whole or not at all.
Result<void> write_timeline(const JobTimeline& timeline, const std::filesystem::path& file);

}  // namespace perfmodel
