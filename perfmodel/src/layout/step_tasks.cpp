#include "step_tasks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace perfmodel {
namespace {

using TaskId = TaskGraph::TaskId;

constexpr std::array<std::string_view, 6> kGroupSymbols = {"tensor",   "data",  "shards",
                                                           "replicas", "words", ""};

constexpr std::array<std::string_view, 7> kRowNames = {
    "passes",        "host",          "compute",       "tensor parallel",
    "data parallel", "sends forward", "sends backward"};

std::int32_t lane_of(std::size_t stage, Row row) {
  return static_cast<std::int32_t>(stage * kRowNames.size() + static_cast<std::size_t>(row));
}

}  // namespace

std::uint32_t StepTasks::name(std::string text) {
  const auto [at, is_new] =
      name_ids_.emplace(std::move(text), static_cast<std::uint32_t>(names_.size()));
  if (is_new) names_.push_back(at->first);
  return at->second;
}

TaskGraph::TaskId StepTasks::add(std::optional<TaskNote> note, std::int32_t lane, double us,
                                 const Tasks& after) {
  const TaskId task = graph_.add_task(lane, us);
  notes_.push_back(std::move(note));
  for (TaskId before : after) graph_.add_edge(before, task);
  return task;
}

TaskGraph::TaskId StepTasks::add_host(std::size_t stage, std::uint32_t what, double us,
                                      const Tasks& after) {
  return add(TaskNote{.stage = stage, .row = Row::kHost, .name = what, .on_host = true},
             lane_of(stage, Row::kHost), us, after);
}

TaskGraph::TaskId StepTasks::add_kernels(std::size_t stage, std::uint32_t what, double us,
                                         const Tasks& after) {
  return add(TaskNote{.stage = stage, .row = Row::kCompute, .name = what},
             lane_of(stage, Row::kCompute), us, after);
}

TaskGraph::TaskId StepTasks::add_collective(std::size_t stage, std::uint32_t what,
                                            const TaskCollective& of, double us, const Tasks& after,
                                            bool in_lane) {
  const Row row = of.group == RankGroup::kTensor ? Row::kTensor : Row::kData;
  return add(TaskNote{.stage = stage,
                      .row = row,
                      .name = what,
                      .collective = of.kind,
                      .group = of.group,
                      .bytes = std::llround(of.bytes),
                      .group_size = of.ranks},
             in_lane ? lane_of(stage, row) : TaskGraph::kNoLane, us, after);
}

Result<void> StepTasks::schedule() {
  PERFMODEL_TRY(made, run_schedule(graph_));
  schedule_ = std::move(*made);
  return {};
}

std::vector<ChakraTrace> StepTasks::traces(std::size_t stages) const {
  return chakra_traces(graph_, schedule_, {0, size()}, stages,
                       [this](TaskId task) { return chakra_task(task); });
}

JobTimeline StepTasks::timeline(const std::string& title, std::size_t stages,
                                std::int64_t together) const {
  JobTimeline made;
  made.title = title;
  made.names = names_;
  for (std::size_t stage = 0; stage < stages; ++stage) {
    const std::int64_t first = static_cast<std::int64_t>(stage) * together;
    made.ranks.push_back(together == 1 ? fmt::format("stage {} (rank {})", stage, first)
                                       : fmt::format("stage {} (ranks {} to {})", stage, first,
                                                     first + together - 1));
    for (std::size_t row = 0; row < kRowNames.size(); ++row) {
      const bool on_host = row <= static_cast<std::size_t>(Row::kHost);
      made.tracks.push_back({.rank = stage,
                             .device = !on_host,
                             .id = static_cast<std::int64_t>(row),
                             .name = std::string(kRowNames[row])});
    }
  }
  std::vector<std::vector<JobTimeline::Slice>> by_track(made.tracks.size());
  const auto put = [&](std::size_t stage, Row row, std::uint32_t name, std::string_view category,
                       double start, double end) {
    const std::size_t track = stage * kRowNames.size() + static_cast<std::size_t>(row);
    by_track[track].push_back({.track = static_cast<std::uint32_t>(track),
                               .name = name,
                               .category = category,
                               .start_us = start,
                               .duration_us = end - start});
  };
  for (std::size_t i = 0; i < notes_.size(); ++i) {
    const double start = schedule_.start_us[i], end = schedule_.end_us[i];
    if (!notes_[i] || end <= start) continue;
    put(notes_[i]->stage, notes_[i]->row, notes_[i]->name, notes_[i]->on_host ? "cpu_op" : "kernel",
        start, end);
  }
  for (const PassSlice& pass : passes_) {
    double start = schedule_.makespan_us(), end = 0;
    for (TaskId task = pass.first; task <= pass.last; ++task) {
      start = std::min(start, schedule_.start_us[task]);
      end = std::max(end, schedule_.end_us[task]);
    }
    put(pass.stage, Row::kPasses, pass.name, "user_annotation", start, end);
  }
  for (auto& slices : by_track) {
    std::ranges::stable_sort(slices, {}, &JobTimeline::Slice::start_us);
    made.slices.insert(made.slices.end(), slices.begin(), slices.end());
  }
  return made;
}

std::optional<ChakraTask> StepTasks::chakra_task(TaskId task) const {
  const auto& note = notes_[task];
  if (!note) return std::nullopt;
  return ChakraTask{
      .rank = note->stage,
      .name = names_[note->name],
      .on_host = note->on_host,
      .collective = note->collective,
      .comm_bytes = note->bytes,
      .group_size = note->group_size,
      .process_group = note->collective
                           ? std::string(kGroupSymbols[static_cast<std::size_t>(note->group)])
                           : std::string(),
      .transfer = note->transfer};
}

}  // namespace perfmodel
