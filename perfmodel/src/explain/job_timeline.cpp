#include "perfmodel/detail/job_timeline.hpp"

#include <algorithm>

#include "perfmodel/version.hpp"
#include "timeline_events.hpp"

namespace perfmodel {

Result<void> write_timeline(const JobTimeline& timeline, const std::filesystem::path& file) {
  constexpr std::int64_t kFirstStream = 100'000;
  const std::string made_by = "perfmodel " + version_text();
  const TimelineArg head[] = {{"title", std::string_view(timeline.title)},
                              {"made_by", std::string_view(made_by)}};
  PERFMODEL_TRY(events, TimelineEvents::create(file, {.other_data = head}));
  for (std::size_t r = 0; r < timeline.ranks.size(); ++r) {
    events->name_process(static_cast<std::int64_t>(r), timeline.ranks[r],
                         static_cast<std::int64_t>(r));
  }
  std::vector<TimelineTrack> tracks;
  for (std::size_t i = 0; i < timeline.tracks.size(); ++i) {
    const auto& track = timeline.tracks[i];
    tracks.push_back(
        events->add_track(static_cast<std::int64_t>(track.rank),
                          (track.device ? kFirstStream : 0) + static_cast<std::int64_t>(i),
                          track.name, static_cast<std::int64_t>(i)));
  }
  std::vector<TimelinePoint> points;
  points.reserve(timeline.slices.size());
  for (const auto& slice : timeline.slices) {
    const TimelineArg args[] = {{"waiting_us", slice.waiting_us}};
    points.push_back(events->slice({.track = tracks[slice.track],
                                    .name = timeline.names[slice.name],
                                    .category = slice.category,
                                    .start_us = slice.start_us,
                                    .duration_us = std::max(0.0, slice.duration_us),
                                    .args = std::span(args).first(slice.waiting_us > 0 ? 1 : 0)}));
  }
  for (const auto& [call, work] : timeline.launches) {
    events->flow(kLaunchFlow, points[call], points[work]);
  }
  std::vector<TimelinePoint> path;
  for (std::uint32_t slice : timeline.critical_path) path.push_back(points[slice]);
  if (path.size() > 1) events->flow(kCriticalPathFlow, path);
  return events->finish();
}

}  // namespace perfmodel
