#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "layout_work.hpp"
#include "perfmodel/detail/job_timeline.hpp"
#include "perfmodel/detail/schedule.hpp"
#include "replay/chakra_export.hpp"

namespace perfmodel {

using Tasks = std::vector<TaskGraph::TaskId>;

/// Ranks that a collective is among; of a rank, each names one group.
enum class RankGroup : std::uint8_t { kTensor, kData, kShards, kReplicas, kWords, kWorld };
/// Rows of a stage in the timeline.
enum class Row : std::uint8_t { kPasses, kHost, kCompute, kTensor, kData, kForward, kBackward };
/// The facts of a task that the files hold.
struct TaskNote {
  std::size_t stage = 0;
  Row row = Row::kCompute;
  std::uint32_t name = 0;
  bool on_host = false;
  std::optional<ChakraCollective> collective;
  RankGroup group = RankGroup::kWorld;
  std::int64_t bytes = 0, group_size = 1;
  std::optional<ChakraTransfer> transfer;  // between stages
};

/// One collective of a task.
struct TaskCollective {
  ChakraCollective kind = ChakraCollective::kAllReduce;
  RankGroup group = RankGroup::kTensor;
  std::int64_t ranks = 1;
  double bytes = 0;
};

/// The tasks of a step by stage, as the schedule, Chakra traces and the timeline have them.
class StepTasks {
 public:
  using TaskId = TaskGraph::TaskId;

  /// The number of a text; equal ones are kept once.
  std::uint32_t name(std::string text);

  TaskId add(std::optional<TaskNote> note, std::int32_t lane, double us, const Tasks& after);
  TaskId add_host(std::size_t stage, std::uint32_t what, double us, const Tasks& after);
  TaskId add_kernels(std::size_t stage, std::uint32_t what, double us, const Tasks& after);
  TaskId add_collective(std::size_t stage, std::uint32_t what, const TaskCollective& of, double us,
                        const Tasks& after, bool in_lane = true);
  void put_behind(TaskId before, TaskId task) { graph_.add_edge(before, task); }
  TaskId size() const { return static_cast<TaskId>(graph_.size()); }

  /// A slice of the timeline around the tasks `first` to `last` of a stage.
  void note_pass(std::size_t stage, std::uint32_t title, TaskId first, TaskId last) {
    passes_.push_back({stage, title, first, last});
  }

  Result<void> schedule();

  // After schedule().
  double makespan_us() const { return schedule_.makespan_us(); }
  /// One per stage.
  std::vector<ChakraTrace> traces(std::size_t stages) const;
  /// `together`: ranks of a stage.
  JobTimeline timeline(const std::string& title, std::size_t stages, std::int64_t together) const;

 private:
  struct PassSlice {
    std::size_t stage = 0;
    std::uint32_t name = 0;
    TaskId first = -1, last = -1;  // numbered one after the other
  };
  std::optional<ChakraTask> chakra_task(TaskId task) const;

  TaskGraph graph_;
  Schedule schedule_;
  std::vector<std::optional<TaskNote>> notes_;  // per task
  std::vector<PassSlice> passes_;
  std::vector<std::string> names_;
  std::unordered_map<std::string, std::uint32_t> name_ids_;
};

/// A step that is being written down.
struct LayoutStep {
  const StepQuestion& question;
  const ParallelLayout& layout;
  const LayoutWork& work;
  StepTasks tasks = {};
  std::vector<Tasks> fronts = {};  ///< per stage: what its next task waits for

  LayoutStep(const StepQuestion& of, const LayoutWork& its_work)
      : question(of),
        layout(*of.layout),
        work(its_work),
        fronts(static_cast<std::size_t>(of.layout->pp)) {}

  std::size_t stages() const { return fronts.size(); }
  std::int64_t microbatches() const { return work.microbatches; }
  /// Ranks that share one copy of what is sharded; all data parallel ranks, unless HSDP has copies.
  std::int64_t sharing_ranks() const {
    return layout.zero == Sharding::kHsdp ? shard_ranks(question) : layout.dp;
  }
  const ChunkWork& chunk_at(std::size_t stage, std::int64_t chunk) const {
    return work.chunks[static_cast<std::size_t>(chunk) * stages() + stage];
  }
};

}  // namespace perfmodel
