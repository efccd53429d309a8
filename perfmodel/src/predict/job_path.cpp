#include "job_path.hpp"

#include <algorithm>

#include "explain/explain_rank.hpp"

namespace perfmodel {
namespace {

using TaskId = TaskGraph::TaskId;
using Point = Prediction::PathPoint;

bool same(const Point& a, const Point& b) {
  return a.rank == b.rank && a.op == b.op && a.kernel == b.kernel;
}

}  // namespace

PathPoints note_path_points(std::span<const RankProgram> programs, const JobTasks& tasks) {
  PathPoints points(tasks.graph.size() - static_cast<std::size_t>(tasks.pass_begin), {.rank = -1});
  for (std::size_t r = 0; r < programs.size(); ++r) {
    if (!programs[r].rank.options.keep_ops) continue;
    const HostProgram& program = programs[r].program;
    const auto positions = op_positions(program);
    for (const auto& placed : tasks.ranks[r]->last_pass()) {
      const Instruction& at = program.instructions[placed.instruction];
      Point point{.rank = static_cast<std::int32_t>(r), .op = positions[at.item]};
      if (tasks.ranks[r]->on_device(placed.task)) {
        point.kernel = program.position(std::get<Launch>(at.what), at.item);
      }
      points[placed.task - tasks.pass_begin] = point;
      points[placed.arrival - tasks.pass_begin] = point;
    }
  }
  return points;
}

PathPoints path_points(const RankProgram& rank, std::size_t r, const Prediction& prediction,
                       const JobTasks& tasks, const PathPoints& of_tasks) {
  PathPoints path;
  // If the device sets the pace, the path ends with its last task instead of the host's.
  const double step = prediction.e2e_us * static_cast<double>(rank.program.steps.size());
  const bool device_bound = !tasks.started && step > tasks.period(r) * (1 + kSteadyTolerance / 2);
  const ProgramTasks& own = *tasks.ranks[r];
  const TaskId last = device_bound ? own.pass_device_ends().back() : own.pass_ends().back();
  for (TaskId task : tasks.schedule.critical_path(last)) {
    if (task < tasks.pass_begin) break;
    const Point& point = of_tasks[task - tasks.pass_begin];
    if (point.rank >= 0 && (path.empty() || !same(path.back(), point))) path.push_back(point);
  }
  std::ranges::reverse(path);
  return path;
}

}  // namespace perfmodel
