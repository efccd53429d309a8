#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "job_tasks.hpp"

namespace perfmodel {

/// Names of a job's tasks in reports and messages.
struct JobNames {
  using TaskId = TaskGraph::TaskId;

  std::span<const RankProgram> programs;
  const JobTasks& tasks;

  std::string_view op(TaskId task, std::size_t rank) const;  ///< "aten::mm"
  /// ""aten::mm" on stream 0 of rank 1".
  std::string with_place(TaskId task) const;
  /// "rank 2: aten::mm"; empty for tasks of no rank.
  std::string with_rank(TaskId task) const;
  /// A number that tells these apart.
  std::uint64_t key(TaskId task) const;
  /// The op's name as a number, the same on all ranks; empty: there is one rank.
  std::function<std::uint64_t(TaskId)> op_key() const;

 private:
  const ProgramItem& item(TaskId task, std::size_t rank) const;
};

}  // namespace perfmodel
